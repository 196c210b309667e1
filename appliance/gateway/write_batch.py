"""Batch of the writes of one turn of the event loop, made together at its end.

    direct --every `_DIRECT_WRITES` writes--> batched --`_FEW_TURNS` turns with few writes--> direct

A write in the middle of a turn wakes the process at the other end, which then takes the core, or its
caches, while Python goes on with the next connection. Together at the end of the turn the same
writes cost a quarter less CPU time (docs/explanation/the-gateway.md). Where turns have few writes, as
with a single client, there is nothing to gain, and a write goes out directly.

A transport that is full says so at the end of the turn: a client that sends further requests without
reading may be given one response more than it would else. Writes to one transport stay in their
order. Before a transport is closed after a write in the same turn, `flush` must be called; one that
is aborted drops what waits.
"""

import asyncio
from collections import deque
from typing import Final

from appliance.gateway.callback_guard import end_faulty

_FEW_WRITES: Final = 3
"""Number of writes in a turn from which the batch pays for itself."""
_FEW_TURNS: Final = 8
"""Turns in a row with fewer writes after which they go out directly."""
_DIRECT_WRITES: Final = 256
"""Number of direct writes before turns are looked at again: one is enough to go on directly."""

_LARGE_BYTES: Final = 16 << 10
"""Size from which a write goes out at once: a turn may read as many full buffers of a connection, and
the transport must tell in time that the other side does not read."""


class WriteBatch:
    """Batch of all transports of one event loop."""

    __slots__ = ("_direct", "_few", "pending", "turn")

    def __init__(self) -> None:
        self.pending: deque[tuple[asyncio.WriteTransport, bytes]] = deque()
        """Writes that wait for the end of this turn."""
        self.turn = 0
        """Number of the last turn in which writes waited."""
        self._direct = 0
        """Number of writes that still go out directly; 0: writes are batched."""
        self._few = 0
        """Number of turns with few writes in a row."""

    def write(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Write at the end of this turn of the event loop, or at once."""
        if self._direct:
            self._direct -= 1
            transport.write(data)
            return
        if len(data) > _LARGE_BYTES:
            self.flush()
            transport.write(data)
            return
        pending = self.pending
        if not pending:
            self.turn += 1
            asyncio.get_running_loop().call_soon(self._end_turn)
        pending.append((transport, data))

    def flush(self) -> None:
        """Write now what waits for the end of the turn.

        A transport may call its protocol back, which may write or flush: the order stays.
        """
        pending = self.pending
        while pending:
            transport, data = pending.popleft()
            try:
                if not transport.is_closing():
                    transport.write(data)
            except Exception as error:  # noqa: BLE001 - the guard of the other writes
                end_faulty(error, transport.abort)

    def _end_turn(self) -> None:
        many = len(self.pending) >= _FEW_WRITES
        # Before later writes may go out directly: what waits comes first.
        self.flush()
        self._few = 0 if many else self._few + 1
        if self._few >= _FEW_TURNS:
            # After the direct writes a single such turn is enough.
            self._few = _FEW_TURNS - 1
            self._direct = _DIRECT_WRITES
