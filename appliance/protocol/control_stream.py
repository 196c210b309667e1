"""Client of the control socket for processes with an event loop: one request, its events.

The synchronous client for the command line is `appliance.protocol.control_client`.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from appliance.domain.errors import PermissionDeniedError, UnreachableError
from appliance.protocol.control import GREETING_S, MAX_LINE_BYTES
from appliance.protocol.control_client import (
    NOT_A_MEMBER,
    NOT_OUR_PROTOCOL,
    NOT_RUNNING,
    check_greeting,
)
from appliance.protocol.control_events import ClosingEvent, ControlEvent, decode_event
from appliance.protocol.control_requests import ControlRequest, encode_request


@asynccontextmanager
async def control_events(
    path: Path, request: ControlRequest, *, greeting_s: float = GREETING_S
) -> AsyncGenerator[AsyncGenerator[ControlEvent, None], None]:
    """Send a request, and give the events after the greeting, the closing one last.

    Only the greeting has a deadline: put `asyncio.timeout` around what may not take long. To leave
    the block is to leave the conversation; an operation that was begun goes on.

    Raises:
        UnreachableError: the supervisor does not answer, speaks something else, or went away
            before its closing event.
        PermissionDeniedError: this user may not open the socket.
        RequestRefusedError: there is no common version of the protocol, or no free connection.
    """
    reader, writer = await _opened(path, request, greeting_s)
    try:
        yield _events(reader)
    finally:
        writer.close()


async def _opened(
    path: Path, request: ControlRequest, within_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection on which the request was sent and the greeting has come."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with contextlib.ExitStack() as failed:
        failed.callback(connection.close)
        try:
            async with asyncio.timeout(within_s):
                await _send(connection, path, encode_request(request))
                reader, writer = await asyncio.open_unix_connection(
                    sock=connection, limit=MAX_LINE_BYTES
                )
                failed.pop_all()
                failed.callback(writer.close)
                check_greeting(await _next_event(reader))
        except TimeoutError as error:
            raise UnreachableError("the supervisor does not answer in time") from error
        failed.pop_all()
    return reader, writer


async def _send(connection: socket.socket, path: Path, line: bytes) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(connection, str(path))
        # A server that refuses the connection says why, whether it read the request or not.
        with contextlib.suppress(BrokenPipeError):
            await loop.sock_sendall(connection, line)
    except PermissionError as error:
        raise PermissionDeniedError(NOT_A_MEMBER) from error
    except OSError as error:
        raise UnreachableError(NOT_RUNNING) from error


async def _events(reader: asyncio.StreamReader) -> AsyncGenerator[ControlEvent, None]:
    while True:
        event = await _next_event(reader)
        yield event
        if isinstance(event, ClosingEvent):
            return


async def _next_event(reader: asyncio.StreamReader) -> ControlEvent:
    try:
        line = await reader.readline()
    except OSError as error:
        raise UnreachableError(NOT_RUNNING) from error
    except ValueError as error:
        raise UnreachableError("the control socket sent a line that is too long") from error
    if not line:
        raise UnreachableError(NOT_RUNNING)
    try:
        return decode_event(line)
    except ValueError as error:
        raise UnreachableError(NOT_OUR_PROTOCOL) from error
