"""The batch of the writes of one turn of the event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator

import pytest

from appliance.gateway import event_loop
from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.event_loop import WriteBatch
from tests.fuzz.answers import read_answers
from tests.fuzz.targets import new_relay, settle
from tests.fuzz.world import End, World


class FakeTransport(asyncio.Transport):
    """Transport that notes what is written, in one list for all."""

    def __init__(self, name: str, written: list[str]) -> None:
        super().__init__()
        self._name = name
        self._written = written
        self.closing = False
        self.on_write: Callable[[], None] | None = None
        """Called once in the next write, as a transport calls its protocol."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.append(f"{self._name}{bytes(data[:9]).decode()}")
        call, self.on_write = self.on_write, None
        if call is not None:
            call()

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


class Rig:
    """A batch with two transports."""

    def __init__(self) -> None:
        self.batch = WriteBatch()
        self.written: list[str] = []
        self.one, self.two = (FakeTransport(name, self.written) for name in "ab")

    async def turn(self, writes: int) -> int:
        """Write so often in one turn; return how many went out before its end."""
        self.written.clear()
        for _ in range(writes):
            self.batch.write(self.one, b"x")
        direct = len(self.written)
        await asyncio.sleep(0)
        assert len(self.written) == writes
        return direct


async def test_end_of_turn() -> None:
    """Writes of a turn go out at its end, in their order."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.two, b"2")
    rig.batch.write(rig.one, b"3")
    assert rig.written == []
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2", "a3"]


async def test_lone_client() -> None:
    """After eight turns with few writes they go out at once, and are looked at again in time."""
    rig = Rig()
    assert [await rig.turn(2) for _ in range(9)] == [0] * 8 + [2]
    direct = [await rig.turn(1) for _ in range(254)]
    assert direct == [1] * 254
    assert await rig.turn(1) == 0
    assert [await rig.turn(1) for _ in range(256)] == [1] * 256
    assert await rig.turn(3) == 0
    assert [await rig.turn(1) for _ in range(8)] == [0] * 8
    assert await rig.turn(1) == 1


async def test_crowd() -> None:
    """Turns with many writes are batched for good."""
    rig = Rig()
    for _ in range(20):
        assert await rig.turn(1) == 0
        assert await rig.turn(3) == 0


async def test_flush() -> None:
    """A flush writes at once, and once."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.flush()
    assert rig.written == ["a1"]
    rig.batch.write(rig.two, b"2")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2"]


async def test_callbacks() -> None:
    """A transport that calls back in a write, where others write and flush, keeps the order."""
    rig = Rig()

    def write_and_flush() -> None:
        rig.batch.write(rig.one, b"4")
        rig.batch.flush()

    rig.one.on_write = write_and_flush
    for transport, data in ((rig.one, b"1"), (rig.two, b"2"), (rig.one, b"3")):
        rig.batch.write(transport, data)
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2", "a3", "a4"]


async def test_callback_of_the_last_turn_with_few_writes() -> None:
    """A write of a callback goes out after those that wait, also when later ones go out directly."""
    rig = Rig()
    for _ in range(7):
        await rig.turn(1)
    rig.written.clear()
    rig.one.on_write = lambda: rig.batch.write(rig.one, b"3")
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.one, b"2")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "a2", "a3"]


async def test_closed_transport() -> None:
    """Bytes that wait for a transport that was aborted meanwhile are dropped."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.two, b"2")
    rig.one.closing = True
    await asyncio.sleep(0)
    assert rig.written == ["b2"]


async def test_large_write() -> None:
    """A large write goes out at once, after what waits."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.one, b"2" * 20_000)
    rig.batch.write(rig.one, b"3")
    assert rig.written == ["a1", "a222222222"]
    await asyncio.sleep(0)
    assert rig.written[2:] == ["a3"]


async def test_a_write_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A write that raises is logged, ends its own connection, and holds up no other."""
    rig = Rig()

    def fail() -> None:
        raise RuntimeError("after write_eof")

    rig.one.on_write = fail
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.two, b"2")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2"]
    assert rig.one.closing
    assert not rig.two.closing
    (record,) = caplog.records
    assert "RuntimeError at test_event_loop.py" in record.getMessage()
    rig.batch.write(rig.two, b"3")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2", "b3"]


COUNT = 150
ASKED = b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 27\r\n\r\n{"model":"m","stream":true}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"10000\r\n%b\n\n\r\n" % b"data: 1".ljust(65_534, b".")
END = b"0\r\n\r\n"


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.close()


class Streams:
    """Clients whose streams have all begun."""

    def __init__(self) -> None:
        self.clients: list[End] = []
        self.engines: list[End] = []

    @property
    def delivered(self) -> int:
        """Bytes that all clients have together."""
        return sum(len(client.written) for client in self.clients)

    async def begin(self, world: World, count: int = COUNT) -> None:
        world.engine = lambda end, _: self.engines.append(end)
        relay = new_relay()
        self.clients = [End(ClientConnection(relay, loopback=True)) for _ in range(count)]
        for client in self.clients:
            client.say(ASKED)
        await settle()
        for engine in self.engines:
            engine.say(HEAD)
        await settle()
        assert len(self.engines) == count

    async def close(self) -> None:
        for client in self.clients:
            client.hang_up()
        await settle()


def played(world: World, scene: Callable[[Streams], Coroutine[None, None, None]]) -> None:
    """Run a scene with streams, and check that no callback has raised."""

    async def run() -> None:
        streams = Streams()
        await streams.begin(world)
        await scene(streams)
        await streams.close()

    world.run_until_complete(run())
    assert world.troubles == []


def test_a_turn_is_bounded_whatever_arrives_at_once(world: World) -> None:
    """Hundreds of large chunks take many short turns; each stream is whole and in its order."""

    async def scene(streams: Streams) -> None:
        most = event_loop._TURN_BYTES + 2 * len(EVENT)
        before = streams.delivered
        for engine in streams.engines:
            engine.say(EVENT)
        turns = 0
        while streams.delivered < before + COUNT * len(EVENT):
            assert 0 < streams.delivered - before <= (turns + 1) * most
            turns += 1
            await asyncio.sleep(0)
        assert turns >= COUNT * len(EVENT) // most
        await settle()
        assert not any(engine.paused for engine in streams.engines)
        for engine in streams.engines:
            engine.say(END)
        await settle()
        for client in streams.clients:
            (told,) = read_answers(bytes(client.written))
            assert told.whole
            assert len(told.body) == 65_536

    played(world, scene)


def test_small_chunks_never_wait(world: World) -> None:
    """Tokens go out in the turn in which they come, also while large chunks wait."""

    async def scene(streams: Streams) -> None:
        *large, small = streams.engines
        for engine in large:
            engine.say(EVENT)
        small.say(b"9\r\ndata: 1\n\n\r\n")
        await asyncio.sleep(0)
        assert b"data: 1" in streams.clients[-1].written
        assert any(engine.paused for engine in large)

    played(world, scene)


def test_an_engine_that_leaves_has_said_what_waits(world: World) -> None:
    """Bytes that wait come before the end of their connection, and the end is still noticed."""

    async def scene(streams: Streams) -> None:
        for engine in streams.engines:
            engine.say(EVENT)
        last, client = streams.engines[-1], streams.clients[-1]
        assert last.paused
        last.close()
        await settle()
        (told,) = read_answers(bytes(client.written))
        assert told.body[:65_536].startswith(b"data: 1")
        assert b"engine_failed" in told.body

    played(world, scene)


def test_a_client_that_leaves_frees_what_waits(world: World) -> None:
    """Waiting bytes of a request that is over go nowhere."""

    async def scene(streams: Streams) -> None:
        for engine in streams.engines:
            engine.say(EVENT)
        streams.clients[-1].hang_up()
        await settle()
        assert streams.engines[-1].lost
        assert len(streams.clients[-2].written) > len(EVENT)

    played(world, scene)
