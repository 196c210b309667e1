"""Lines of the keys in a TOML document, and how deep it nests, from its tokens.

Only as much of TOML as is needed for that; `tomllib` decides what is valid. Linear in the length of
the text: an unterminated string runs to the end of the text and is never tried again.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.model.spec import Where

_TOKEN: Final = re.compile(
    r'(?P<string>"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\[^\n])*"?'
    r"|'[^'\n]*'?)"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<mark>[=\[\]{},.])"
    r"|(?P<space>[ \t\r]+)"
    r"|(?P<bare>[^\s=\[\]{},.\"'\#]+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_SILENT: Final = frozenset({"comment", "space"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Token of a TOML document: a word, a mark or the end of a line."""

    kind: str
    """Kind of the token: ``string``, ``bare``, ``mark``, ``newline`` or ``other``."""
    text: str
    line: int
    """Line where the token begins, from 1."""


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of `text`, without comments and spaces."""
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind not in _SILENT:
            yield Token(kind=kind, text=match[0], line=line)
        line += match[0].count("\n")


def too_deep(found: Iterable[Token], limit: int) -> Token | None:
    """Return the first token more than `limit` levels down, in brackets or in a dotted key; None: none.

    `tomllib` needs time that grows with the square of a dotted key's length, and a stack that
    grows with the brackets: both are bounded before it parses the text.
    """
    brackets = dots = 0
    for token in found:
        if token.text in {"[", "{"}:
            brackets += 1
        elif token.text in {"]", "}"}:
            brackets -= 1
        if token.text == ".":
            dots += 1
        elif token.kind in {"mark", "newline"}:
            dots = 0
        if max(brackets, dots) > limit:
            return token
    return None


def key_lines(text: str) -> Mapping[Where, int]:
    """Return the line of every key and array element of a valid document; the first line counts."""
    reader = _TokenReader(rest=list(reversed(list(tokens(text)))))
    try:
        reader.document()
    except IndexError:
        return reader.lines  # Not valid TOML: return the lines found so far.
    return reader.lines


@dataclass(slots=True)
class _TokenReader:
    rest: list[Token]
    """Tokens still to be read, the next one last."""
    lines: dict[Where, int] = field(default_factory=dict)
    _tables: dict[Where, int] = field(default_factory=dict)
    """Number of the last table of each array of tables."""

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
        """Read ``[a.b]``, or ``[[a.b]]``, whose tables are numbered from 0."""
        brackets, line = 0, self.rest[-1].line
        while self.rest[-1].text == "[":
            self.rest.pop()
            brackets += 1
        where = self._key(())
        if brackets == len("[["):
            number = self._tables[where] = self._tables.get(where, -1) + 1
            where = (*where, number)
            self.lines.setdefault(where, line)
        return where

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
