"""An engine that takes anything, for `hostile`: ``python -m tests.bench.sink PORT``.

It reads a request of any size and answers at once, but for three paths: one that is never
answered, one that streams without end, and one that changes the protocol.
"""

import asyncio
import sys
from typing import Final, cast

import uvloop

SILENT: Final = "/v1/silent"
ENDLESS: Final = "/v1/endless"
SOCKET: Final = "/v1/socket"

_ANSWER: Final = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'
)
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_EVENTS: Final = b"10000\r\n%b\r\n" % (b"data: 0\n\n".ljust(65_536, b"."))
_UPGRADED: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
)


class Sink(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing = 0
        self._streams = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Count a body; answer when it is whole."""
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            lines = self._head[:end].lower().split(b"\r\n")
            lengths = [line for line in lines if line.startswith(b"content-length:")]
            length = int(lengths[0].split(b":")[1]) if lengths else 0
            self._missing = length - (len(self._head) - end - 4)
        if self._missing <= 0:
            self._answer()

    def _answer(self) -> None:
        path = self._head.split(b" ", 2)[1].decode()
        self._head = b""
        self._missing = 0
        if self._transport is None or path == SILENT:
            return
        if path == ENDLESS:
            self._transport.write(_STREAM)
            self._streams = True
            self._stream()
        else:
            self._transport.write(_UPGRADED if path == SOCKET else _ANSWER)

    def _stream(self) -> None:
        """Send events for as long as they are taken."""
        if self._transport is not None and not self._transport.is_closing() and self._streams:
            self._transport.write(_EVENTS)
            asyncio.get_running_loop().call_later(0.02, self._stream)

    def pause_writing(self) -> None:
        """Stop writing, since no reader takes the bytes."""
        self._streams = False

    def resume_writing(self) -> None:
        """Write again."""
        self._streams = True
        self._stream()


async def serve(port: int) -> None:
    """Take connections for ever."""
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
