"""Limits of the clients of a unix socket: places, time, memory."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.wire.unix_server import (
    ASSURED,
    Bounds,
    ConnectionQuota,
    Converse,
    peer_of,
    serve_unix,
    until_left,
)
from tests.waiting import settle

REFUSAL = b"full\n"
BOUNDS = Bounds(line_bytes=1024, per_user=2, total=4)
PLACES = 4 if os.geteuid() == 0 else 2
"""Root has all of them."""


@asynccontextmanager
async def served(path: Path, converse: Converse) -> AsyncIterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        serving = asyncio.create_task(serve_unix(listener, converse, BOUNDS, refusal=REFUSAL))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ValueError):
        writer.write(await reader.readline())


async def ask(path: Path, line: bytes = b"hello\n") -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    try:
        return await reader.read()
    except ConnectionError:  # it was sent away with the line unread
        return REFUSAL
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_more_connections_than_places_are_told_so(tmp_path: Path) -> None:
    """A client that finds no place is told so at once, and is served once a place is free."""
    path = tmp_path / "socket"
    async with served(path, echo):
        crowd = [await asyncio.open_unix_connection(path) for _ in range(PLACES)]
        reader, late = await asyncio.open_unix_connection(path)
        assert await reader.read() == REFUSAL
        late.close()
        for _, writer in crowd:
            writer.close()
        while await ask(path) == REFUSAL:
            await asyncio.sleep(0)
        assert await ask(path) == b"hello\n"


async def test_a_line_without_an_end_is_bounded(tmp_path: Path) -> None:
    """The server takes twice the longest line and what one read brings, and no more."""
    path, seen, over = tmp_path / "socket", asyncio.Event(), asyncio.Event()

    async def wait(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        seen.set()
        await over.wait()

    async with served(path, wait):
        with socket.socket(socket.AF_UNIX) as flood:
            flood.connect(str(path))
            flood.setblocking(False)  # noqa: FBT003
            await seen.wait()
            sent = 0
            for _ in range(200):
                with contextlib.suppress(BlockingIOError):
                    sent += flood.send(b"x" * 65536)
                await asyncio.sleep(0)
            assert sent < 2 << 20
        over.set()


async def test_a_client_that_left_is_noticed(tmp_path: Path) -> None:
    """Also while nothing is sent to it; one that only sends no more is still there."""
    path, left = tmp_path / "socket", asyncio.Event()

    async def follow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert peer_of(writer)[1] == os.geteuid()
        await until_left(reader, writer)
        left.set()

    async with served(path, follow):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(path))
        client.sendall(b"more than was asked for")
        client.shutdown(socket.SHUT_WR)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await left.wait()
        client.close()
        await left.wait()


# --- shares of the places -----------------------------------------------------------

ROOT, ANA, BOB = 0, 1000, 1001


def taken(quota: ConnectionQuota, uid: int) -> int:
    """Connections that a user gets who asks without an end."""
    count = 0
    while count < 1000 and quota.admit(uid):
        count += 1
    return count


def test_a_user_has_a_cap_and_a_place_comes_back() -> None:
    """Connections beyond `per_user` are refused until one of that user's connections has ended."""
    quota = ConnectionQuota(per_user=64, total=256)
    assert taken(quota, ANA) == 64
    assert quota.leave(ANA) == 63
    assert quota.admit(ANA)
    assert not quota.admit(ANA)


def test_a_newcomer_is_served_beside_many_greedy_users() -> None:
    """However many users take all they can get, others have a few connections each, and so has root."""
    quota = ConnectionQuota(per_user=64, total=256)
    greedy = [taken(quota, uid) for uid in range(2000, 2010)]
    assert greedy[:3] == [64, 64, 32]
    assert set(greedy[3:]) == {ASSURED}
    assert quota.admit(BOB)
    assert taken(quota, ROOT) >= 32


def test_root_takes_every_place_and_gives_it_back() -> None:
    """Root may take every place, and the places that root leaves are free for every user."""
    quota = ConnectionQuota(per_user=2, total=16)
    assert taken(quota, ROOT) == 16
    assert not quota.admit(ANA)
    for left in range(15, -1, -1):
        assert quota.leave(ROOT) == left
    assert taken(quota, ANA) == 2


async def test_a_server_without_clients_ends(tmp_path: Path) -> None:
    """The server returns once no client has come for its time, not while one is connected."""
    path, go = tmp_path / "socket", asyncio.Event()

    async def wait(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(b"done\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        serving = asyncio.create_task(
            serve_unix(listener.dup(), wait, BOUNDS, refusal=REFUSAL, idle_s=0.05)
        )
        await asyncio.sleep(0)
        asked = asyncio.create_task(ask(path))
        await asyncio.sleep(0.2)  # real time: four times what it waits for clients
        assert not serving.done()
        go.set()
        assert await asked == b"done\n"
        async with asyncio.timeout(30):
            await serving
        # The socket is still there, and a client waits for whoever serves it next.
        reader, writer = await asyncio.open_unix_connection(path)
        writer.close()
        await reader.read()


async def test_no_client_is_lost_when_a_server_ends(tmp_path: Path) -> None:
    """A client that comes in the moment of the end is answered by this server or by the next one."""
    path = tmp_path / "socket"

    async def serve_again() -> None:
        while True:
            async with asyncio.timeout(30):
                await serve_unix(listener.dup(), echo, BOUNDS, refusal=REFUSAL, idle_s=1e-9)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        servers = asyncio.create_task(serve_again())
        for turn in range(200):
            await settle(turn % 40)
            async with asyncio.timeout(30):
                assert await ask(path) == b"hello\n"
        servers.cancel()
        await asyncio.gather(servers, return_exceptions=True)
