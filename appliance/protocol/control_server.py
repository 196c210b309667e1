"""Server of a control socket: connections, handshake, one request each, events until a closing one.

What the requests do is the caller's: a `ReadRequest` says what this socket's clients may ask for, an
`Answer` yields the events.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Final

from appliance.domain.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    PermissionDeniedError,
    UnknownProfileError,
)
from appliance.protocol.control import MAX_REQUEST_BYTES, ErrorKind
from appliance.protocol.control_events import (
    AcceptedEvent,
    ControlEvent,
    ErrorEvent,
    HelloEvent,
    encode_event,
)
from appliance.protocol.control_requests import (
    ControlRequest,
    Verb,
    common_protocol,
    parse_request,
    verb_of,
)
from appliance.protocol.json_values import Json
from appliance.protocol.unix_server import Bounds, Peer, peer_of, serve_unix, until_left

_log = logging.getLogger(__name__)

_FIRST_LINE_TIMEOUT_S: Final = 10.0
_TAKEN_WITHIN_S: Final = 30.0
"""Time for a client to read an event; after it the event is dropped, and the connection closed."""
_BOUNDS: Final = Bounds(line_bytes=MAX_REQUEST_BYTES, per_user=64, total=256)
"""Bounds of one socket; LimitNOFILE= of the unit fits two such sockets."""
_FULL: Final = encode_event(
    ErrorEvent("busy", "too many connections to the supervisor are open: end some, or try again")
)

ReadRequest = Callable[[Verb, Json, Peer], ControlRequest]
"""Decoder of the arguments of a verb. Raises `PermissionDeniedError` for a request that this socket
does not offer to this peer, `BadRequestError` for one that cannot be read."""
Answer = Callable[[ControlRequest, Peer], AsyncIterator[ControlEvent]]
"""Answer to a request: yields the events after the greeting, the closing one last. Any
`ApplianceError` that it raises becomes the closing event."""


async def serve_control(listener: socket.socket, read: ReadRequest, answer: Answer) -> None:
    """Answer for ever. The socket stays open for the next process (systemd owns it)."""
    await serve_unix(listener, partial(_converse, read, answer), _BOUNDS, refusal=_FULL)


def error_kind(error: ApplianceError) -> ErrorKind:
    """Return the kind of an error, by what the client can do about it."""
    match error:
        case UnknownProfileError():
            return "unknown-profile"
        case BusyError():
            return "busy"
        case PermissionDeniedError():
            return "denied"
        case BadRequestError():
            return "bad-request"
        case _:
            return "failed"


async def _converse(
    read: ReadRequest, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    events = _events(read, answer, reader, peer_of(writer))
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                await _send(writer, event)
                if isinstance(event, AcceptedEvent):
                    # From here on the operation goes on without the client.
                    await _follow(events, reader, writer)
                    return
    except (ConnectionError, asyncio.LimitOverrunError, TimeoutError):
        _log.debug("a client closed its connection")


async def _events(
    read: ReadRequest, answer: Answer, reader: asyncio.StreamReader, peer: Peer
) -> AsyncGenerator[ControlEvent, None]:
    try:
        document = parse_request(await _first_line(reader))
        yield HelloEvent(common_protocol(document))
        request = read(*verb_of(document), peer)
        async for event in answer(request, peer):
            yield event
    except ApplianceError as error:
        yield ErrorEvent(error_kind(error), str(error))


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_FIRST_LINE_TIMEOUT_S):
            return await reader.readline()
    except ValueError as error:
        raise BadRequestError(
            f"the request is too long: {MAX_REQUEST_BYTES} bytes are the most"
        ) from error


async def _follow(
    events: AsyncIterator[ControlEvent], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Send the rest of an operation's events, unless the client leaves before the last one."""
    left = asyncio.ensure_future(until_left(reader, writer))
    sent = asyncio.ensure_future(_send_all(events, writer))
    try:
        await asyncio.wait({sent, left}, return_when=asyncio.FIRST_COMPLETED)
        if sent.done():
            await sent
    finally:
        for task in (sent, left):
            task.cancel()
        await asyncio.gather(sent, left, return_exceptions=True)


async def _send_all(events: AsyncIterator[ControlEvent], writer: asyncio.StreamWriter) -> None:
    async for event in events:
        await _send(writer, event)


async def _send(writer: asyncio.StreamWriter, event: ControlEvent) -> None:
    """Send one event. Raises `TimeoutError` when the client reads nothing."""
    writer.write(encode_event(event))
    if writer.transport.get_write_buffer_size() == 0 and not writer.transport.is_closing():
        return  # the kernel has taken it, as it does with all of twenty events of a switch
    async with asyncio.timeout(_TAKEN_WITHIN_S):
        await writer.drain()
