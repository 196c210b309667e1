"""Difference of two screens as what a terminal must be sent.

Only lines that differ are written, each from its beginning, and no more than a given number of bytes at a
time, so that a key is answered also on a slow line. What did not fit is different still, and comes first
the next time. Lines are as `appliance.cli.cells` makes them, no wider than the screen.
"""

from __future__ import annotations

from appliance.cli.cells import width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

CLEAR: Final = "\x1b[H\x1b[2J"
_TO_END: Final = "\x1b[K"


class ScreenLines:
    """Lines that a terminal shows, as far as they were sent."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._columns = 0
        self._first = 0
        """Row that is looked at first."""

    def forget(self) -> None:
        """Take the screen for unknown: the next difference paints all of it."""
        self._shown = []

    def difference(
        self, lines: Sequence[str], *, columns: int, rows: int, most_bytes: int
    ) -> tuple[str, bool]:
        """Return what to send, and whether the screen shows `lines` then.

        Args:
            lines: Lines to show; those from `rows` on are left out.
            columns: Width of the screen now.
            rows: Its height.
            most_bytes: Most bytes to send, apart from the first line.
        """
        pieces: list[str] = []
        if len(self._shown) != rows or self._columns != columns:
            self._shown, self._columns, self._first = [""] * rows, columns, 0
            pieces.append(CLEAR)
        wanted = [*lines[:rows], *[""] * (rows - len(lines))]
        sent_bytes = 0
        for row in (*range(self._first, rows), *range(self._first)):
            if wanted[row] == self._shown[row]:
                continue
            end = "" if width(wanted[row]) >= columns else _TO_END
            piece = f"\x1b[{row + 1};1H{wanted[row]}{end}"
            sent_bytes += len(piece.encode(errors="replace"))
            if sent_bytes > most_bytes and len(pieces) > (pieces[:1] == [CLEAR]):
                self._first = row
                return "".join(pieces), False
            pieces.append(piece)
            self._shown[row] = wanted[row]
        self._first = 0
        return "".join(pieces), True
