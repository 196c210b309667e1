"""Server of conversations: connections, handshake, one request each, events until a closing one.

What the requests do is the caller's: a `ReadRequest` says what this socket's clients may ask for, an
`Answer` yields the events.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from appliance.model.errors import ApplianceError, BadRequestError
from appliance.model.record import Record
from appliance.wire.acting_request import ActingRequest
from appliance.wire.conversation.codec import (
    MAX_REQUEST_BYTES,
    ErrorEvent,
    HelloEvent,
    SocketTable,
    parse_request,
)
from appliance.wire.conversation.error_kinds import error_kind
from appliance.wire.json_values import Json
from appliance.wire.unix_server import Bounds, Peer, peer_of, serve_unix, until_left

if TYPE_CHECKING:
    from appliance.wire.conversation.codec import EventT, RequestT
else:  # there they are no variables, since the command line does not import typing
    EventT, RequestT = TypeVar("EventT"), TypeVar("RequestT")

_log = logging.getLogger(__name__)

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
