"""Tokens of a TOML document, each with its line.

Only as much of TOML as is needed to say on which line a key stands and how deep a document
nests; `tomllib` decides what is valid. Linear in the length of the text: an unterminated string
runs to the end of the text and is never tried again.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

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
    """Word, mark or end of a line."""

    kind: str
    """``string``, ``bare``, ``mark``, ``newline`` or ``other``."""
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
