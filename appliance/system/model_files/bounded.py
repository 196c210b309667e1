"""Bounded reading of the headers of a model: from the start of each file, within one budget for all files.

Whoever supplies a model decides what its headers say, in how many files. So each byte that is read and
each entry that becomes an object is taken from a budget of the model, and time runs out, too.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final, Self

from appliance.system.files.regular import OddFileError, open_regular

LARGEST_HEADER_BYTES: Final = 32 << 20
"""Largest header that is read: twice the header of the largest vocabularies."""
_MOST_BYTES: Final = 128 << 20
"""Most bytes of a model: two vocabularies, an index of 140,000 weights and 160 further files take half."""
_MOST_ENTRIES: Final = 1 << 22
"""Most entries of a model: a trillion weights in 61 safetensors files have 1.7 million."""
_MOST_SECONDS: Final = 5.0
_FIRST_READ_BYTES: Final = 256 << 10


class HeaderError(Exception):
    """Header that does not follow its format; `str()` is a phrase."""


class BudgetError(HeaderError):
    """Headers of a model that are more than is read of one."""


@dataclass(slots=True, kw_only=True)
class HeaderBudget:
    """Budget for reading the headers of one model, all of its files together."""

    bytes_left: int = _MOST_BYTES
    entries_left: int = _MOST_ENTRIES
    until_s: float = field(default_factory=lambda: time.monotonic() + _MOST_SECONDS)

    def take(self, *, size_bytes: int = 0, entries: int = 0) -> None:
        """Take what is about to be read. Raises `BudgetError`: more than is left, or too late."""
        self.bytes_left -= size_bytes
        self.entries_left -= entries
        if self.bytes_left < 0 or self.entries_left < 0:
            raise BudgetError("its headers are larger than those of any model")
        if time.monotonic() > self.until_s:
            raise BudgetError(f"its headers were not read within {_MOST_SECONDS:.0f} s")


class EndOfFileError(HeaderError):
    """File that ends before its header does."""


class BoundedFile:
    """Beginning of a regular file, as far as its header.

    The file is read, not mapped: a mapped file that is cut short ends its reader with SIGBUS.

    Raises:
        OSError: it cannot be opened.
        HeaderError: it is no regular file.
    """

    def __init__(self, path: Path, budget: HeaderBudget) -> None:
        self.budget = budget
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
        most = min(self.file_bytes, LARGEST_HEADER_BYTES)
        wanted = min(max(end, 2 * have, _FIRST_READ_BYTES), most)
        while len(self.buffer) < wanted:
            size = wanted - len(self.buffer)
            self.budget.take(size_bytes=size)
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
