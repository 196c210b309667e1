"""Engines that fail, at every point; no incomplete response passes for a complete one."""

import asyncio
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from appliance.model.gateway import Standing
from tests.fakes.engine_server import (
    CHUNKED,
    EVENTS,
    LAST,
    EngineServer,
    Talk,
    answering,
    chunk,
    sized,
)
from tests.unit.gateway.relay.rig import get, post, rigged
from tests.waiting import settle, until

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
    """A kept connection that the engine has closed costs nothing."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"%d" % talk.number))

    async with rigged(script) as rig:
        caller = await rig.connect()
        bodies = []
        for _ in range(4):
            await caller.send(post())
            bodies.append((await caller.answer()).body)
            await until(lambda: not rig.relay.upstreams["genesis"].pool._watched)
        assert bodies == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("unix", [False, True])
async def test_kept_connections_whose_end_is_not_read_yet(tmp_path: Path, *, unix: bool) -> None:
    """A kept connection is not used once its end has come, even before the event loop tells."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"%d" % talk.number))
        with suppress(asyncio.IncompleteReadError):
            await talk.request()

    async with rigged(script, path=str(tmp_path / "e") if unix else None) as rig:
        assert (await rig.ask(post())).body == b"1"
        pool = rig.relay.upstreams["genesis"].pool
        await until(lambda: pool.idle == 1)
        (talk,) = rig.engine.talks
        kept = talk.writer.get_extra_info("socket")
        for waits in (False, True):
            # The kernel is asked in each turn anew, whether or not others write in it.
            engine = pool.acquire()
            assert engine is not None
            pool.release(engine)
            await asyncio.sleep(0)
            if waits:
                pool.writes.pending.clear()
                pool.writes.write(asyncio.WriteTransport(), b"")
        with socket.socket(fileno=os.dup(kept.fileno())) as own:
            own.shutdown(socket.SHUT_WR)
        # No turn of the event loop since then.
        assert pool.acquire() is None
        pool.writes.pending.clear()
        assert (await rig.ask(post())).body == b"2"


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_connection_that_ends_during_its_response_is_not_kept(*, forgotten: bool) -> None:
    """An end that the kernel has told of a busy connection counts when its response is over.

    Once the event loop has told of the end, too, the socket is there for a moment more.
    """
    said = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"12")[:-1])
        await said.wait()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await until(lambda: bool(rig.relay.upstreams))
        pool = rig.relay.upstreams["genesis"].pool
        await until(lambda: bool(rig.engine.talks and pool._watched))
        (engine,) = pool._watched.values()
        kept = rig.engine.talks[0].writer.get_extra_info("socket")
        with socket.socket(fileno=os.dup(kept.fileno())) as own:
            own.shutdown(socket.SHUT_WR)
        if forgotten:
            pool.forget(engine)
        pool._close_ended()
        assert engine.ended is not forgotten
        if not forgotten:
            pool.release(engine)
        assert pool.idle == 0
        said.set()


@pytest.mark.parametrize("head", [EVENTS, CHUNKED], ids=["stream", "another body"])
async def test_no_request_follows_a_stream_on_its_connection(head: bytes) -> None:
    """An engine that ends the connection after each stream, as llama.cpp's server does, loses no request."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(head, chunk(EVENT), LAST)
        with suppress(asyncio.IncompleteReadError):
            await talk.request()

    async with rigged(script) as rig:
        caller = await rig.connect()
        for _ in range(3):
            await caller.send(post())
            answer = await caller.answer()
            assert (answer.status, answer.whole) == (200, True)


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("end", ["end", "reset", "half", "silence on a new connection"])
async def test_a_request_is_sent_once(tmp_path: Path, end: str, *, unix: bool) -> None:
    """However an engine closes a connection after it has read a request, it gets it once."""

    async def script(talk: Talk) -> None:
        if end != "silence on a new connection":
            await talk.request()
            await talk.say(sized(b"1"))
        await talk.request()
        if end == "reset":
            talk.reset()
        elif end == "half":
            talk.writer.write_eof()
            await talk.reader.read()

    async with rigged(script, path=str(tmp_path / "e") if unix else None) as rig:
        caller = await rig.connect()
        if end != "silence on a new connection":
            await caller.send(post({"model": "genesis", "n": 1}))
            assert (await caller.answer()).status == 200
        await caller.send(post({"model": "genesis", "n": 2}))
        answer = await caller.answer()
        assert (answer.status, answer.error["code"]) == (502, "engine_failed")
        await settle()
        assert [b'"n": 2' in heard.body for heard in rig.engine.heard].count(True) == 1


async def test_a_request_that_an_engine_dies_of_twice() -> None:
    """The request is refused from the third time on, whoever sends it; others are served."""
    killing = asyncio.Event()

    async def script(talk: Talk) -> None:
        while True:
            heard = await talk.request()
            if b"kill" in heard.body and killing.is_set():
                await talk.say(EVENTS * (b"stream" in heard.body), chunk(EVENT))
                await talk.delivered()
                talk.reset()
                return
            await talk.say(sized(b"1"))

    async with rigged(script) as rig:
        for killer in ({"model": "genesis", "prompt": "kill"}, {"stream": True, "prompt": "kill"}):
            killing.set()
            for _ in range(2):
                assert (await rig.ask(post(killer))).status in {0, 200, 502}
                rig.crash()
                rig.tell(Standing.STARTING)
                rig.tell(Standing.SERVING)
            before = len(rig.engine.heard)
            for _ in range(2):
                answer = await rig.ask(post(killer))
                assert (answer.status, answer.error["code"]) == (422, "engine_died_twice")
                assert "retry-after" not in answer.headers
            assert len(rig.engine.heard) == before
            assert (await rig.ask(post({**killer, "prompt": "be kind"}))).status == 200
            killing.clear()


async def test_a_request_that_was_in_flight_at_deaths_by_chance() -> None:
    """A request that an engine answers between two of its deaths is not refused after them."""
    silent = asyncio.Event()

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            if silent.is_set():
                return
            await talk.say(sized(b"1"))

    async with rigged(script) as rig:
        for _ in range(3):
            silent.set()
            assert (await rig.ask(post())).status == 502
            rig.crash()
            rig.tell(Standing.SERVING)
            silent.clear()
            assert (await rig.ask(post())).status == 200


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
        (engine,) = pool._watched.values()
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
