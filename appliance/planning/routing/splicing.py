"""Splicing of a body: parts change, and the rest of a long body is not copied."""

from collections.abc import Iterable
from typing import Final

LONG_BYTES: Final = 16 << 10
"""Longest body that is scanned in one go, which takes 0.4 ms, and copied to be changed: a copy of
64 MiB takes 40 ms, and the memory of another request. Longer bodies are scanned by `long_json`."""

Cut = tuple[int, int, bytes]
"""Cut of a body: start, end, and the bytes that replace what lies between."""


class Pieces:
    """Long body after its changes: pieces of the original, and the new bytes between them."""

    __slots__ = ("_size", "buffers")

    def __init__(self, buffers: list[bytes | memoryview]) -> None:
        self.buffers = buffers
        """Buffers to be sent one after the other."""
        self._size = sum(map(len, buffers))

    def __len__(self) -> int:
        return self._size

    def __radd__(self, before: bytes) -> bytes:
        """Return a copy in one piece, after other bytes."""
        return before + bytes(self)

    def __bytes__(self) -> bytes:
        """Return a copy in one piece."""
        return b"".join(self.buffers)


def splice(body: bytes, cuts: Iterable[Cut]) -> bytes | Pieces:
    """Return the body with cuts applied, which must not overlap; without cuts the same object."""
    ordered = sorted(cuts)
    if not ordered:
        return body
    long = len(body) > LONG_BYTES
    whole = memoryview(body) if long else body
    pieces: list[bytes | memoryview] = []
    at = 0
    for start, end, new in ordered:
        pieces += (whole[at:start], new)
        at = end
    pieces.append(whole[at:])
    return Pieces(pieces) if long else b"".join(pieces)
