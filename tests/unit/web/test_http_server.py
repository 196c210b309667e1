"""HTTP server of the web process, over real sockets: bounds on connections, heads and slow clients."""

import asyncio
import contextlib
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from appliance.model.gateway import is_loopback
from appliance.web.guards import Endpoint
from appliance.web.http_server import (
    MOST_CONNECTIONS,
    MOST_OF_OTHERS,
    BoundedProtocol,
    OwnerOf,
    WebServer,
)
from tests.waiting import PATIENCE_S

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LARGE = 64 << 20


class HastyProtocol(BoundedProtocol):
    """Connections with the deadlines of the real ones, but shorter."""

    head_s = 1.0
    read_within_s = 1.0


@dataclass(frozen=True, slots=True)
class Served:
    """Server that runs, its port, and the connections of its clients."""

    server: WebServer
    port: int
    task: asyncio.Task[None]
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(
        self, host: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, self.port)
        self.opened.append(writer)
        return reader, writer

    async def ask(self, data: bytes) -> bytes:
        """Bytes that the server sends until it closes."""
        reader, writer = await self.connect()
        writer.write(data)
        answer = await reader.read()
        writer.close()
        return answer


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/large":
        await PlainTextResponse("x" * LARGE)(scope, receive, send)
    elif scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            """A client of a stream that is quiet."""
    else:
        await PlainTextResponse("hello")(scope, receive, send)


def one_owner(_client: Endpoint, _server: Endpoint) -> str:
    return "user 1"


def admits_all(_address: str, _port: int) -> bool:
    return True


@asynccontextmanager
async def served(
    idle_s: float = 600.0,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    *,
    admits: Callable[[str, int], bool] = admits_all,
    owner_of: OwnerOf = one_owner,
    host: str | None = None,
) -> AsyncIterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    listeners = [listener]
    if host is not None:
        listeners.append(socket.create_server((host, listener.getsockname()[1])))
    server = WebServer(application, admits, owner_of, protocol)
    task = asyncio.create_task(server.serve_until_idle(listeners, idle_s))
    while not server.started:
        await asyncio.sleep(0)
    web = Served(server, listener.getsockname()[1], task)
    try:
        yield web
    finally:
        for writer in web.opened:
            writer.transport.abort()
        server.should_exit = True
        await task


def problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    return int(head.split()[1]), json.loads(body)["detail"]


async def test_a_request_is_answered() -> None:
    """Two on one connection; the server does not tell what it is."""
    async with served() as web:
        reader, writer = await web.connect()
        for _ in range(2):
            writer.write(GET)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert b"server:" not in head.lower()
            assert await reader.readexactly(5) == b"hello"
        writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01 not http\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: " + b"a" * (20 << 10),
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
    ],
)
async def test_what_is_not_http_or_has_too_long_a_head_is_refused(data: bytes) -> None:
    """With a problem, and the connection is closed: a flood of headers takes no more than 16 KiB."""
    async with served() as web:
        try:
            status, detail = problem(await web.ask(data))
        except ConnectionError:
            return  # the rest of a flood, which nobody reads, may reset the connection first
        assert status == 400
        assert "head is too long" in detail


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("more", [-1, 0, 1, 4 << 10])
async def test_a_head_may_have_16_kib_and_no_more(more: int, pieces: int) -> None:
    """The limit holds for a head that comes at once, in pieces, and behind another request."""
    size = (16 << 10) + more
    start, end = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b"\r\nconnection: close\r\n\r\n"
    head = start + b"a" * (size - len(start) - len(end)) + end
    step = -(-size // pieces)
    async with served() as web:
        for first in (b"", GET):
            reader, writer = await web.connect()
            writer.write(first)
            for at in range(0, size, step):
                writer.write(head[at : at + step])
                await asyncio.sleep(0)
            answer = await reader.read()
            assert answer.count(b"HTTP/1.1 200") == (more <= 0) + bool(first)
            assert answer.count(b"HTTP/1.1 400") == (more > 0)
            writer.close()


@pytest.fixture
def own_address() -> str:
    """An address of this machine that is not of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but those of loopback")
        return str(probe.getsockname()[0])


async def test_who_is_not_let_in_gets_no_byte(own_address: str) -> None:
    """The connection is closed, and the next one is let in if the address is open by then."""
    is_open = False
    async with served(admits=lambda a, _: is_open or is_loopback(a), host=own_address) as web:
        reader, writer = await web.connect(own_address)
        writer.write(GET)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert (await (await web_get(web, "127.0.0.1")).readline()).startswith(b"HTTP/1.1 200")
        is_open = True
        assert (await (await web_get(web, own_address)).readline()).startswith(b"HTTP/1.1 200")


async def test_other_machines_leave_places_for_this_one(own_address: str) -> None:
    """Half of the connections are for loopback, whoever holds the others."""
    async with served(host=own_address) as web:
        first, _ = await web.connect(own_address)
        for _ in range(MOST_OF_OTHERS - 1):
            await web.connect(own_address)
        await web_get(web, own_address)
        assert await ends(first)
        for _ in range(MOST_CONNECTIONS - MOST_OF_OTHERS):
            answer = await web_get(web, "127.0.0.1")
            assert (await answer.readline()).startswith(b"HTTP/1.1 200")


async def web_get(web: Served, host: str, path: str = "/") -> asyncio.StreamReader:
    """Send a request, and keep the connection; returns what is answered."""
    reader, writer = await web.connect(host)
    writer.write(GET.replace(b"GET / ", f"GET {path} ".encode()))
    return reader


async def ends(reader: asyncio.StreamReader) -> bool:
    """Tell whether the server closes a connection; return when it has."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
    return True


async def test_idle_connections_keep_nobody_out() -> None:
    """However many one user holds: the one that is idle for the longest time gives way, for that user too."""
    async with served() as web:
        held = [await web.connect() for _ in range(MOST_CONNECTIONS)]
        for reader, _ in held[:3]:
            assert (await (await web_get(web, "127.0.0.1")).readline()).startswith(b"HTTP/1.1 200")
            assert await ends(reader)
        assert len(web.server.server_state.connections) <= MOST_CONNECTIONS


async def test_connections_in_answer_are_shared_by_owners() -> None:
    """One user who holds all of them with streams gives way to another one, and gets none more."""
    mine: list[str] = []

    def owner_of(client: Endpoint, _server: Endpoint) -> str:
        assert client is not None
        return "user 2" if f"{client[1]}" in mine else "user 1"

    async with served(owner_of=owner_of) as web:
        streams = [await web_get(web, "127.0.0.1", "/stream") for _ in range(MOST_CONNECTIONS)]
        for stream in streams:
            assert (await stream.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await web.connect()
        assert problem(await reader.read())[0] == 503
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            mine.append(str(place.getsockname()[1]))
            place.connect(("127.0.0.1", web.port))
            place.settimeout(0)
            reader, writer = await asyncio.open_connection(sock=place)
            writer.write(GET)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                await streams[-1].read()


async def test_a_client_that_is_slow_with_its_head_is_disconnected() -> None:
    """Whether it sends nothing or, for ever, a byte now and then."""
    async with served(protocol=HastyProtocol) as web, asyncio.timeout(PATIENCE_S):
        silent, _ = await web.connect()
        dripping, writer = await web.connect()

        async def drip() -> None:
            for byte in itertools.chain(GET[:-4], itertools.repeat(ord("x"))):
                writer.write(bytes([byte]))
                await asyncio.sleep(HastyProtocol.head_s / 20)  # real time: a slow client

        dripped = asyncio.create_task(drip())
        assert await silent.read() == b""
        assert await dripping.read() == b""
        dripped.cancel()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    """The response that it asked for stays in memory for as long as it may read, and not for ever."""
    async with served(protocol=HastyProtocol) as web, asyncio.timeout(PATIENCE_S):
        _, writer = await web.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a real socket
        asked_s = time.monotonic()
        writer.write(GET.replace(b"GET / ", b"GET /large "))
        while not web.server.server_state.connections:
            await asyncio.sleep(0)
        while web.server.server_state.connections:
            await asyncio.sleep(0.1)  # real time: the server's timer
        assert time.monotonic() - asked_s >= HastyProtocol.read_within_s
        writer.close()


async def test_it_ends_when_nobody_asks_and_not_before() -> None:
    """A connection that is open keeps it; then it ends by itself."""
    async with served(idle_s=1.0) as web:
        _, writer = await web.connect()
        await asyncio.sleep(2.5)  # real time: longer than its idle time
        assert not web.task.done()
        writer.close()
        async with asyncio.timeout(10):
            await web.task
