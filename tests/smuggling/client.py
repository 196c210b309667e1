"""A client that sends bytes as they are, in pieces, and reads answers without trusting them."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

WAIT_S = 5.0
_PIECE = 1 << 16

Cut = Callable[[bytes], Iterator[bytes]]
"""A way to cut bytes into pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer; interim ones are left out."""

    status: int
    body: bytes
    whole: bool
    """Whether the response has its proper end."""


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, pieces: Iterator[bytes]) -> None:
        """Send; each piece is on its way before the next one. The gateway may hang up earlier."""
        with contextlib.suppress(OSError):
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()
                # The gateway runs in this loop as well: it gets a turn to read the piece.
                await asyncio.sleep(0)
                await asyncio.sleep(0)

    def hang_up(self) -> None:
        """No more from this side."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    async def answer(self, *, head_only: bool = False) -> Said | None:
        """The next answer; None: the connection was closed without any."""
        async with asyncio.timeout(WAIT_S):
            status = 100
            head = b""
            while 100 <= status < 200 and status != 101:
                head = await self._until(b"\r\n\r\n")
                if not head:
                    return None
                status = int(head.split(b" ", 2)[1])
            if head_only or status in (101, 204, 304):
                return Said(status=status, body=b"", whole=True)
            body, whole = await self._body(head.lower())
            return Said(status=status, body=body, whole=whole)

    async def rest(self) -> bytes:
        """Return all bytes until the connection is closed."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionResetError):
                return await self._reader.read()
        return b""

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _body(self, head: bytes) -> tuple[bytes, bool]:
        if b"\r\ntransfer-encoding: chunked\r\n" in head:
            return await self._chunks()
        _, found, rest = head.partition(b"\r\ncontent-length: ")
        if not found:
            return await self.rest(), True
        length = int(rest.split(b"\r\n", 1)[0])
        body = await self._exactly(length)
        return body, len(body) == length

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        while (line := await self._until(b"\r\n")).endswith(b"\r\n"):
            size = int(line[:-2], 16)
            piece = await self._exactly(size + 2)
            if len(piece) < size + 2:
                return body + piece, False
            assert piece.endswith(b"\r\n")
            if size == 0:
                return body, True
            body += piece[:-2]
        return body, False

    async def _exactly(self, size: int) -> bytes:
        return await _as_far_as_it_came(self._reader.readexactly(size))

    async def _until(self, end: bytes) -> bytes:
        """To that end; less: the connection was closed before."""
        return await _as_far_as_it_came(self._reader.readuntil(end))


async def _as_far_as_it_came(reading: Awaitable[bytes]) -> bytes:
    try:
        return await reading
    except asyncio.IncompleteReadError as error:
        return error.partial
    except ConnectionResetError:
        return b""


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    """A client of its own."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
    try:
        yield client
    finally:
        await client.close()


def at_once(raw: bytes) -> Iterator[bytes]:
    """Send all bytes in one piece."""
    if raw:
        yield raw


def by_bytes(raw: bytes) -> Iterator[bytes]:
    """Byte by byte; what is very long, only at both of its ends."""
    if len(raw) <= 4 * 300:
        yield from (raw[at : at + 1] for at in range(len(raw)))
        return
    yield from by_bytes(raw[:300])
    yield raw[300:-300]
    yield from by_bytes(raw[-300:])


def at_random(raw: bytes) -> Iterator[bytes]:
    """Send random pieces, the same ones for the same bytes."""
    chance = random.Random(raw)  # noqa: S311
    at = 0
    while at < len(raw):
        size = chance.choice((1, 2, 3, 7, 30, 200, _PIECE))
        yield raw[at : at + size]
        at += size


CUTS: tuple[Cut, ...] = (at_once, by_bytes, at_random)
