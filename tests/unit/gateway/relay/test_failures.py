"""Engines that fail, at every point; no incomplete response passes for a complete one."""

import asyncio
import json
from pathlib import Path

import pytest

from appliance.domain.gateway import Standing
from tests.fakes.engine_server import CHUNKED, EVENTS, EngineServer, Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import get, post, rigged
from tests.waiting import until

EVENT = b'data: {"n":1}\n\n'


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 600_000,
    ],
)
async def test_before_the_head(said: bytes, *, reset: bool) -> None:
    """An engine that fails before its head is complete is an error like any other."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(said)
        if reset:
            talk.reset()

    async with rigged(script) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(post())
            answer = await caller.answer()
            assert (answer.status, answer.error["code"]) == (502, "engine_failed")
            assert answer.whole
        assert len(rig.engine.heard) == 2
        assert rig.watcher.seen[0].end == (502, b"")
        assert rig.relay.in_flight(["genesis"]) == 0


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    ("path", "error"),
    [("/v1/chat/completions", "server_error"), ("/v1/messages", "api_error")],
)
@pytest.mark.parametrize("part", [b"", b"20\r\ndata: {", b"20\r"])
async def test_in_a_stream_of_events(path: str, error: str, part: bytes, *, reset: bool) -> None:
    """A stream that is cut off ends with an error event of its API, and then properly."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(EVENT), part)
        await talk.delivered()
        if reset:
            talk.reset()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post(path=path))
        answer = await caller.answer()
        assert answer.whole
        events = [event for event in answer.body.split(b"\n\n") if event]
        assert events[0] + b"\n\n" == EVENT
        assert len(events) == 2
        assert json.loads(events[1].partition(b"data: ")[2])["error"]["type"] == error
        assert rig.watcher.seen[0].end == (502, EVENT)


async def test_in_a_stream_for_http_1_0() -> None:
    """A stream that is cut off ends with an error event for HTTP/1.0 too."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(EVENT))

    async with rigged(script) as rig:
        answer = await rig.ask(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert answer.body.startswith(EVENT)
        assert b"engine_failed" in answer.body


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(
    "said",
    [
        CHUNKED + chunk(b"abc"),
        CHUNKED + chunk(b"abc") + b"5\r\nde",
        CHUNKED + chunk(b"abc") + b"nonsense\r\n",
        sized(b"abcdef")[:-3],
        EVENTS.replace(b"Transfer-Encoding: chunked", b"Content-Length: 9") + b"abc",
    ],
)
async def test_in_another_body(said: bytes, version: bytes, *, reset: bool) -> None:
    """A body that is cut off is never ended properly: the client sees a broken connection."""

    async def script(talk: Talk) -> None:
        await talk.request()
        head, end, rest = said.partition(b"\r\n\r\n")
        await talk.say(head + end)
        await talk.delivered()
        await talk.say(rest)
        await talk.delivered()
        if reset:
            talk.reset()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post().replace(b"HTTP/1.1", b"HTTP/" + version))
        with pytest.raises(ConnectionResetError):
            await caller.reader.read()
        assert rig.watcher.seen[0].end is not None
        assert rig.watcher.seen[0].end[0] == 502


async def test_a_body_that_only_a_reset_can_end_badly() -> None:
    """Where the end of the connection is the body's end, a broken connection is not."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(b"HTTP/1.1 200 OK\r\n\r\n", b"abc")
        await talk.delivered()
        talk.reset()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        with pytest.raises(ConnectionResetError):
            await caller.reader.read()


async def test_kept_connections_that_were_closed() -> None:
    """A kept connection that the engine has closed costs nothing, also when both cross."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"%d" % talk.number))
        if talk.number == 1:
            # Closes when the next request has arrived.
            await talk.reader.read(1)
            talk.reset()
        elif talk.number == 3:
            await talk.request()

    async with rigged(script) as rig:
        caller = await rig.connect()
        bodies = []
        for number in range(1, 5):
            await caller.send(post())
            bodies.append((await caller.answer()).body)
            if number % 2 == 0:  # the engine closes this connection after its response
                await until(lambda: not rig.relay.upstreams["genesis"].pool._all)
        assert bodies == [b"1", b"2", b"3", b"4"]
        assert sum(seen.sent - 1 for seen in rig.watcher.seen) == 2


async def test_requests_are_sent_again_once() -> None:
    """A request that a new connection does not answer either is not sent a third time."""

    async def script(talk: Talk) -> None:
        await talk.request()
        if talk.number == 1:
            await talk.say(sized(b"1"))
            await talk.request()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        assert (await caller.answer()).status == 200
        await caller.send(post())
        assert (await caller.answer()).status == 502
        assert len(rig.engine.heard) == 3


async def test_engines_that_say_too_much() -> None:
    """Bytes that an engine sends after its response reach no client."""
    for more in (b"x", sized(b"smuggled"), b"\r\nHTTP"):

        async def script(talk: Talk, more: bytes = more) -> None:
            await talk.request()
            await talk.say(sized(b"1") + more)
            await talk.request()
            await talk.say(sized(b"2"))

        async with rigged(script) as rig:
            caller = await rig.connect()
            for _ in range(3):
                await caller.send(post())
                assert (await caller.answer()).body == b"1"


async def test_engines_that_speak_unasked() -> None:
    """A connection on which bytes came without a request is not used again."""
    spoke = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"1"))
        await talk.delivered()
        await talk.say(sized(b"unasked"))
        await talk.delivered()
        spoke.set()
        await talk.request()
        await talk.say(sized(b"2"))

    async with rigged(script) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(post())
            assert (await caller.answer()).body == b"1"
            await spoke.wait()
            spoke.clear()


async def test_connections_that_are_about_to_close() -> None:
    """A connection that is closing is not used."""
    async with rigged(answering(sized(b"1"))) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await caller.answer()
        pool = rig.relay.upstreams["genesis"].pool
        (engine,) = pool._all
        engine.finish()
        assert pool.acquire() is None


@pytest.mark.parametrize("unix", [False, True])
async def test_nobody_listens(tmp_path: Path, *, unix: bool) -> None:
    """An engine that accepts nothing for longer than the grace period is an error."""
    async with rigged(answering(), path=str(tmp_path / "e") if unix else None) as rig:
        await rig.engine.close()
        caller = await rig.connect()
        await caller.send(post())
        answer = await caller.answer()
        assert (answer.status, answer.error["code"]) == (503, "engine_unreachable")
        assert int(answer.headers["retry-after"]) > 0


async def test_an_engine_that_comes_back() -> None:
    """An engine that accepts again in a moment, or whose profile starts, costs a pause."""
    async with rigged(answering(sized(b"1"))) as rig:
        port = rig.engine.port
        await rig.engine.close()
        caller, other = await rig.connect(), await rig.connect()
        await caller.send(post())
        rig.tell(Standing.STARTING)
        await other.send(post())
        await until(lambda: len(rig.relay.hold_queue) == 2)
        again = EngineServer(answering(sized(b"2")))
        again.port = port
        async with again:
            rig.tell(Standing.SERVING)
            assert (await caller.answer()).body == b"2"
            assert (await other.answer()).body == b"2"


async def test_hanging_up_before_a_connection() -> None:
    """A client that hangs up before its engine is connected leaves nothing behind."""
    async with rigged(answering(sized(b"1"))) as rig:
        await rig.engine.close()
        caller = await rig.connect()
        await caller.send(get("/health"))
        await caller.close()
        await until(lambda: rig.watcher.seen and rig.watcher.seen[0].end)
        assert rig.watcher.seen[0].end == (0, b"")
        assert rig.relay.in_flight(["genesis"]) == 0
