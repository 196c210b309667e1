"""Terminal that shows what live screens send, and refuses anything else."""

import re
from collections.abc import Sequence
from typing import Final

from appliance.cli.live.full_screen import CLEAR

_WRITTEN: Final = re.compile(r"\x1b\[(\d+);1H((?:[^\x1b]|\x1b\[[0-9;]*m)*)(\x1b\[K)?")
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


class ScreenEmulator:
    """Lines of a screen whose contents are unknown at first."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.lines = ["?" * columns] * rows

    def write(self, text: str) -> None:
        """Take what a difference of screens sends."""
        while text:
            if text.startswith(CLEAR):
                self.lines = [""] * len(self.lines)
                text = text.removeprefix(CLEAR)
                continue
            found = _WRITTEN.match(text)
            assert found is not None, text
            row, line = int(found[1]) - 1, found[2]
            # Without an erasure what stood there goes on behind the new text.
            is_whole = found[3] is not None or len(line) >= self.columns
            self.lines[row] = line if is_whole else f"{line}<old>"
            text = text[found.end() :]


def shown_lines(written: str) -> Sequence[str]:
    """Return the lines, without styles, of all that a live command has written so far."""
    lines: dict[int, str] = {}
    painted = written.rpartition(CLEAR)[2]
    for found in _WRITTEN.finditer(painted):
        lines[int(found[1])] = _STYLE.sub("", found[2])
    return [lines.get(row, "") for row in range(1, max(lines, default=0) + 1)]
