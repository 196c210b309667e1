"""Lines for the journal, with the priority prefix of sd-daemon(3)."""

from __future__ import annotations

import sys

ERROR = 3
WARNING = 4
INFO = 6


def say(priority: int, text: str) -> None:
    """Write `text`, line by line, to standard error at `priority`."""
    lines = "".join(f"<{priority}>{line}\n" for line in text.splitlines())
    try:
        sys.stderr.write(lines)
        sys.stderr.flush()
    except OSError:
        return  # A journal that is gone must not stop a model from starting.
