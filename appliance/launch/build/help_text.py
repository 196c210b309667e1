"""Options in the text that a program prints for ``--help``.

An entry begins at the left with the option's names, then a hint at its value, then two blanks or
more and the description, which goes on in lines that are indented further::

    -c,    --ctx-size N                     size of the prompt context
    -fa,   --flash-attn [on|off|auto]       set Flash Attention use
    --draft, --draft-max N                  the argument has been removed. use --spec-draft-n-max

That is the format of llama.cpp (common/arg.cpp, ``common_arg::to_string``, as of November 2026); help
of Python's argparse has the names and hints in the same places.
"""

from __future__ import annotations

import re

from appliance.model.engine_build import is_option
from appliance.wire.build_record import MOST_OPTIONS, MOST_VALUES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAME = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_VALUE = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII)
_DEEPEST_ENTRY = 8
"""Most blanks before an entry: descriptions are indented further."""
_MOST_LINE = 1000
_MOST_DESCRIPTION = 300
_REMOVED = "argument has been removed"


class HelpText:
    """Options in one text."""

    __slots__ = ("options", "removed")

    def __init__(self, text: str) -> None:
        self.options: dict[str, tuple[str, ...] | None] = {}
        """As `appliance.model.engine_build.EngineBuild` has them, as is the next."""
        self.removed: dict[str, str] = {}
        for names, hint, description in _entries(text.splitlines()):
            kept = names[: MOST_OPTIONS - len(self.options) - len(self.removed)]
            before, found, instead = description.partition(_REMOVED)
            if found and not before.strip("the "):
                self.removed.update(dict.fromkeys(kept, instead.partition("(env:")[0].strip(". ")))
            else:
                self.options.update(dict.fromkeys(kept, _values(hint)))


_Entry = tuple[list[str], str, str]


def _entries(lines: Iterable[str]) -> Iterator[_Entry]:
    """Yield names, hint at the value and description of each entry."""
    entry: _Entry | None = None
    for full_line in lines:
        line = full_line[:_MOST_LINE]
        text = line.lstrip(" ")
        begun = _begun(text) if len(line) - len(text) <= _DEEPEST_ENTRY else None
        if begun is not None:
            if entry is not None:
                yield entry
            entry = begun
        elif entry is not None and text and len(entry[2]) < _MOST_DESCRIPTION:
            entry = (entry[0], entry[1], f"{entry[2]} {text.strip()}"[:_MOST_DESCRIPTION].lstrip())
        elif not text:
            if entry is not None:
                yield entry
            entry = None
    if entry is not None:
        yield entry


def _begun(line: str) -> _Entry | None:
    """Return the entry that begins in a line; None: none does."""
    names: list[str] = []
    place = 0
    while match := _NAME.match(line, place):
        if is_option(match[0]):
            names.append(match[0])
        place = match.end()
        if line[place : place + 1] != ",":
            break
        place += 1
        while line[place : place + 1] == " ":
            place += 1
    rest = line[place:]
    if not names or rest[:1] not in {"", " ", "="}:
        return None
    if rest.startswith("  ") or len(rest) <= 1:
        return names, "", rest.strip()
    hint, _, description = rest[1:].partition("  ")
    return names, hint, description.strip()


def _values(hint: str) -> tuple[str, ...] | None:
    """Return the values in a hint such as ``[on|off]``; empty: any value; None: no hint."""
    if not hint:
        return None
    words = hint.strip("[]{}<>()").replace("|", ",").split(",")[: MOST_VALUES + 1]
    listed = 1 < len(words) <= MOST_VALUES and all(map(_VALUE.fullmatch, words))
    return tuple(words) if listed else ()
