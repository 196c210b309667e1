"""Server on a unix socket that belongs to systemd, with bounds on the resources of its clients.

Its connections are shared out among the users who may connect:

=================================  ==================================================
a user has, of this socket         one more is admitted while
=================================  ==================================================
fewer than `ASSURED`               any place is free that is not root's
fewer than `per_user`              more places are free than are kept for the former
`per_user`                         never
root, as many as it likes          any place is free
=================================  ==================================================

So one user who takes as many places as possible leaves room for the others, and all users together
leave room for root.
"""

import asyncio
import logging
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_log = logging.getLogger(__name__)

_LAST_BYTES_S: Final = 30.0
"""Time for a client to take its last bytes before the connection ends."""
_LOOK_AGAIN_S: Final = 1.0
_CHUNK_BYTES: Final = 4096
_PASSES_OF_A_CONNECTION: Final = 20
"""Passes of the event loop from the accepted connection to its conversation, and more: four
with asyncio of Python 3.11."""
ASSURED: Final = 4
"""Connections that suffice for a person: a status, an operation that is followed, a look at its
log."""
_ROOT: Final = 0

Converse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on the clients of one socket."""

    line_bytes: int
    """Longest line in bytes; a connection takes about six times as much memory at worst."""
    per_user: int
    """Connections of one user, see `ConnectionQuota`."""
    total: int
    """Connections of all users together."""


class Peer(NamedTuple):
    """Credentials of the process at the other end, as the kernel recorded them at connect time."""

    pid: int
    uid: int
    gid: int


def peer_of(writer: asyncio.StreamWriter) -> Peer:
    """Return the credentials of the peer (SO_PEERCRED, unix(7))."""
    connection = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return Peer(*struct.unpack("3i", raw))


async def serve_unix(
    listener: socket.socket,
    converse: Converse,
    bounds: Bounds,
    *,
    refusal: bytes,
    idle_s: float | None = None,
) -> None:
    """Serve for ever, or until no client has come for a time; the socket's file stays.

    A connection counts until its last byte is taken or its client is gone. Cancelled, no more
    connections are taken; conversations go on.

    Args:
        listener: The listening socket.
        converse: Talks to one client; need not close the connection.
        bounds: What clients may take.
        refusal: What a client is told for which there is no place.
        idle_s: Time without a client after which to return; None: never. A client that comes later is
            left to the next process, which systemd starts on the same socket.
    """
    admission = _Admission(converse, bounds, refusal)
    keep: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    server = await asyncio.start_unix_server(
        admission.connected, sock=listener, limit=bounds.line_bytes, **keep
    )
    async with server:
        try:
            if idle_s is None:
                await asyncio.get_running_loop().create_future()  # Until it is cancelled.
            else:
                await admission.until_idle(idle_s)
        finally:
            # Not close() at once: a closed server drops the connections that it took in the passes before.
            asyncio.get_running_loop().remove_reader(listener)
            for _ in range(_PASSES_OF_A_CONNECTION):
                await asyncio.sleep(0)
        await admission.until_idle(0)


class ConnectionQuota:
    """Quota of open connections by user id.

    Args:
        per_user: The most of one user.
        total: The most of all; an eighth is kept for root, a quarter for users with few.
    """

    def __init__(self, *, per_user: int, total: int) -> None:
        self._per_user = per_user
        self._total = total
        self._open: Counter[int] = Counter()

    def admit(self, uid: int) -> bool:
        """Count one more connection of a user; False: no place is free for it."""
        free = self._total - self._open.total()
        mine = self._open[uid]
        if uid != _ROOT:
            free -= self._total // 8
            free -= self._total // 4 if mine >= ASSURED else 0
        if free <= 0 or (uid != _ROOT and mine >= self._per_user):
            return False
        self._open[uid] += 1
        return True

    def leave(self, uid: int) -> int:
        """Count one connection less; return how many the user still has."""
        self._open[uid] -= 1
        left = self._open[uid]
        if left == 0:
            del self._open[uid]
        return left


class _Admission:
    """Admission of clients to conversations."""

    def __init__(self, converse: Converse, bounds: Bounds, refusal: bytes) -> None:
        self._converse = converse
        self._bounds = bounds
        self._refusal = refusal
        self._quota = ConnectionQuota(per_user=bounds.per_user, total=bounds.total)
        self._refused: set[int] = set()
        """Users whose refusal is already in the log."""
        self._open = 0
        self._one_came = asyncio.Event()
        self._none_is_open = asyncio.Event()
        self._none_is_open.set()

    async def until_idle(self, idle_s: float) -> None:
        """Wait until no connection has been open for `idle_s`, from now on."""
        while True:
            await self._none_is_open.wait()
            self._one_came.clear()
            try:
                async with asyncio.timeout(idle_s):
                    await self._one_came.wait()
            except TimeoutError:
                return

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Converse with a new client, or refuse it."""
        self._open += 1
        self._one_came.set()
        self._none_is_open.clear()
        try:
            await self._admit(reader, writer)
        finally:
            self._open -= 1
            if self._open == 0:
                self._none_is_open.set()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_of(writer).uid
        if not self._quota.admit(uid):
            if uid not in self._refused:
                _log.warning("uid %d has too many connections: further ones are refused", uid)
            self._refused.add(uid)
            # The refusal fits the kernel's buffer or is not sent: nothing waits for such a client.
            writer.write(self._refusal)
            writer.transport.abort()
            return
        try:
            await self._converse(reader, writer)
        finally:
            await _closed(writer)
            if self._quota.leave(uid) == 0:
                self._refused.discard(uid)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close, at the latest when the client has taken nothing for a while."""
    writer.close()
    try:
        async with asyncio.timeout(_LAST_BYTES_S):
            await writer.wait_closed()
    except OSError:  # The client closed the connection; a timeout is the same.
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


async def until_left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the client has closed the connection. What it still sends is dropped.

    One that only sends no more (shutdown(2)) is still there for the answer.
    """
    try:
        while await reader.read(_CHUNK_BYTES):
            pass
    except ConnectionError:
        return
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), 0)
    while True:
        if poll.poll(0):  # POLLHUP is reported whatever is asked for.
            return
        await asyncio.sleep(_LOOK_AGAIN_S)
