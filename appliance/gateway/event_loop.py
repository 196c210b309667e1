"""Fair use of the event loop: guards of its callbacks, and the writes and reads of one of its turns.

**Guard.** A fault of the gateway ends one request, in words.

An exception that leaves a callback reaches the event loop, which closes the transport without a
byte for the client and logs a traceback, or ends the timer or the queue that others wait for.
Guarded, it ends the request as `GATEWAY_FAULT` says, or breaks a response off that has begun, and
leaves one line in the log. The line has the exception's type and place, but not its message, which
may quote a body.

A callback of the hottest path has the guard inside, because a ``try`` costs nothing while nothing is
raised; the others are decorated.

**Write batch.** The writes of one turn of the event loop are made together at its end.

    direct --every `_DIRECT_WRITES` writes--> batched --`_FEW_TURNS` turns with few writes--> direct

A write in the middle of a turn wakes the process at the other end, which then takes the core, or its
caches, while Python goes on with the next connection. Together at the end of the turn the same
writes cost a quarter less CPU time (docs/explanation/the-gateway.md). Where turns have few writes, as
with a single client, there is nothing to gain, and a write goes out directly.

A transport that is full says so at the end of the turn: a client that sends further requests without
reading may be given one response more than it would else. Writes to one transport stay in their
order. Before a transport is closed after a write in the same turn, `flush` must be called; one that
is aborted drops what waits.

**Read budget.** The bytes that engines' connections hand on in one turn are bounded.

libuv reads every connection that has bytes before it goes on, up to a thousand in one turn: with
chunks of 64 KiB and more, each of which takes 0.3 ms to be parsed and written, a turn took 140 ms
for 300 streams, and a new connection needs five turns until its response. Large chunks beyond the
budget wait, with their connections unread, and are handed on in the order of their arrival in the
next turns. Small ones, as tokens come in, are not counted.
"""

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable
from functools import wraps
from pathlib import PurePath
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

_log = logging.getLogger(__name__)

# --- guard --------------------------------------------------------------------------------

_FRAMES: Final = 4
"""Innermost frames that the log line names."""


class CallbackOwner(Protocol):
    """Owner of callbacks, and of the request or connection that a fault in one ends."""

    def end_after_fault(self) -> None:
        """Refuse the request with `GATEWAY_FAULT`, or break off what has begun."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


_Owner = TypeVar("_Owner", bound=CallbackOwner)
_Arguments = ParamSpec("_Arguments")
_Callback = Callable[Concatenate[_Owner, _Arguments], None]


def guarded(callback: _Callback[_Owner, _Arguments]) -> _Callback[_Owner, _Arguments]:
    """Decorate a callback so that no exception leaves it."""

    @wraps(callback)
    def call(owner: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            callback(owner, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the guard
            end_faulty(error, owner.end_after_fault, owner.abort)

    return call


def end_faulty(error: Exception, *ends: Callable[[], None]) -> None:
    """Log an unexpected exception, and end what it was raised for.

    Args:
        error: Exception.
        ends: Ways to end it; the first that does not fail itself is taken.
    """
    log_fault(error)
    for end in ends:
        try:
            end()
        except Exception as second:  # noqa: BLE001 - the guard
            log_fault(second)
        else:
            return


def log_fault(error: Exception) -> None:
    """Log an unexpected exception in one line: its type and place, without its message."""
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    _log.error(
        "a fault of the gateway has ended a request: %s at %s; report it with this line",
        type(error).__name__,
        ", ".join(frames[: -_FRAMES - 1 : -1]),
    )


# --- write batch --------------------------------------------------------------------------

_FEW_WRITES: Final = 3
"""Number of writes in a turn from which the batch pays for itself."""
_FEW_TURNS: Final = 8
"""Turns in a row with fewer writes after which they go out directly."""
_DIRECT_WRITES: Final = 256
"""Number of direct writes before turns are looked at again: one is enough to go on directly."""

_LARGE_BYTES: Final = 16 << 10
"""Size from which a write goes out at once: a turn may read as many full buffers of a connection, and
the transport must report in time that the other side does not read."""


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


# --- read budget --------------------------------------------------------------------------

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
