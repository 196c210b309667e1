"""Loopback of the tests: facts on delivery between two sockets that other tests rely on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.fakes.loopback import delivered
from tests.waiting import settle

Pair = tuple[asyncio.StreamWriter, asyncio.Transport]


class Other(asyncio.Protocol):
    """Other end of a connection."""

    def __init__(self, ends: asyncio.Queue[asyncio.Transport]) -> None:
        self._ends = ends

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._ends.put_nowait(transport)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A writer, and the other end, which does not read."""
    ends: asyncio.Queue[asyncio.Transport] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Other(ends), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    other = await ends.get()
    await settle()  # asyncio begins to read after connection_made
    other.pause_reading()
    yield writer, other
    writer.transport.abort()
    other.abort()
    server.close()
    await server.wait_closed()
    await settle()


@pytest.mark.parametrize("size", [1, 20_000_000])
async def test_what_is_not_read_is_not_delivered(pair: Pair, size: int) -> None:
    """Bytes wait in the process, in the kernel and at the other end; then they are read."""
    writer, other = pair
    writer.write(bytes(size))
    delivery = asyncio.create_task(delivered(writer))
    await settle(200)
    assert not delivery.done()
    other.resume_reading()
    await delivery


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_is_closed_delivers_no_more(pair: Pair, *, reset: bool) -> None:
    """No test waits for an end that has hung up."""
    writer, other = pair
    if reset:
        writer.write(b"1")
    other.close()
    await settle()
    await delivered(writer)
