"""Client for processes with an event loop: one connection, one request, its events.

The synchronous client for the command line is `appliance.wire.client`.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from appliance.model.errors import PermissionDeniedError, UnreachableError
from appliance.wire.client import check_greeting
from appliance.wire.conversation import (
    GREETING_S,
    MAX_LINE_BYTES,
    ErrorEvent,
    EventT,
    RequestRefusedError,
    RequestT,
    ResultEvent,
    SocketTable,
)
from appliance.wire.json_values import Json


@asynccontextmanager
async def open_conversation(
    table: SocketTable[RequestT, EventT],
    path: Path,
    request: RequestT,
    *,
    greeting_s: float = GREETING_S,
) -> AsyncGenerator[AsyncGenerator[EventT, None], None]:
    """Send a request, and give the events after the greeting, the closing one last.

    Only the greeting has a deadline: put `asyncio.timeout` around what may not take long. To leave
    the block is to leave the conversation; an operation that was begun goes on.

    Raises:
        UnreachableError: the server does not answer, speaks something else, or went away before
            its closing event.
        PermissionDeniedError: this user may not open the socket.
        RequestRefusedError: there is no common version of the protocol, or no free connection.
    """
    reader, writer = await _opened(table, path, table.encode_request(request), greeting_s)
    try:
        yield _events(table, reader)
    finally:
        writer.close()


async def details_of(
    table: SocketTable[RequestT, EventT], path: Path, request: RequestT, *, within_s: float
) -> Json:
    """Return the details of the result that answers a request, whose other events are left out.

    Raises:
        UnreachableError: as `open_conversation`; or no result comes in time.
        PermissionDeniedError: as `open_conversation`.
        RequestRefusedError: the request was refused.
    """
    try:
        async with (
            asyncio.timeout(within_s),
            open_conversation(table, path, request, greeting_s=within_s) as events,
        ):
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, ResultEvent):
                    return event.details
    except TimeoutError as error:
        raise UnreachableError(f"the {table.server} does not answer in time") from error
    raise UnreachableError(table.not_our_protocol)


async def _opened(
    table: SocketTable[Any, Any], path: Path, line: bytes, within_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection on which the request was sent and the greeting has come."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with contextlib.ExitStack() as failed:
        failed.callback(connection.close)
        try:
            async with asyncio.timeout(within_s):
                await _send(table, connection, path, line)
                reader, writer = await asyncio.open_unix_connection(
                    sock=connection, limit=MAX_LINE_BYTES
                )
                failed.pop_all()
                failed.callback(writer.close)
                check_greeting(table, await _next_event(table, reader))
        except TimeoutError as error:
            raise UnreachableError(f"the {table.server} does not answer in time") from error
        failed.pop_all()
    return reader, writer


async def _send(
    table: SocketTable[Any, Any], connection: socket.socket, path: Path, line: bytes
) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(connection, str(path))
        # A server that refuses the connection says why, whether it read the request or not.
        with contextlib.suppress(BrokenPipeError):
            await loop.sock_sendall(connection, line)
    except PermissionError as error:
        raise PermissionDeniedError(table.not_a_member) from error
    except OSError as error:
        raise UnreachableError(table.not_running) from error


async def _events(
    table: SocketTable[RequestT, EventT], reader: asyncio.StreamReader
) -> AsyncGenerator[EventT, None]:
    while True:
        event = await _next_event(table, reader)
        yield event
        if isinstance(event, table.closing):
            return


async def _next_event(table: SocketTable[RequestT, EventT], reader: asyncio.StreamReader) -> EventT:
    try:
        line = await reader.readline()
    except OSError as error:
        raise UnreachableError(table.not_running) from error
    except ValueError as error:
        raise UnreachableError(table.line_too_long) from error
    if not line:
        raise UnreachableError(table.not_running)
    try:
        return table.decode_event(line)
    except ValueError as error:
        raise UnreachableError(table.not_our_protocol) from error
