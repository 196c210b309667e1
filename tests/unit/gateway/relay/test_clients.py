"""Clients that are slow, pipeline, send too much or hang up."""

import asyncio
import socket
from dataclasses import replace

import pytest

from appliance.gateway.client_connection import ClientConnection
from appliance.model.gateway import Limits
from tests.fakes.engine_server import CHUNKED, EVENTS, LAST, Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import QUICK, Rig, get, post, rigged
from tests.waiting import settle, until

SMALL = Limits(
    head_s=0.3,
    body_s=0.3,
    idle_s=0.3,
    stuck_s=0.4,
    head_bytes=2000,
    body_bytes=5000,
    buffered_bytes=8000,
    headers=10,
    connections=2,
)

_KERNEL_BUFFERS = 64 << 20
"""More than the four sockets between an engine and its client take."""


def only_client(rig: Rig) -> ClientConnection:
    """Return the relay's end of the only connection."""
    (client,) = rig.relay._clients
    assert isinstance(client, ClientConnection)
    return client


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("more", [-1, 0, 1, 2000])
async def test_limits_of_a_head_on_both_sides(more: int, pieces: int) -> None:
    """Bytes and lines of a head are taken up to their limits, at once and in pieces, twice on a connection."""
    start, end = b"GET /v1/x HTTP/1.1\r\nHost: x\r\nX: ", b"\r\n\r\n"
    long = start + b"a" * (SMALL.head_bytes + more - len(start) - len(end)) + end
    lines = b"".join(b"X-%d: y\r\n" % n for n in range(SMALL.headers - 1 + more))
    many = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n"
    async with rigged(answering(sized(b"{}")), limits=SMALL) as rig:
        for head in (long, many):
            caller = await rig.connect()
            for _ in range(2 if more <= 0 else 1):
                step = -(-len(head) // pieces)
                await caller.send(*(head[at : at + step] for at in range(0, len(head), step)))
                assert (await caller.answer()).status == (200 if more <= 0 else 431)
            await caller.close()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_the_limit_of_a_body_on_both_sides(more: int, *, chunked: bool) -> None:
    """A body is taken up to its limit, with a length or in chunks."""
    body = b" " * (SMALL.body_bytes + more - 2) + b"{}"
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    sent = chunk(body) + LAST if chunked else body
    async with rigged(answering(sized(b"{}")), limits=SMALL) as rig:
        answer = await rig.ask(b"POST /v1/x HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%b" % (length, sent))
        assert answer.status == (200 if more <= 0 else 413)


async def test_pipelining() -> None:
    """Requests that are sent without waiting are answered in their order."""

    async def script(talk: Talk) -> None:
        while True:
            heard = await talk.request()
            await settle()
            await talk.say(sized(heard.line.split()[1]))

    async with rigged(script) as rig:
        caller = await rig.connect()
        paths = [f"/health/{number}" for number in range(30)]
        await caller.send(b"".join(map(get, paths)))
        assert [(await caller.answer()).body.decode() for _ in paths] == paths
        assert len(rig.engine.talks) == 1


async def test_pipelining_of_mixed_requests() -> None:
    """Bodies and heads that come in one packet are separated."""
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        await caller.send(post() + get("/health") + b"\r\n" + post({"model": "nope"}) + post())
        statuses = [(await caller.answer()).status for _ in range(4)]
        assert statuses == [200, 200, 404, 200]


async def test_pipelining_after_chunks() -> None:
    """A request that follows a chunked body at once is not read: the response is the last."""
    chunked = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\n\r\n"
    )
    async with rigged(answering(sized(b"{}"))) as rig:
        for follower in (get("/health"), post(), b"G", b"nonsense\r\n\r\n"):
            caller = await rig.connect()
            await caller.send(chunked + follower)
            answer = await caller.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await caller.ended()
        assert [heard.body for heard in rig.engine.heard] == [b"{}"] * 4


async def test_a_client_that_does_not_stop_sending() -> None:
    """Bytes that a client sends ahead are not read beyond a bound."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.reader.read()

    async with rigged(script) as rig:
        caller = await rig.connect()
        caller.writer.transport.set_write_buffer_limits(0)
        await caller.send(post())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.send(*[bytes(1 << 20)] * 100), 0.3)
        relayed = only_client(rig)
        assert len(relayed._rest) < 1 << 20


async def test_100_continue() -> None:
    """A client that expects 100 Continue gets it; one that does not wait gets none."""
    request = post(headers="Expect: 100-continue\r\n")
    head, body = (
        request[: request.index(b"\r\n\r\n") + 4],
        request[request.index(b"\r\n\r\n") + 4 :],
    )
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(head)
            assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await caller.send(body)
            assert (await caller.answer()).status == 200
        await caller.send(request)
        assert (await caller.answer()).interim == []
        assert rig.engine.heard[0].header(b"expect") == []


async def test_100_continue_that_is_refused() -> None:
    """No 100 Continue is sent for a body that would be refused."""
    async with rigged(answering(), loopback=False) as rig:
        caller = await rig.connect()
        request = post(headers="Expect: 100-continue\r\n")
        await caller.send(request[: request.index(b"\r\n\r\n") + 4])
        answer = await caller.answer()
        assert (answer.status, answer.interim) == (401, [])
        assert await caller.ended()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"G" * 3000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 3000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 10 + b"\r\n", 431),
        (post({"model": "x" * 6000}), 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6000\r\n\r\n", 413),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunk(bytes(3000)) * 2,
            413,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 3000,
            431,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
            + b"y" * 3000,
            431,
        ),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"\x16\x03\x01\x02\0", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\r\n\r\n\r\n", 400),
    ],
)
async def test_too_much(request_: bytes, status: int) -> None:
    """A request beyond a limit is refused at once, and the connection is closed."""
    async with rigged(answering(), limits=SMALL) as rig:
        caller = await rig.connect()
        await caller.send(request_)
        answer = await caller.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await caller.ended()
        assert rig.relay.buffered_bytes == 0
        assert rig.engine.talks == []


async def test_a_large_refused_body() -> None:
    """A client that goes on sending a refused body still receives the refusal."""
    async with rigged(answering(), limits=SMALL) as rig:
        caller = await rig.connect()
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n"
        caller.writer.write(head + bytes(3_000_000))
        assert (await caller.answer()).status == 413


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HT", b"TP/1.1\r\n"] + [b"X: y\r\n"] * 100,
        [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", b"1"],
        [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n"],
    ],
)
async def test_slow_requests(pieces: list[bytes]) -> None:
    """A head has to come in time, and a body has to make progress."""
    async with rigged(answering(), limits=SMALL) as rig:
        caller = await rig.connect()

        async def drip() -> None:
            for piece in pieces:
                caller.writer.write(piece)
                await asyncio.sleep(0.03)  # real time: the rate of a client

        dripping = asyncio.create_task(drip())
        answer = await caller.answer()
        dripping.cancel()
        assert (answer.status, answer.error["code"]) == (408, "too_slow")


async def test_slow_bodies_with_progress() -> None:
    """A body that makes enough progress may take longer than one deadline."""
    limits = replace(SMALL, body_rate=1)
    async with rigged(answering(sized(b"{}")), limits=limits) as rig:
        caller = await rig.connect()
        request = post()
        await caller.send(request[:-8])
        for at in range(-8, 0):
            await asyncio.sleep(0.1)  # real time: the rate of a client
            await caller.send(request[at : at + 1 or None])
        assert (await caller.answer()).status == 200


async def test_idle_clients() -> None:
    """An idle connection is closed without a response; one that waits for a response is not."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await go_on.wait()
        await talk.say(sized(b"late"))
        await talk.request()

    async with rigged(script, limits=SMALL) as rig:
        idle, waiting = await rig.connect(), await rig.connect()
        await waiting.send(post())
        assert await idle.ended()
        go_on.set()
        assert (await waiting.answer()).body == b"late"
        assert await waiting.ended()


async def test_clients_that_hang_up() -> None:
    """When a client hangs up the connection to the engine is closed at once: generation stops."""
    gone = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(b"data: 1\n\n"))
        assert await talk.reader.read() == b""
        gone.set()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await caller.reader.readuntil(b"data: 1\n\n\r\n")
        await caller.close()
        async with asyncio.timeout(10):
            await gone.wait()
        assert rig.watcher.seen[0].end == (0, b"data: 1\n\n")
        assert rig.relay.in_flight(["genesis"]) == 0


def slow_reader(port: int) -> socket.socket:
    """Send a request and read little of the response."""
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(post())
    return client


async def test_clients_that_do_not_read() -> None:
    """A client that reads slowly slows its engine down and costs little memory; then it is cut."""
    sent = 0

    async def script(talk: Talk) -> None:
        nonlocal sent
        await talk.request()
        await talk.say(CHUNKED)
        while True:
            await talk.say(chunk(bytes(1 << 16)))
            sent += 1 << 16

    async with rigged(script, limits=SMALL) as rig:
        client = slow_reader(rig.port)
        await until(lambda: rig.relay._clients)
        relayed, most = only_client(rig), 0

        def ended() -> bool:
            nonlocal most
            most = max(most, relayed._unwritten())
            return bool(rig.watcher.seen and rig.watcher.seen[0].end)

        await until(ended)
        client.close()
        assert 0 < most < 1 << 20
        assert sent < _KERNEL_BUFFERS


async def test_clients_that_read_again() -> None:
    """A client that pauses loses nothing."""
    body = bytes(range(256)) * 15_000

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(
            CHUNKED, *(chunk(body[at : at + 99_999]) for at in range(0, len(body), 99_999))
        )
        await talk.say(LAST)

    async with rigged(script, limits=QUICK) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await until(lambda: rig.watcher.seen and rig.watcher.seen[0].owed)
        (seen,) = rig.watcher.seen
        await settle()
        assert seen.owed == [False]  # the engine owes nothing to a client that does not read
        answer = await caller.answer()
        assert answer.whole
        assert answer.body == body
        assert seen.owed == [False, True] * (len(seen.owed) // 2)


@pytest.mark.parametrize(("size", "at_once"), [(300_000, 2), (250_000, 1)])
async def test_pipelining_without_reading(size: int, at_once: int) -> None:
    """A client that pipelines without reading is not read from, and gets every response later.

    Responses of the smaller size mostly come from the engine in one piece.
    """
    limits = replace(QUICK, stuck_s=30.0)
    async with rigged(answering(sized(bytes(size))), limits=limits) as rig:
        caller = await rig.connect()
        for _ in range(60 // at_once):
            caller.writer.write(get("/health") * at_once)
            await settle()
        relayed = only_client(rig)
        await until(relayed._unwritten)
        await settle(100)
        assert relayed._unwritten() < 1 << 20
        assert len(rig.engine.heard) < 50
        for _ in range(60):
            assert len((await caller.answer()).body) == size


async def test_upgrades_that_are_passed_over() -> None:
    """A client that offers HTTP/2 with its request gets a response in HTTP/1.1, with its body."""
    offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    chunked = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n{offer}Transfer-Encoding: chunked\r\n\r\n"
        "2\r\n{}\r\n0\r\n\r\n"
    ).encode()
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        for request in (post(headers=offer), chunked, get("/health", headers=offer), post()):
            await caller.send(request)
            assert (await caller.answer()).status == 200
        assert [heard.header(b"upgrade") for heard in rig.engine.heard] == [[]] * 4
