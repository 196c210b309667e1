"""An engine that says what a test wants, over a real socket."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.fakes.loopback import delivered


@dataclass(frozen=True, slots=True)
class Heard:
    """A request as it came over the wire."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        """The first line."""
        return self.head.partition(b"\r\n")[0]

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        lines = [line.partition(b":") for line in self.head.split(b"\r\n")[1:]]
        return [value.strip() for found, _, value in lines if found.lower() == name.lower()]


class Talk:
    """One connection from the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.number = 0
        """Number of this connection, from 1."""
        self.heard: list[Heard] = []

    async def request(self) -> Heard:
        """The next request; raises IncompleteReadError when there is none."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        heard = Heard(head, b"")
        length = int((heard.header(b"content-length") or [b"0"])[0])
        heard = Heard(head, await self.reader.readexactly(length))
        self.heard.append(heard)
        return heard

    async def say(self, *pieces: bytes) -> None:
        """Send pieces, each in a packet of its own as far as that can be arranged."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def delivered(self) -> None:
        """Wait until the relay has read everything that was said, or has hung up."""
        await delivered(self.writer)

    def reset(self) -> None:
        """Break the connection so that the other side gets an error, not an end."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Talk], Awaitable[None]]


class EngineServer:
    """Runs a script for each connection, until the connection or the server is closed.

    Args:
        script: What it does.
        path: Of a unix socket; None: a loopback port.
    """

    def __init__(self, script: Script, path: str | None = None) -> None:
        self.script = script
        self.path = path
        self.port = 0
        self.talks: list[Talk] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def heard(self) -> list[Heard]:
        """Every request, connection by connection."""
        return [heard for talk in self.talks for heard in talk.heard]

    async def __aenter__(self) -> Self:
        if self.path is not None:
            self._server = await asyncio.start_unix_server(self._serve, self.path)
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop, and close every connection."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for talk in self.talks:
            talk.writer.transport.abort()
            with suppress(ConnectionError):
                await talk.writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = Talk(reader, writer)
        self.talks.append(talk)
        talk.number = len(self.talks)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await self.script(talk)
        finally:
            self._tasks.discard(task)
            writer.close()


def answering(*pieces: bytes) -> Script:
    """Says the same to every request, and keeps the connection."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(*pieces)

    return script


def sized(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """An answer with a length."""
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, len(body), body)


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head of a stream of events."""
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head of another body in chunks."""
LAST = b"0\r\n\r\n"
"""The end of a body in chunks."""


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
