r"""Search for a regular expression of an operator in a text, in time proportional to the length of the text.

Python's `re` can take exponential time where an expression meets an unlucky answer, RE2 never does. The
syntax is the common part of both: literals, ``.``, ``[a-z]``, ``[^a-z]``, ``\d \w \s`` and their opposites,
``\n \r \t``, groups ``( )`` and ``(?: )``, ``|``, ``* + ? {m} {m,} {m,n}``, ``^`` and ``$`` for the ends of
the whole text, and ``(?i)`` at the beginning. What else either of them knows is refused. ``\d \w \s`` are
those of Unicode, as in `re`, so they are spelled out for RE2, whose own are those of ASCII.
"""

import re
from typing import Final

import re2

_MOST_CHARACTERS: Final = 500
_MOST_REASON: Final = 60
_IGNORE_CASE: Final = "(?i)"
_PIECE: Final = re.compile(
    r"\[(\^?\]?(?:\\.|[^\\\]])*)\]"  # 1: content of a set
    r"|\\(.?)"  # 2: escaped character
    r"|\((\?(?!:))"  # 3: group of another kind
    r"|(\{)(?!\d{1,4}(?:,\d{0,4})?\})",  # 4: "{" that repeats nothing
    re.DOTALL,
)
_PIECE_OF_SET: Final = re.compile(r"\\(.?)(-?)|\[", re.DOTALL)

_LETTERS: Final = r"\p{L}\p{N}_"
_OTHERS: Final = (
    r"\p{M}\p{S}\p{Z}\p{C}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}"
    r"\x{203f}\x{2040}\x{2054}\x{fe33}\x{fe34}\x{fe4d}-\x{fe4f}\x{ff3f}"
)
"""Categories besides those of `_LETTERS`, and the connectors other than the underscore."""
_BLANKS: Final = (
    r"\t-\r\x1c- \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
_VISIBLE: Final = (
    r"\x00-\x08\x0e-\x1b!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_OPPOSITES: Final = frozenset("DWS")
_IN_SETS: Final = {
    "d": r"\p{Nd}",
    "D": r"\P{Nd}",
    "w": _LETTERS,
    "W": _OTHERS,
    "s": _BLANKS,
    "S": _VISIBLE,
    "n": r"\n",
    "r": r"\r",
    "t": r"\t",
}
"""Escapes of letters, as RE2 has them in a set."""


class PatternError(ValueError):
    """Error for an expression that is malformed, too long, or beyond the syntax; a phrase."""


class TextPattern:
    """Compiled expression. Raises `PatternError`."""

    def __init__(self, expression: str) -> None:
        if len(expression) > _MOST_CHARACTERS:
            raise PatternError(f"longer than {_MOST_CHARACTERS} characters")
        options = re2.Options()
        options.log_errors = False  # standard error is the journal
        options.never_capture = True
        options.case_sensitive = not expression.startswith(_IGNORE_CASE)
        source = _PIECE.sub(_translated, expression.removeprefix(_IGNORE_CASE))
        try:
            self._compiled = re2.compile(_encoded(source), options)
        except re2.error as error:
            raise PatternError(error.args[0].decode(errors="replace")[:_MOST_REASON]) from None

    def is_in(self, text: str) -> bool:
        """Tell whether any part of the text matches."""
        return self._compiled.search(_encoded(text)) is not None


def _translated(piece: re.Match[str]) -> str:
    """Return a part of an expression as RE2 takes it. Raises `PatternError`."""
    content, escaped, group, brace = piece.groups()
    if content is not None:
        return f"[{_PIECE_OF_SET.sub(_translated_in_set, content)}]"
    if group:
        raise PatternError('of groups with "?" only (?: ) is known, and (?i) at the beginning')
    if brace:
        raise PatternError('"{" begins {m}, {m,} or {m,n}')
    if escaped in _OPPOSITES:
        return f"[^{_IN_SETS[escaped.lower()]}]"
    return f"[{_escaped(escaped)}]"


def _translated_in_set(piece: re.Match[str]) -> str:
    if piece[0] == "[":
        return r"\["
    return _escaped(piece[1]) + (r"\-" if piece[2] else "")


def _escaped(character: str) -> str:
    """Return an escaped character or class, as RE2 takes it in a set. Raises `PatternError`."""
    if character in _IN_SETS:
        return _IN_SETS[character]
    if not character or character.isalnum():
        raise PatternError(f'"\\{character}" is not known here')
    return rf"\x{{{ord(character):x}}}"


def _encoded(text: str) -> bytes:
    """Return a text in UTF-8; RE2 knows no lone surrogates, which JSON can have."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
