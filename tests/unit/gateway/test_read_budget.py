"""The budget of what engines' connections hand on in one turn of the event loop, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator

import pytest

from appliance.gateway.downstream.client_connection import ClientConnection
from appliance.gateway.upstream import read_budget
from tests.fuzz.answers import read_answers
from tests.fuzz.targets import new_relay, settle
from tests.fuzz.world import End, World

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
        most = read_budget._TURN_BYTES + 2 * len(EVENT)
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
