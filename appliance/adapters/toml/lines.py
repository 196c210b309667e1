"""Lines of the keys in a TOML document."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from appliance.adapters.toml.tokens import Token, tokens

Where = tuple[str | int, ...]
"""Keys from the top of the document down; integers are indexes of an array."""


def key_lines(text: str) -> Mapping[Where, int]:
    """Return the line of every key and array element of a valid document; the first of two counts."""
    reader = _Reader(rest=list(reversed(list(tokens(text)))))
    try:
        reader.document()
    except IndexError:
        return reader.lines  # not valid TOML: the lines found so far
    return reader.lines


@dataclass(slots=True)
class _Reader:
    rest: list[Token]
    """Tokens still to be read, the next one last."""
    lines: dict[Where, int] = field(default_factory=dict)

    def document(self) -> None:
        header: Where = ()
        while self.rest:
            token = self.rest[-1]
            if token.text == "[":
                header = self._header()
            elif token.kind in {"bare", "string"}:
                self._pair(header)
            else:
                self.rest.pop()

    def _header(self) -> Where:
        while self.rest[-1].text == "[":
            self.rest.pop()
        return self._key(())

    def _pair(self, parent: Where) -> None:
        where = self._key(parent)
        while self.rest[-1].text == "=":
            self.rest.pop()
        self._value(where)

    def _key(self, parent: Where) -> Where:
        """Read ``a."b".c``; every prefix of the key is a table that begins here."""
        where = parent
        while self.rest[-1].kind in {"bare", "string"} or self.rest[-1].text == ".":
            token = self.rest.pop()
            if token.text != ".":
                where = (*where, _name(token))
                self.lines.setdefault(where, token.line)
        return where

    def _value(self, where: Where) -> None:
        match self.rest[-1].text:
            case "[":
                self._array(where)
            case "{":
                self._inline_table(where)
            case _:
                self._scalar()

    def _array(self, where: Where) -> None:
        self.rest.pop()
        place = 0
        for token in self._until("]"):
            if token.text == ",":
                self.rest.pop()
                place += 1
                continue
            self.lines.setdefault((*where, place), token.line)
            self._value((*where, place))

    def _inline_table(self, where: Where) -> None:
        self.rest.pop()
        for token in self._until("}"):
            if token.kind in {"bare", "string"}:
                self._pair(where)
            else:
                self.rest.pop()

    def _until(self, end: str) -> Iterator[Token]:
        """Yield the next tokens without line ends, up to `end`, which is consumed."""
        while self.rest[-1].text != end:
            if self.rest[-1].kind == "newline":
                self.rest.pop()
            else:
                yield self.rest[-1]
        self.rest.pop()

    def _scalar(self) -> None:
        """Read a string, a number or a date; numbers contain dots."""
        self.rest.pop()
        while self.rest and (self.rest[-1].kind in {"bare", "other"} or self.rest[-1].text == "."):
            self.rest.pop()


def _name(token: Token) -> str:
    if token.kind != "string":
        return token.text
    try:
        return next(iter(tomllib.loads(f"{token.text} = 0")))
    except (tomllib.TOMLDecodeError, StopIteration):
        return token.text
