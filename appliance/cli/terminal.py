"""Output streams: colour, width, and substitutes for a terminal without UTF-8.

All output of a command passes here, at last, whoever wrote its text: what a terminal would obey is taken out, apart
from the styles of `Terminal.paint` and the constant sequences of `Terminal.draw`.
"""

from __future__ import annotations

import os
import sys

from appliance.model.plain_text import plain
from appliance.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Final, TextIO

_ASCII: Final = str.maketrans(
    {
        "●": "*",
        "○": "-",
        "⊘": "x",
        "◐": "~",
        "▲": "!",
        "▼": "!",
        "✓": "+",
        "✗": "!",
        "↩": "<",
        "·": "-",
        "→": "->",
        "…": "...",
        "≈": "~",
        "—": "-",
        "⚠": "!",
        "−": "-",  # noqa: RUF001 - a minus sign
        "±": "+-",
        "▁": "_",
        "▂": ".",
        "▃": ":",
        "▄": ";",
        "▅": "=",
        "▆": "+",
        "▇": "*",
        "█": "#",
        "°": "",
    }
)
_OWN_STYLE: Final = r"(\x1b\[(?:0|1|2|31|32|33|97;40)m)"
"""Sequences of `Terminal.paint`, with each `Style`."""
_LINES: Final = "\n\t"
_WIDTH: Final = 80
"""Width where the terminal's is unknown."""
_MOST_UNIT: Final = 0xFFFF
"""Largest code of a character that JSON escapes as one unit of UTF-16."""
_LONGEST_WIDTH: Final = 6
"""Digits from which on a width is no width."""


class Style:
    """Styles as SGR parameters (ECMA-48)."""

    PLAIN: Final = ""
    BOLD: Final = "1"
    DIM: Final = "2"
    RED: Final = "31"
    GREEN: Final = "32"
    YELLOW: Final = "33"
    WHITE_ON_BLACK: Final = "97;40"


class Terminal(Record):
    """Terminal, file or pipe: one of the two output streams."""

    stream: TextIO
    colour: bool = False
    unicode: bool = True
    interactive: bool = False
    """Whether the stream is a terminal, on which a line may be redrawn."""
    columns: int | None = None
    """Width in columns; None: read from the stream each time, since people turn their phones."""

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str]) -> Terminal:
        """Return the abilities of `stream`. NO_COLOR (no-color.org), TERM=dumb and COLUMNS are respected."""
        tty = stream.isatty()
        dumb = environment.get("TERM", "dumb") == "dumb"
        plain = tty and _is_c_locale(environment)
        return cls(
            stream=stream,
            colour=tty and not dumb and not environment.get("NO_COLOR"),
            unicode=_knows_unicode(stream) and not plain,
            interactive=tty and not dumb,
            columns=_columns(environment),
        )

    def paint(self, text: str, style: str) -> str:
        """Return `text` in `style`, where there is colour."""
        if not self.colour or not style or not text:
            return text
        return f"\x1b[{style}m{text}\x1b[0m"

    def write(self, text: str) -> None:
        """Write `text` at once, in characters that this stream can show."""
        self.stream.write(self.shown(text))
        self.stream.flush()

    def content(self, text: str) -> None:
        """Write the text of a file: as it is, unless a person reads it on a terminal."""
        if self.stream.isatty():
            self.write(text)
        else:
            self.stream.write(text)

    def draw(self, before: str, text: str = "", after: str = "") -> None:
        """Write `text` between two constant sequences that move the cursor or erase."""
        self.stream.write(f"{before}{self.shown(text)}{after}")
        self.stream.flush()

    def shown(self, text: str) -> str:
        """Return `text` in characters that this stream can show, and that no terminal obeys."""
        text = self._harmless(text)
        return text if self.unicode else self._plain(text)

    def _harmless(self, text: str) -> str:
        if not self.colour or "\x1b" not in text:
            return plain(text, kept=_LINES)
        import re  # noqa: PLC0415 - for painted lines

        parts = re.split(_OWN_STYLE, text)
        parts[::2] = [plain(part, kept=_LINES) for part in parts[::2]]
        return "".join(parts)

    def line(self, text: str = "", *, hang: int | None = None) -> None:
        """Write one line; on a terminal, as many as it takes to keep every word whole.

        Args:
            text: The line.
            hang: Spaces before the lines that continue it; None: two more than it begins with.
        """
        shown = self.shown(text.rstrip())
        self.stream.write("".join(f"{part}\n" for part in self._folded(shown, hang)))
        self.stream.flush()

    def _folded(self, text: str, hang: int | None) -> Iterable[str]:
        if not self.interactive or len(text) <= (columns := self.width()):
            return [text]
        from appliance.cli.cells import folded  # noqa: PLC0415 - for long lines on terminals only

        return [line for part in text.split("\n") for line in folded(part, columns, hang=hang)]

    def verbatim(self, text: str) -> None:
        """Write JSON for machines: lines are as long as they are, on a terminal too."""
        self.write(f"{json_text(text)}\n")

    def document(self, value: object, *, indent: int | None = 2) -> None:
        """Write one document of JSON; dataclasses and Structs are objects of their fields."""
        import json  # noqa: PLC0415 - 2.5 ms, and only --json needs it

        from msgspec import to_builtins  # noqa: PLC0415

        self.verbatim(json.dumps(value, indent=indent, ensure_ascii=False, default=to_builtins))

    def width(self) -> int:
        """Return the terminal's present width in columns."""
        if self.columns is not None:
            return self.columns
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or _WIDTH
        except (OSError, ValueError):
            return _WIDTH

    def _plain(self, text: str) -> str:
        return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def json_text(text: str) -> str:
    """Return JSON, or a part of it, with an escape of JSON for each character that a terminal may obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t\r" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    units = (code,) if code <= _MOST_UNIT else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))
    return "".join(f"\\u{unit:04x}" for unit in units)


def _is_c_locale(environment: Mapping[str, str]) -> bool:
    """Tell whether a locale was chosen whose terminal shows ASCII; Python takes it for UTF-8."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next((name for name in names if name), "") in {"C", "POSIX"}


def _columns(environment: Mapping[str, str]) -> int | None:
    """Return the width that a person chose for all programs (POSIX, 8.3); None: the terminal's own."""
    text = environment.get("COLUMNS", "")
    return int(text) if text.isdecimal() and len(text) < _LONGEST_WIDTH and int(text) else None


def _knows_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")


class Streams(Record):
    """Streams of a command: data on stdout, progress and errors on stderr."""

    out: Terminal
    err: Terminal


def standard_streams() -> Streams:
    """Return this process's streams."""
    return Streams(out=Terminal.of(sys.stdout, os.environ), err=Terminal.of(sys.stderr, os.environ))
