"""Websockets pass through, byte for byte, both ways."""

import asyncio
import os

import pytest

from appliance.model.gateway import Standing
from tests.fakes.engine_server import Talk, answering, sized
from tests.unit.gateway.relay.rig import QUICK, get, post, rigged
from tests.waiting import settle, until

OFFER = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"
AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: y\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


REFUSING = (
    b"200 OK",
    b"307 Temporary Redirect",
    b"400 Bad Request",
    b"403 Forbidden",
    b"404 Not Found",
    b"405 Method Not Allowed",
    b"501 Not Implemented",
)
"""Statuses with which engines answer a websocket at a path that has none."""


async def echo(talk: Talk) -> None:
    """Engine that agrees, greets, and echoes all bytes."""
    await talk.request()
    await talk.say(AGREED + b"hello")
    while data := await talk.reader.read(65536):
        await talk.say(data)


async def test_echo() -> None:
    """Both sides send at will after the handshake, also ahead of it, and in any amount."""
    async with rigged(echo) as rig:
        caller = await rig.connect()
        await caller.send(get("/v1/realtime", headers=OFFER) + b"early")
        assert await caller.reader.readexactly(len(AGREED)) == AGREED
        assert await caller.reader.readexactly(10) == b"helloearly"
        data = os.urandom(3_000_000)
        caller.writer.write(data)
        assert await caller.reader.readexactly(len(data)) == data
        (heard,) = rig.engine.heard
        assert heard.header(b"sec-websocket-key") == [b"x"]
        assert heard.header(b"upgrade") == [b"websocket"]
        assert rig.relay.in_flight(["genesis"]) == 1
        assert rig.watcher.seen[0].owed == [False]  # a quiet websocket is no stalled engine


async def test_client_ends() -> None:
    """When the client ends a websocket, the engine's side ends."""
    ended = asyncio.Event()

    async def script(talk: Talk) -> None:
        await echo(talk)
        ended.set()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(get("/", headers=OFFER))
        await caller.reader.readexactly(len(AGREED) + 5)
        await caller.close()
        async with asyncio.timeout(10):
            await ended.wait()
        assert rig.relay.in_flight(["genesis"]) == 0


async def test_engine_ends() -> None:
    """When the engine ends a websocket, all of its bytes arrive before the end."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(AGREED, bytes(500_000))

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(get("/", headers=OFFER))
        assert await caller.reader.read(-1) == AGREED + bytes(500_000)
        assert rig.relay.in_flight(["genesis"]) == 0


@pytest.mark.parametrize(
    ("response", "status"),
    [
        *((sized(b"no", text), 426) for text in REFUSING),
        (b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", 426),
        (sized(b"no", b"503 Service Unavailable"), 503),
        (sized(b"no", b"500 Internal Server Error"), 500),
        (sized(b"no", b"429 Too Many Requests"), 429),
    ],
)
async def test_engine_does_not_agree(response: bytes, status: int) -> None:
    """A websocket that the engine does not take is told 426, by which clients fall back at once to HTTP.

    A state of the engine's own is told as it is. The connection stays usable.
    """
    async with rigged(answering(response)) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(get("/v1/responses", headers=OFFER) + post())
            answer, other = [await caller.answer() for _ in range(2)]
            assert (answer.status, answer.whole, other.body) == (status, True, b"no")
            if status == 426:
                assert answer.headers["upgrade"] == "HTTP/1.1"
                assert answer.error["code"] == "websocket_refused"
                assert "send the request in HTTP/1.1" in str(answer.error["message"])
        await caller.send(get("/", headers=OFFER) + b"\x81\x05hello")
        assert [(await caller.answer()).status for _ in range(2)] == [status, 400]
        assert await caller.ended()
        assert rig.relay.in_flight(["genesis"]) == 0


@pytest.mark.parametrize("protocol", ["x", "websocket, x", "h2c, websocket", "mqtt"])
async def test_protocol_that_nobody_knows(protocol: str) -> None:
    """Another protocol than websocket is refused with 426 before an engine is asked, for GET and POST."""
    async with rigged(answering(sized(b"no"))) as rig:
        offer = f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n"
        for raw in (get("/", headers=offer), post(headers=offer)):
            answer = await rig.ask(raw)
            assert (answer.status, answer.error["code"]) == (426, "upgrade_not_supported")
        assert rig.engine.heard == []


async def test_held() -> None:
    """A websocket is held like any request."""
    async with rigged(echo) as rig:
        rig.tell(Standing.STARTING)
        caller = await rig.connect()
        await caller.send(get("/", headers=OFFER))
        await until(lambda: len(rig.relay.hold_queue) == 1)
        assert rig.engine.talks == []
        rig.tell(Standing.SERVING)
        assert await caller.reader.readexactly(len(AGREED)) == AGREED


async def test_cut() -> None:
    """A drain ends websockets too."""
    async with rigged(echo) as rig:
        caller = await rig.connect()
        await caller.send(get("/", headers=OFFER))
        await caller.reader.readexactly(len(AGREED) + 5)
        assert await rig.relay.drain(["genesis"], 0) == (0, 1)
        assert await caller.ended()


async def test_engine_that_does_not_read() -> None:
    """While an engine does not read, little is buffered, and the client has to wait."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(AGREED)
        await asyncio.Event().wait()

    async with rigged(script, limits=QUICK) as rig:
        caller = await rig.connect()
        await caller.send(get("/", headers=OFFER))
        await caller.reader.readexactly(len(AGREED))
        caller.writer.write(bytes(50_000_000))
        (engine,) = rig.relay.upstreams["genesis"].pool._watched.values()
        assert engine._transport is not None
        await until(engine._transport.get_write_buffer_size)
        await settle(100)
        assert engine._transport.get_write_buffer_size() < 1 << 20
