"""Server of gateway.sock: connections, lines, and answers; the caller carries out commands."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from appliance.wire.gateway import (
    MAX_COMMAND_BYTES,
    CommandRefused,
    GatewayAnswer,
    GatewayCommand,
    decode_command,
    encode_answer,
)
from appliance.wire.server import Bounds, serve_unix

_log = logging.getLogger(__name__)

_BOUNDS: Final = Bounds(line_bytes=MAX_COMMAND_BYTES, per_user=128, total=192)
"""Bounds of the socket: the supervisor has a connection for each command, and each of its own
clients may cause one."""
_FULL: Final = encode_answer(CommandRefused("too many connections"))
_LINE_S: Final = 10.0
"""Time for a line from its first byte to its last, and for an answer to be read."""

Do = Callable[[GatewayCommand], Awaitable[GatewayAnswer]]
"""Function that carries out a command. A `ValueError` that it raises becomes the answer."""


class GatewayServer:
    """Server for the commands of the supervisor. The socket's mode decides who may connect.

    Who may connect is the socket's mode.

    Args:
        do: Does what a command says; cancelled when the supervisor has closed the connection.
    """

    def __init__(self, do: Do) -> None:
        self._do = do
        self._conversations: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, listener: socket.socket) -> None:
        """Answer for ever. The socket's file stays, since systemd owns it.

        Cancelled, it takes no new connections; a command that is being done is still answered.
        """
        await serve_unix(listener, self._connected, _BOUNDS, refusal=_FULL)

    def retire(self) -> None:
        """Take no further command, since another process has taken over.

        What is being done, such as a drain, goes on.
        """
        self._closed = True

    async def close(self) -> None:
        """End every conversation, and begin no other."""
        self._closed = True
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._converse(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        await asyncio.wait({task})

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The next line is awaited during a command, which is the only way to see the client leave.
        upcoming = asyncio.ensure_future(_next_line(reader))
        try:
            while (line := await upcoming) and not self._closed:
                upcoming = asyncio.ensure_future(_next_line(reader))
                answer = await self._unless_left(line, upcoming)
                if answer is None:
                    return
                writer.write(encode_answer(answer))
                async with asyncio.timeout(_LINE_S):
                    await writer.drain()
        except (ConnectionError, ValueError, TimeoutError):
            _log.debug("the supervisor closed its connection")
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    async def _unless_left(
        self, line: bytes, upcoming: asyncio.Future[bytes]
    ) -> GatewayAnswer | CommandRefused | None:
        """Return the answer; None: the client has closed the connection meanwhile."""
        answering = asyncio.create_task(self._answer(line))
        try:
            either: set[asyncio.Future[Any]] = {answering, upcoming}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not await upcoming:
                return None
            return await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, line: bytes) -> GatewayAnswer | CommandRefused:
        try:
            return await self._do(decode_command(line))
        except ValueError as error:
            return CommandRefused(str(error))


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, empty at the end; a line that has begun has to end soon.

    Raises:
        TimeoutError: it did not end in time.
        ValueError: it is too long.
    """
    begun = await reader.read(1)
    if begun in {b"", b"\n"}:
        return begun
    async with asyncio.timeout(_LINE_S):
        return begun + await reader.readline()
