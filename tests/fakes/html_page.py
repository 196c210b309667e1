"""HTML as a strict reader sees it, for tests of the page: elements, attributes, and faults."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset({"meta", "link", "input", "br", "img", "hr"})


@dataclass(frozen=True, slots=True)
class Element:
    """One start tag."""

    name: str
    attributes: dict[str, str | None]


@dataclass(slots=True)
class HtmlPage:
    """Elements of a page in their order, its text, and what is not well formed."""

    elements: list[Element] = field(default_factory=list)
    text: str = ""
    faults: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[Element]:
        """Return the elements of a name."""
        return [element for element in self.elements if element.name == name]

    def of_class(self, name: str) -> list[Element]:
        """Return the elements of a class."""
        return [e for e in self.elements if name in (e.attributes.get("class") or "").split()]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = HtmlPage()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.page.faults.append(f"an attribute of {tag} stands twice")
        self.page.elements.append(Element(tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.page.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.page.text += data

    def close(self) -> None:
        super().close()
        self.page.faults += [f"<{tag}> is never closed" for tag in self._open]


def read_html(text: str) -> HtmlPage:
    """Return a page as it is read."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    ids = [value for e in reader.page.elements if (value := e.attributes.get("id"))]
    if len(set(ids)) < len(ids):
        reader.page.faults.append("an id stands twice")
    return reader.page
