"""Text in the cells of a terminal: what can be printed, how wide it is, where it is cut.

Painted text has styles as SGR sequences, as `appliance.cli.terminal` writes them. Texts from outside are
made printable first, so that a name of a process or a log line neither moves the cursor nor sets a style.
"""

from __future__ import annotations

import re
import unicodedata

from appliance.model.plain_text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

_STYLE: Final = re.compile(r"\x1b\[([0-9;]*)m")
_RESET: Final = "\x1b[0m"
_LARGER_PART: Final = re.compile(r"\d (?:d|h|min)$")
"""End of a text that goes on with the smaller part of a duration, such as ``40 s``."""
_WIDE: Final = frozenset("WF")
_MOST_MARKS: Final = 2
"""Marks (accents) kept on one character: more only smear over other lines, and cost bytes."""


def printable(text: str) -> str:
    """Return a text without control characters and without stacks of accents, on one line."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_printable(plain(text)))


def harmless(value: Any) -> Any:
    """Return a JSON value with every text printable, keys too."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): harmless(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [harmless(inner) for inner in value]
    return value


def width(text: str) -> int:
    """Return the cells that a painted text takes."""
    plain = _STYLE.sub("", text)
    return len(plain) if plain.isascii() else sum(map(_cells, plain))


def cut(text: str, columns: int, mark: str = "…") -> str:
    """Return a painted text in at most `columns` cells; `mark` ends one that was cut."""
    characters = list(_painted(text, columns + 1))
    if sum(cells for _, _, cells in characters) <= columns:
        return _joined(characters)
    room = columns - width(mark)
    if room < 0:
        return ""
    while sum(cells for _, _, cells in characters) > room:
        characters.pop()
    return _joined(characters) + mark


def padded(text: str, columns: int, mark: str = "…") -> str:
    """Return a painted text in exactly `columns` cells."""
    short = cut(text, columns, mark)
    return short + " " * (columns - width(short))


def wrapped(text: str, columns: int, *, indent: int = 0, most: int = 20) -> list[str]:
    """Return a painted text on lines of at most `columns` cells, broken at spaces where there are any.

    Args:
        text: The text.
        columns: At least `indent` + 2.
        indent: Spaces before each line but the first.
        most: Most lines; the rest is left out.
    """
    rest = list(_painted(text, columns * most))
    lines: list[str] = []
    while len(lines) < most:
        margin = " " * indent if lines else ""
        end = _fitting(rest, columns - len(margin))
        if end == len(rest):
            lines.append(margin + _joined(rest))
            break
        spaces = [at for at in range(1, end + 1) if rest[at][1] == " " and rest[at - 1][1] != " "]
        end = spaces[-1] if spaces else end
        lines.append(margin + _joined(rest[:end]))
        rest = rest[end:]
        while rest and rest[0][1] == " ":
            rest.pop(0)
    return lines


def folded(text: str, columns: int, *, hang: int | None = None) -> list[str]:
    """Return a painted text on lines of at most `columns` cells, with every word whole.

    Lines break between parts (two spaces, or after a middle dot, in ASCII a hyphen) where that leaves no line
    half empty, else between words, but not within an amount such as ``1 min 40 s``. A word that is wider than
    the screen has a line of its own, for the terminal to wrap: so a path or an address can still be copied.

    Args:
        text: The text, without line breaks.
        columns: Width of the screen.
        hang: Spaces before each line but the first; None: two more than the text begins with.
    """
    characters = list(_painted(text, 2 * len(text)))
    start = next((at for at, (_, c, _) in enumerate(characters) if c != " "), len(characters))
    margin = " " * min(start + 2 if hang is None else hang, columns // 2)
    lines: list[str] = []
    begin = 0
    while True:
        room = columns - (len(margin) if lines else 0)
        end = _fold(characters, begin, max(start, begin), room)
        lines.append((margin if lines else "") + _joined(characters[begin:end]).rstrip(" "))
        begin = end
        while begin < len(characters) and characters[begin][1] == " ":
            begin += 1
        if begin == len(characters):
            return lines


def _fold(characters: list[_Character], begin: int, word: int, room: int) -> int:
    """Return the index at which a line ends that begins at `begin`, with its first word at `word`."""
    used = 0
    between_words = between_parts = None
    for at in range(begin, len(characters)):
        _, character, cells = characters[at]
        if character == " " and at > word and characters[at - 1][1] != " ":
            if used > room:
                # The first word is wider than the line.
                return at
            if between_words is None or not _is_in_amount(characters, at):
                between_words = at
            spaces = at
            while spaces < len(characters) and characters[spaces][1] == " ":
                spaces += 1
            is_end = spaces - at > 1 or _is_dot(characters, at - 1)
            if is_end and used + spaces - at > room // 2:
                between_parts = at
        used += cells
        if used > room and between_words is not None:
            return between_words if between_parts is None else between_parts
    return len(characters)


def _is_in_amount(characters: list[_Character], at: int) -> bool:
    """Tell whether a space is within an amount: behind a number, or between the parts of a duration."""
    if characters[at - 1][1].isdigit():
        return True
    if at + 1 == len(characters) or not characters[at + 1][1].isdigit():
        return False
    before = "".join(character for _, character, _ in characters[max(at - 5, 0) : at])
    return _LARGER_PART.search(before) is not None


def _is_dot(characters: list[_Character], at: int) -> bool:
    """Tell whether a character is a middle dot, or the free-standing hyphen of a terminal without one."""
    character = characters[at][1]
    return character == "·" or (character == "-" and at > 0 and characters[at - 1][1] == " ")


_Character = tuple[str, str, int]
"""Parameters of a style, one character, and the cells that it takes."""


def _painted(text: str, most_cells: int) -> Iterator[_Character]:
    """Yield the characters of a painted text, and no more than one beyond `most_cells`."""
    style, at, used = "", 0, 0
    while at < len(text) and used <= most_cells:
        found = _STYLE.match(text, at) if text[at] == "\x1b" else None
        if found is not None:
            style = "" if found[1] in {"", "0"} else found[1]
            at = found.end()
            continue
        cells = _cells(text[at])
        used += cells
        yield style, text[at], cells
        at += 1


def _fitting(characters: list[_Character], columns: int) -> int:
    """Return the number of characters that fit, at least one."""
    used = 0
    for at, (_, _, cells) in enumerate(characters):
        used += cells
        if used > columns:
            return max(at, 1)
    return len(characters)


def _joined(characters: Iterable[_Character]) -> str:
    pieces: list[str] = []
    last = ""
    for style, character, _ in characters:
        if style != last:
            pieces += [_RESET] if last else []
            pieces += [f"\x1b[{style}m"] if style else []
            last = style
        pieces.append(character)
    return "".join([*pieces, _RESET] if last else pieces)


def _cells(character: str) -> int:
    if character < "\x7f":
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def _printable(text: str) -> Iterator[str]:
    marks = 0
    for character in text:
        marks = marks + 1 if not _cells(character) else 0
        if marks <= _MOST_MARKS:
            yield character
