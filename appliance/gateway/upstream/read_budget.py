"""Budget of the bytes that engines' connections hand on in one turn of the event loop.

libuv reads every connection that has bytes before it goes on, up to a thousand in one turn: with
chunks of 64 KiB and more, each of which takes 0.3 ms to be parsed and written, a turn took 140 ms
for 300 streams, and a new connection needs five turns until its response. Large chunks beyond the
budget wait, with their connections unread, and are handed on in the order of their arrival in the
next turns. Small ones, as tokens come in, are not counted.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

COUNTED_BYTES: Final = 16 << 10
"""Size from which a chunk is counted."""
_TURN_BYTES: Final = 1 << 20
"""Bytes in a turn: 5 ms."""


class LateReader(Protocol):
    """Connection whose bytes wait for their turn."""

    def read_late(self) -> None:
        """Hand the waiting bytes on, and read again; a guarded callback."""
        ...


class ReadBudget:
    """Budget of all connections of one event loop."""

    __slots__ = ("_late", "_left")

    def __init__(self) -> None:
        self._left = _TURN_BYTES
        self._late: deque[tuple[LateReader, int]] = deque()
        """Connections with waiting bytes, and how many they have."""

    def spend(self, size: int) -> bool:
        """Count a chunk; False: it has to wait."""
        if self._late or self._left <= 0:
            return False
        if self._left == _TURN_BYTES:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._left -= size
        return True

    def wait(self, reader: LateReader, size: int) -> None:
        """Have `read_late` called in one of the next turns."""
        self._late.append((reader, size))

    def _begin_turn(self) -> None:
        self._left = _TURN_BYTES
        late = self._late
        if late:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        while late and self._left > 0:
            reader, size = late.popleft()
            self._left -= size
            reader.read_late()
