"""Stamps of files: whether one has changed since it was read. Standard library only."""

import os
from pathlib import Path

from appliance.adapters.files.regular import read_small_file

Stamp = tuple[int, int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Return what a change or a replacement of a file alters; None: it cannot be looked at."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - once a second, and pathlib adds nothing
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size


class CachedFile:
    """Content of a small file that is asked for often, read again only when the file has changed.

    Args:
        path: Of the file.
        most_bytes: A larger file is not read.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._read: tuple[Stamp, bytes] | None = None

    def content(self) -> bytes:
        """Return what the file holds now. Raises `OddFileError` or OSError, as `read_small_file`."""
        # Before the reading: a file that is replaced meanwhile is read once more.
        seen = stamp(self._path)
        if self._read is not None and self._read[0] == seen:
            return self._read[1]
        content = read_small_file(self._path, self._most_bytes)
        self._read = None if seen is None else (seen, content)
        return content
