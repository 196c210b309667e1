"""Whether a file has changed since it was read. Standard library only."""

import os
from pathlib import Path

Stamp = tuple[int, int, int, int]


def stamp(path: Path) -> Stamp | None:
    """What changes with a file, also when it is replaced; None: it cannot be seen."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - once a second, and pathlib adds nothing
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size
