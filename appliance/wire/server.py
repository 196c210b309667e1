"""Server on a unix socket that belongs to systemd: bounds on the resources of its clients, and conversations.

The connections of a socket are shared out among the users who may connect:

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

What the requests of a conversation do is the caller's: a `ReadRequest` says what this socket's clients may ask for,
an `Answer` yields the events.
"""

import asyncio
import contextlib
import logging
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple

from appliance.model.errors import ApplianceError, BadRequestError
from appliance.model.record import Record
from appliance.wire.conversation import (
    MAX_REQUEST_BYTES,
    ActingRequest,
    ErrorEvent,
    EventT,
    HelloEvent,
    RequestT,
    SocketTable,
    error_kind,
    parse_request,
)
from appliance.wire.json_values import Json

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


_FIRST_LINE_TIMEOUT_S: Final = 10.0
_TAKEN_WITHIN_S: Final = 30.0
"""Time for a client to read an event; after it the event is dropped, and the connection closed."""
CROWD: Final = Bounds(line_bytes=MAX_REQUEST_BYTES, per_user=64, total=256)
"""Bounds of a socket for people and their scripts; LimitNOFILE= of its unit has to fit them."""
FEW: Final = Bounds(line_bytes=MAX_REQUEST_BYTES, per_user=16, total=32)
"""Bounds of a socket for other processes of ours."""

ReadRequest = Callable[[str, Json, Peer], RequestT]
"""Decoder of the arguments of a verb. Raises `PermissionDeniedError` for a request that this socket
does not offer to this peer, `BadRequestError` for one that cannot be read."""
Answer = Callable[[RequestT, Peer], AsyncGenerator[EventT, None]]
"""Answer to a request: yields the events after the greeting, the closing one last. Any
`ApplianceError` that it raises becomes the closing event."""


async def serve_conversations(
    table: SocketTable[RequestT, EventT],
    listener: socket.socket,
    read: ReadRequest[RequestT],
    answer: Answer[RequestT, EventT],
    *,
    bounds: Bounds = CROWD,
    taken_within_s: float = _TAKEN_WITHIN_S,
    idle_s: float | None = None,
) -> None:
    """Answer for ever, or until idle. The socket stays open for the next process (systemd owns it).

    Args:
        table: Table of the socket.
        listener: The listening socket.
        read: Decodes a request, or refuses it.
        answer: Yields the events.
        bounds: What clients may take.
        taken_within_s: Time for a client to read an event.
        idle_s: Time without a client after which to return; None: never.
    """
    full = ErrorEvent(
        "busy", f"too many connections to the {table.server} are open: end some, or try again"
    )
    server = _Server(table, read, answer, taken_within_s)
    await serve_unix(
        listener, server.converse, bounds, refusal=table.encode_event(full), idle_s=idle_s
    )


class _Server(Generic[RequestT, EventT]):
    """Server of the clients of one socket."""

    def __init__(
        self,
        table: SocketTable[RequestT, EventT],
        read: ReadRequest[RequestT],
        answer: Answer[RequestT, EventT],
        taken_within_s: float,
    ) -> None:
        self._table = table
        self._read = read
        self._answer = answer
        self._taken_within_s = taken_within_s

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client."""
        peer = peer_of(writer)
        try:
            try:
                document = parse_request(await _first_line(reader))
                await self._send(writer, HelloEvent(self._table.common_protocol(document)))
                request = self._read(*self._table.verb_of(document), peer)
            except ApplianceError as error:
                await self._send(writer, _error(error))
                return
            async with contextlib.aclosing(self._events(request, peer)) as events:
                await self._converse(request, events, reader, writer)
        except (ConnectionError, asyncio.LimitOverrunError, TimeoutError):
            _log.debug("a client closed its connection")

    async def _converse(
        self,
        request: RequestT,
        events: AsyncGenerator[Record, None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        lasting = self._table.until_left
        asked = request.request if isinstance(request, ActingRequest) else request
        if not isinstance(asked, lasting):
            async for event in events:
                await self._send(writer, event)
                if isinstance(event, lasting):
                    break
            else:
                return
        await self._follow(events, reader, writer)

    async def _events(self, request: RequestT, peer: Peer) -> AsyncGenerator[Record, None]:
        try:
            async with contextlib.aclosing(self._answer(request, peer)) as events:
                async for event in events:
                    yield event
        except ApplianceError as error:
            yield _error(error)

    async def _follow(
        self,
        events: AsyncGenerator[Record, None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send the rest of the events, unless the client leaves before the last one."""
        left = asyncio.ensure_future(until_left(reader, writer))
        sent = asyncio.ensure_future(self._send_all(events, writer))
        try:
            await asyncio.wait({sent, left}, return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                await sent
        finally:
            for task in (sent, left):
                task.cancel()
            await asyncio.gather(sent, left, return_exceptions=True)

    async def _send_all(
        self, events: AsyncGenerator[Record, None], writer: asyncio.StreamWriter
    ) -> None:
        async for event in events:
            await self._send(writer, event)

    async def _send(self, writer: asyncio.StreamWriter, event: Record) -> None:
        """Send one event. Raises `TimeoutError` when the client reads nothing."""
        writer.write(self._table.encode_event(event))
        if writer.transport.get_write_buffer_size() == 0 and not writer.transport.is_closing():
            return  # the kernel has taken it, as it does with all of twenty events of a switch
        async with asyncio.timeout(self._taken_within_s):
            await writer.drain()


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_FIRST_LINE_TIMEOUT_S):
            return await reader.readline()
    except ValueError as error:
        raise BadRequestError(
            f"the request is too long: {MAX_REQUEST_BYTES} bytes are the most"
        ) from error


def _error(error: ApplianceError) -> ErrorEvent:
    return ErrorEvent(error_kind(error), str(error))
