"""Websockets pass through, byte for byte, both ways."""

import asyncio
import os

from appliance.domain.gateway import Standing
from tests.fakes.engine_server import Talk, answering, sized
from tests.unit.gateway.relay.rig import QUICK, get, rigged
from tests.waiting import settle, until

OFFER = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"
AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: y\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


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


async def test_engine_does_not_agree() -> None:
    """An engine that does not agree sends an ordinary response, and the connection stays usable."""
    async with rigged(answering(sized(b"no", b"404 Not Found"))) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(get("/", headers=OFFER) + get("/health"))
            answers = [await caller.answer() for _ in range(2)]
            assert [(a.status, a.body, a.whole) for a in answers] == [(404, b"no", True)] * 2
        await caller.send(get("/", headers=OFFER) + b"\x81\x05hello")
        assert [(await caller.answer()).status for _ in range(2)] == [404, 400]
        assert await caller.ended()


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
        (engine,) = rig.relay.upstreams["genesis"].pool._all
        assert engine._transport is not None
        await until(engine._transport.get_write_buffer_size)
        await settle(100)
        assert engine._transport.get_write_buffer_size() < 1 << 20
