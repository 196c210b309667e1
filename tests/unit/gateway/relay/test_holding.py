"""Requests that wait for a switch, drains, and the end."""

import asyncio
import json
from dataclasses import replace

import pytest

from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Endpoint, Handling
from tests.fakes.engine_server import CHUNKED, EVENTS, LAST, Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import QUICK, Answer, Caller, Rig, get, post, rigged
from tests.waiting import settle, until

STREAM = {"model": "genesis", "stream": True}
EVENT = b"data: 1\n\n"


async def asked(rig: Rig, request: bytes) -> Caller:
    """Return a client whose request waits."""
    caller = await rig.connect()
    before = len(rig.relay.hold_queue)
    await caller.send(request)
    await until(lambda: len(rig.relay.hold_queue) > before)
    return caller


def events(answer: Answer) -> list[bytes]:
    """Return the events of a stream, without signs of life."""
    return [e for e in answer.body.split(b"\n\n") if e and b'"id":"waiting"' not in e]


@pytest.mark.parametrize("held", [["genesis"], []])
async def test_released(held: list[str]) -> None:
    """A request during a switch is held, not refused, and served by the model that is committed."""
    async with rigged(answering(sized(b"{}"))) as rig:
        rig.tell(Standing.STARTING, held=held)
        callers = [await asked(rig, post({"model": "genesis", "n": n})) for n in range(5)]
        assert rig.engine.talks == []
        assert rig.relay.in_flight(["genesis"]) == 0
        rig.tell(Standing.SERVING)
        for caller in callers:
            answer = await caller.answer()
            assert (answer.status, answer.body) == (200, b"{}")
        assert sorted(json.loads(h.body)["n"] for h in rig.engine.heard) == [0, 1, 2, 3, 4]
        assert [seen.sent for seen in rig.watcher.seen] == [1] * 5


async def test_released_to_another() -> None:
    """A held request for the default goes to the profile that is the default in the end."""
    async with rigged(answering(sized(b"new"))) as rig:
        old = Routed(name="aeon", served=(), engine_name="aeon", endpoint=Endpoint(port=1))
        rig.table.adopt({"aeon": old, **rig.table.catalogue})
        rig.table.take(State(target=("aeon",), held=frozenset({"aeon", "genesis"})))
        caller = await asked(rig, post({"messages": []}))
        rig.tell(Standing.SERVING)
        assert (await caller.answer()).body == b"new"
        assert [seen.profile for seen in rig.watcher.seen] == ["aeon", "genesis"]
        assert rig.watcher.seen[0].end == (307, b"")


async def test_not_released() -> None:
    """A held request for a profile that is down in the end is refused."""
    async with rigged(answering()) as rig:
        rig.tell(Standing.STARTING)
        caller = await asked(rig, post())
        rig.tell(Standing.DOWN)
        answer = await caller.answer()
        assert (answer.status, answer.error["code"]) == (503, "model_unavailable")


async def test_comments() -> None:
    """A held stream gets its head and comments after a while, then the response of the engine."""
    async with rigged(answering(EVENTS, chunk(EVENT), LAST)) as rig:
        rig.tell(Standing.STARTING)
        caller = await asked(rig, post(STREAM, headers="Accept-Encoding: gzip\r\n"))
        head = await caller.reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"Content-Type: text/event-stream" in head
        for _ in range(2):
            assert b'"id":"waiting"' in await caller.reader.readuntil(b"\n\n\r\n")
        rig.tell(Standing.SERVING)
        assert EVENT in await caller.reader.readuntil(LAST)
        assert rig.engine.heard[0].header(b"accept-encoding") == []
        await caller.send(get("/health"))
        assert (await caller.answer()).status == 200


@pytest.mark.parametrize("old", [False, True])
async def test_streams_that_begin_before_their_answer(*, old: bool) -> None:
    """The engine's body follows the comments, also under a cached head."""
    async with rigged(answering(EVENTS + chunk(EVENT) + LAST)) as rig:
        rig.tell(Standing.STARTING)
        request = post(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0") if old else post(STREAM)
        caller = await asked(rig, request)
        await caller.begun()
        rig.tell(Standing.SERVING)
        answer = await caller.answer()
        assert answer.whole
        assert events(answer) == [EVENT.strip()]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (sized(b'{"error":{"message":"too long"}}', b"400 Bad"), "too long"),
        (sized(b'{"message":"no memory"}', b"500 Oops"), "no memory"),
        (sized(b'{"error":"plain"}', b"500 Oops"), "plain"),
        (sized(b"<html>", b"500 Oops"), "the engine answered 500"),
        (sized(b"[1]", b"500 Oops"), "the engine answered 500"),
        (sized(b"[" * 60_000, b"500 Oops"), "the engine answered 500"),
        (sized(b"{}"), "the engine answered 200"),
        (CHUNKED + chunk(b"audio") + LAST, "the engine answered 200"),
        (b"", "the engine closed the connection before its answer was complete"),
        (sized(b"abc", b"500 Oops")[:-1], "the engine closed the connection before"),
    ],
)
async def test_errors_after_the_head(said: bytes, message: str) -> None:
    """An engine's error after the head of a held stream becomes an error event."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(said)

    async with rigged(script) as rig:
        for _ in range(2):
            rig.tell(Standing.STARTING)
            caller = await asked(rig, post(STREAM))
            await caller.begun()
            rig.tell(Standing.SERVING)
            answer = await caller.answer()
            assert (answer.status, answer.whole) == (200, True)
            (event,) = events(answer)
            assert message in json.loads(event.strip()[6:])["error"]["message"]


async def test_others_get_no_comments() -> None:
    """A held request for no stream gets nothing early; a stream held behind it gets comments."""
    async with rigged(answering()) as rig:
        rig.tell(Standing.STARTING)
        caller, stream = await asked(rig, post()), await asked(rig, post(STREAM))
        for _ in range(3):
            await stream.reader.readuntil(b"\n\n\r\n")
        rig.tell(Standing.DOWN)
        assert (await caller.answer()).status == 503


@pytest.mark.parametrize("stream", [False, True])
async def test_waiting_too_long(*, stream: bool) -> None:
    """A held request is refused after the longest wait."""
    async with rigged(answering(), limits=replace(QUICK, wait_s=0.3)) as rig:
        rig.tell(Standing.STARTING)
        caller = await asked(rig, post({"model": "genesis", "stream": stream}))
        answer = await caller.answer()
        if stream:
            (event,) = events(answer)
            assert (answer.status, answer.whole) == (200, True)
            assert json.loads(event.strip()[6:])["error"]["code"] == "wait_too_long"
        else:
            assert (answer.status, answer.error["code"]) == (503, "wait_too_long")
            assert int(answer.headers["retry-after"]) > 0
        assert len(rig.relay.hold_queue) == 0


async def test_too_many_wait() -> None:
    """The hold queue has a bound; a client that hangs up makes room."""
    async with rigged(answering(sized(b"{}")), limits=replace(QUICK, queue=2)) as rig:
        rig.tell(Standing.STARTING)
        first = await asked(rig, post())
        await asked(rig, post())
        late = await rig.connect()
        await late.send(post())
        answer = await late.answer()
        assert (answer.status, answer.error["code"]) == (503, "queue_full")
        assert int(answer.headers["retry-after"]) > 0
        await first.close()
        await until(lambda: len(rig.relay.hold_queue) == 1)
        await late.send(post())
        await until(lambda: len(rig.relay.hold_queue) == 2)
        rig.tell(Standing.SERVING)
        assert (await late.answer()).status == 200
        assert len(rig.engine.heard) == 2


async def test_wishes() -> None:
    """A request for a profile that is down asks for a switch, and waits for it."""
    async with rigged(answering(sized(b"{}"))) as rig:
        wished: list[str] = []
        on_request = replace(rig.table.catalogue["genesis"], handling=Handling(on_request=True))
        rig.table.adopt({"genesis": on_request})
        rig.table.request_switch = lambda profile, _key: wished.append(profile.name)
        rig.tell(Standing.DOWN)
        caller = await asked(rig, post())
        rig.tell(Standing.DOWN, held=["genesis"])
        await settle()
        rig.tell(Standing.SERVING)
        assert (await caller.answer()).status == 200
        assert set(wished) == {"genesis"}


async def test_changes_before_anybody_looks() -> None:
    """A change in the very moment in which a request is held is not missed."""
    async with rigged(answering(sized(b"{}"))) as rig:
        rig.table.adopt(
            {"genesis": replace(rig.table.catalogue["genesis"], handling=Handling(on_request=True))}
        )
        rig.tell(Standing.DOWN)
        rig.table.request_switch = lambda _profile, _key: rig.tell(Standing.SERVING)
        assert (await rig.ask(post())).status == 200


async def test_changes_while_somebody_looks() -> None:
    """A change while held requests are routed anew is not missed."""
    async with rigged(answering(sized(b"{}"))) as rig:
        catalogue = {
            "genesis": replace(rig.table.catalogue["genesis"], handling=Handling(on_request=True))
        }
        rig.table.adopt(catalogue)
        rig.tell(Standing.DOWN)
        caller = await asked(rig, post())
        await settle()
        rig.table.request_switch = lambda _profile, _key: rig.tell(Standing.SERVING)
        rig.table.adopt(catalogue)
        assert (await caller.answer()).status == 200


@pytest.mark.parametrize("streaming", [False, True])
async def test_drains_that_finish(*, streaming: bool) -> None:
    """A drain waits for requests in flight, and returns how many finished."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS + chunk(EVENT) if streaming else b"")
        await go_on.wait()
        await talk.say(LAST if streaming else sized(b"{}"))

    async with rigged(script) as rig:
        callers = [await rig.connect() for _ in range(3)]
        for caller in callers:
            await caller.send(post())
        await until(lambda: [seen.sent for seen in rig.watcher.seen] == [1] * 3)
        assert rig.relay.in_flight(["genesis"]) == 3
        draining = asyncio.create_task(rig.relay.drain(["genesis", "other"], 5))
        await settle()
        assert not draining.done()
        go_on.set()
        assert await draining == (3, 0)
        assert all([(await caller.answer()).whole for caller in callers])


async def test_drains_that_cut() -> None:
    """A request that a drain cuts ends with an error, an error event, or a broken connection."""

    async def script(talk: Talk) -> None:
        heard = await talk.request()
        say = {b"/events": EVENTS + chunk(EVENT), b"/audio": CHUNKED + chunk(b"abc")}
        await talk.say(say.get(heard.line.split()[1], b""))
        assert await talk.reader.read() == b""

    async with rigged(script) as rig:
        silent, streaming, audio = [await rig.connect() for _ in range(3)]
        for caller, path in ((silent, "/silent"), (streaming, "/events"), (audio, "/audio")):
            await caller.send(get(path))
        await streaming.begun()
        await until(lambda: [len(seen.sizes) for seen in rig.watcher.seen] == [0, 1, 1])
        assert await rig.relay.drain(["genesis"], 0.1) == (0, 3)
        answer = await silent.answer()
        assert (answer.status, answer.error["code"]) == (503, "switching")
        answer = await streaming.answer()
        assert answer.whole
        assert json.loads(events(answer)[1].strip()[6:])["error"]["code"] == "switching"
        with pytest.raises(ConnectionResetError):
            await audio.reader.read()
        assert [seen.end and seen.end[0] for seen in rig.watcher.seen] == [503] * 3
        assert rig.relay.in_flight(["genesis"]) == 0


async def test_drains_that_are_given_up() -> None:
    """A cancelled drain cuts no request."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await go_on.wait()
        await talk.say(sized(b"{}"))

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await until(lambda: rig.relay.in_flight(["genesis"]))
        draining = asyncio.create_task(rig.relay.drain(["genesis"], 5))
        await settle()
        draining.cancel()
        await settle()
        go_on.set()
        assert (await caller.answer()).status == 200


async def test_the_end() -> None:
    """A stop refuses held requests, cuts streams and closes every connection."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS + chunk(EVENT))
        await talk.request()

    async with rigged(script) as rig:
        idle, streaming = await rig.connect(), await rig.connect()
        await streaming.send(post())
        await until(lambda: rig.watcher.seen and rig.watcher.seen[0].sizes)
        rig.tell(Standing.STARTING)
        waiting = await asked(rig, post())
        stopping = asyncio.create_task(rig.relay.stop(0.2))
        answer = await waiting.answer()
        assert (answer.status, answer.error["code"]) == (503, "restarting")
        answer = await streaming.answer()
        assert json.loads(events(answer)[1].strip()[6:])["error"]["code"] == "restarting"
        assert await idle.ended()
        assert await streaming.ended()
        assert await stopping == (0, 2)


async def test_the_end_in_peace() -> None:
    """A stop lets requests finish; each response is the last one on its connection."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await go_on.wait()
        await talk.say(sized(b"{}"))

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await until(lambda: rig.relay.in_flight(["genesis"]))
        stopping = asyncio.create_task(rig.relay.stop(5))
        await settle()
        assert not stopping.done()
        go_on.set()
        assert await stopping == (1, 0)
        answer = await caller.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await caller.ended()


async def test_clients_that_go_on_at_a_hand_over() -> None:
    """At a hand-over a busy client gets `Connection: close`; an idle one is closed."""
    async with rigged(answering(sized(b"{}"))) as rig:
        busy, idle = await rig.connect(), await rig.connect()
        for caller in (busy, idle):
            await caller.send(post())
            await caller.answer()
        rig.relay.close_idle()
        await busy.send(post())
        answer = await busy.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await busy.ended()
        assert await idle.ended()
