"""Bounded reading of a file's header, from its start."""

import os
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final, Self

from appliance.adapters.files.regular import OddFileError, open_regular

LARGEST_HEADER_BYTES: Final = 64 << 20
"""Largest header that is read: four times the header of the largest vocabularies."""
_FIRST_READ_BYTES: Final = 4 << 20
_SMALLEST_READ_BYTES: Final = 1 << 20


class HeaderError(Exception):
    """Header that does not follow its format; `str()` is a phrase."""


class EndOfFileError(HeaderError):
    """File that ends before its header does."""


class BoundedFile:
    """Beginning of a regular file, as far as its header.

    The file is read, not mapped: a mapped file that is cut short ends its reader with SIGBUS.

    Raises:
        OSError: it cannot be opened.
        HeaderError: it is no regular file.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = open_regular(path, follow_links=True)
        except OddFileError as error:
            raise HeaderError(f"{path.name} is no file") from error
        self.file_bytes: int = os.fstat(self._descriptor).st_size
        self.buffer: bytearray = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def need(self, end: int) -> None:
        """Read until `buffer` has at least the first `end` bytes. Raises `HeaderError`."""
        have = len(self.buffer)
        if end <= have:
            return
        if end > self.file_bytes:
            raise EndOfFileError("it ends within its header")
        if end > LARGEST_HEADER_BYTES:
            raise HeaderError(f"its header is larger than {LARGEST_HEADER_BYTES >> 20} MiB")
        wanted = min(max(end, 2 * have, _FIRST_READ_BYTES), LARGEST_HEADER_BYTES)
        while len(self.buffer) < wanted:
            size = max(wanted - len(self.buffer), _SMALLEST_READ_BYTES)
            part = os.pread(self._descriptor, size, len(self.buffer))
            if not part:
                break
            self.buffer += part
        if len(self.buffer) < end:
            raise EndOfFileError("it ends within its header")

    def number(self, layout: Struct, at: int) -> int:
        """Return the whole number at a place. Raises `HeaderError`."""
        self.need(at + layout.size)
        value: int = layout.unpack_from(self.buffer, at)[0]
        return value
