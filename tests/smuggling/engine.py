"""An engine that keeps every byte that it is sent, and says what it is told to say."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence

from tests.smuggling.reference import Read, Reader, Reading, read

Say = Callable[[Read, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request; what is closed stays closed."""


class ScriptedEngine:
    """Listens on a port of its own."""

    def __init__(self) -> None:
        self.say: Say = echo
        self.requests: list[Read] = []
        """Whole ones, as they came, over whatever connection."""
        self._heard: list[bytearray] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Begin to listen; the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forget(self) -> None:
        """Forget what was heard so far, on connections that stay open too."""
        self.requests.clear()
        for heard in self._heard:
            heard.clear()

    def readings(self) -> Sequence[Reading]:
        """Return a server's readings of the bytes of each connection."""
        return [read(bytes(heard)) for heard in self._heard if heard]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._converse(reader, writer)
        writer.close()
        self._tasks.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self._heard.append(heard)
        requests = Reader()
        while data := await reader.read(1 << 16):
            heard += data
            for request in requests.feed(data):
                self.requests.append(request)
                await self.say(request, writer)
                await writer.drain()
            if requests.error or requests.over or writer.is_closing():
                return


async def echo(request: Read, writer: asyncio.StreamWriter) -> None:
    """Tell the client which request it was that has reached the engine."""
    said = {
        "method": request.method.decode("ascii"),
        "target": request.target.decode("ascii"),
        "body": request.body.decode("latin-1"),
    }
    body = b"" if request.method == b"HEAD" else json.dumps(said).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )
