"""Probes in the lane, over real sockets: from the client of lane.sock to an engine and back."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from appliance.gateway.lane import MOST_RESPONSE_BYTES, REQUEST_ARRIVED
from appliance.model.errors import LaneBusyError
from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Endpoint, Handling
from appliance.wire.lane import LaneOutcome
from tests.fakes.engine_server import EVENTS, LAST, Script, Talk, answering, chunk, sized
from tests.unit.gateway.lane.lane_rig import BODY, CHAT, LaneRig, lane_rigged, whole
from tests.unit.gateway.relay.rig import post
from tests.waiting import settle, until

STREAM = {"model": "genesis", "messages": [], "stream": True}


def streaming(event: asyncio.Event) -> Script:
    """Streams one event of each response, and waits for a word before the end."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(EVENTS, chunk(b"data: 1\n\n"))
            await event.wait()
            await talk.say(chunk(b"data: 2\n\n"), LAST)

    return script


def gone(talk: Talk) -> Callable[[], bool]:
    """Condition: the other end of an engine's connection has closed."""
    return lambda: talk.reader.at_eof() or talk.reader.exception() is not None


async def test_a_probe_gets_the_response_as_it_arrives(tmp_path: Path) -> None:
    """The request goes to the engine as it is; pieces come with the times of their arrival."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        before_s = monotonic()
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            pieces = []
            async for piece, at_s in response.chunks():
                pieces.append((piece, at_s))
                may_end.set()
        (heard,) = rig.relay_rig.engine.heard
    assert heard.line == b"POST /v1/chat/completions HTTP/1.1"
    assert json.loads(heard.body) == BODY
    assert heard.header(b"content-type") == [b"application/json"]
    assert heard.header(b"host") == [f"127.0.0.1:{rig.relay_rig.engine.port}".encode()]
    assert [piece for piece, _ in pieces] == [b"data: 1\n\n", b"data: 2\n\n"]
    assert before_s <= response.sent_s <= pieces[0][1] <= pieces[1][1] <= monotonic()
    assert (response.status, response.outcome, response.detail) == (200, LaneOutcome.ENDED, "")


async def test_a_page_of_the_engine_is_fetched_with_its_key(tmp_path: Path) -> None:
    """Without a body the request is a GET; the engine's key goes with it, and no client's."""
    keyed = Routed(
        name="genesis",
        served=(),
        engine_name="genesis",
        endpoint=Endpoint(port=1),
        engine_key="sesame",
    )
    async with lane_rigged(answering(sized(b"running 0\n")), tmp_path, profile=keyed) as rig:
        async with rig.lane.send("genesis", "/metrics", None, timeout_s=20) as response:
            assert await whole(response) == b"running 0\n"
        (heard,) = rig.relay_rig.engine.heard
    assert heard.line == b"GET /metrics HTTP/1.1"
    assert heard.header(b"authorization") == [b"Bearer sesame"]


async def test_an_error_of_the_engine_is_a_response(tmp_path: Path) -> None:
    """The lane judges no status."""
    async with lane_rigged(answering(sized(b"no", b"404 Not Found")), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            assert await whole(response) == b"no"
        assert (response.status, response.outcome) == (404, LaneOutcome.ENDED)


async def test_probes_are_not_counted(tmp_path: Path) -> None:
    """A probe is in no figure, delays no drain, and leaves no connection to the clients."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        relay = rig.relay_rig.relay
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            assert relay.in_flight(["genesis"]) == 0
            assert await relay.drain(["genesis"], 20) == (0, 0)
            await whole(response)
        assert response.outcome is LaneOutcome.YIELDED
        assert rig.relay_rig.watcher.seen == []
        assert all(upstream.pool.idle == 0 for upstream in relay.upstreams.values())


# --- requests of clients come first ----------------------------------------------------------


async def test_a_probe_yields_to_a_request(tmp_path: Path) -> None:
    """The probe's connection ends before the request of the client is at the engine."""
    ends: list[bool] = []
    may_end = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        if talk.number == 1:
            await talk.say(EVENTS, chunk(b"data: 1\n\n"))
            await may_end.wait()
        else:
            probe = rig.relay_rig.engine.talks[0]
            ends.append(probe.reader.at_eof())
            await talk.say(sized(b"{}"))

    async with (
        lane_rigged(script, tmp_path) as rig,
        rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response,
    ):
        chunks = response.chunks()
        assert (await anext(chunks))[0] == b"data: 1\n\n"
        answer = await rig.relay_rig.ask(post())
        assert [piece async for piece in chunks] == []
    assert (answer.status, answer.body) == (200, b"{}")
    assert ends == [True]
    assert (response.outcome, response.detail) == (LaneOutcome.YIELDED, REQUEST_ARRIVED)


async def test_a_probe_yields_to_a_request_that_waits(tmp_path: Path) -> None:
    """A request for a profile that is down may cause a switch: the probe ends at once."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        sleeper = Routed(
            name="aeon",
            served=(),
            engine_name="aeon",
            endpoint=Endpoint(port=1),
            handling=Handling(on_request=True),
        )
        rig.relay_rig.table.adopt({**rig.relay_rig.table.catalogue, "aeon": sleeper})
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            caller = await rig.relay_rig.connect()
            await caller.send(post({"model": "aeon", "messages": []}))
            await whole(response)
        assert response.outcome is LaneOutcome.YIELDED
        with pytest.raises(LaneBusyError, match="requests of clients are under way: 1"):
            await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()


async def test_a_request_that_nobody_serves_ends_no_probe(tmp_path: Path) -> None:
    """A request that is refused reaches no engine, so the probe goes on."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            assert (await rig.relay_rig.ask(post({"model": "unknown"}))).status == 404
            may_end.set()
            assert await whole(response) == b"data: 1\n\ndata: 2\n\n"
        assert response.outcome is LaneOutcome.ENDED


async def test_no_probe_begins_while_a_request_is_in_flight(tmp_path: Path) -> None:
    """Busy: nothing is sent to the engine; the next one is admitted when the request has ended."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        caller = await rig.relay_rig.connect()
        await caller.send(post(STREAM))
        await caller.begun()
        with pytest.raises(LaneBusyError, match="requests of clients are under way: 1"):
            await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
        assert len(rig.relay_rig.engine.heard) == 1
        may_end.set()
        assert (await caller.answer()).whole
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await whole(response)
        assert response.outcome is LaneOutcome.ENDED


async def test_one_probe_at_a_time(tmp_path: Path) -> None:
    """A second probe is refused while the first lasts, and admitted at once afterwards."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            with pytest.raises(LaneBusyError, match="another probe lasts"):
                await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
            may_end.set()
            await whole(response)
            async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as following:
                await whole(following)
        assert following.outcome is LaneOutcome.ENDED


# --- states of the box ---------------------------------------------------------------------------

SERVES = State(standings={"genesis": Standing.SERVING}, committed=("genesis",))
STATES = [
    (replace(SERVES, held=frozenset({"genesis"})), "an operation runs"),
    (replace(SERVES, held=frozenset({"aeon"})), "an operation runs"),
    (replace(SERVES, target=("aeon",)), "an operation runs"),
    (replace(SERVES, paused=True), "an operator holds the box"),
    (State(standings={"genesis": Standing.STARTING}), "genesis does not serve"),
    (State(), "genesis does not serve"),
]


@pytest.mark.parametrize(("state", "why"), STATES)
async def test_a_probe_yields_to_an_operation(tmp_path: Path, state: State, why: str) -> None:
    """A hold, a switch and a stop end the probe, and admit none until they are over."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            chunks = response.chunks()
            await anext(chunks)
            rig.relay_rig.table.take(state)
            await until(gone(rig.relay_rig.engine.talks[0]))
            assert [piece async for piece in chunks] == []
        assert (response.outcome, response.detail) == (LaneOutcome.YIELDED, why)
        with pytest.raises(LaneBusyError, match=why):
            await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
        rig.relay_rig.table.take(SERVES)
        may_end.set()
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await whole(response)
        assert response.outcome is LaneOutcome.ENDED


async def test_a_profile_that_is_not_applied_is_refused(tmp_path: Path) -> None:
    """A name that the gateway does not know is told as such."""
    async with lane_rigged(answering(), tmp_path) as rig:
        with pytest.raises(LaneBusyError, match="other is not applied"):
            await rig.lane.send("other", CHAT, BODY, timeout_s=20).__aenter__()


async def test_no_probe_while_a_replaced_process_lives(tmp_path: Path) -> None:
    """Requests of the old process would not end a probe of the new one."""
    async with lane_rigged(answering(), tmp_path) as rig:
        rig.replaced = True
        with pytest.raises(LaneBusyError, match="replaced gateway process"):
            await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()


async def test_a_gateway_that_hands_over_ends_the_probe(tmp_path: Path) -> None:
    """A closed lane yields what it has and admits nothing, until it is opened again."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            rig.reservations.close("the gateway is being replaced")
            await whole(response)
        assert response.outcome is LaneOutcome.YIELDED
        with pytest.raises(LaneBusyError, match="being replaced"):
            await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
        rig.reservations.open()
        may_end.set()
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await whole(response)
        assert response.outcome is LaneOutcome.ENDED


# --- clients of the lane, and engines ------------------------------------------------------------


async def test_who_leaves_ends_the_probe(tmp_path: Path) -> None:
    """The engine's connection ends with that of the client, and the lane is free."""
    may_end = asyncio.Event()
    async with lane_rigged(streaming(may_end), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await anext(response.chunks())
        await until(gone(rig.relay_rig.engine.talks[0]))
        may_end.set()
        await until(lambda: rig.relay_rig.relay.lane_holder is None)
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await whole(response)
        assert response.outcome is LaneOutcome.ENDED


async def test_a_response_without_end_is_cut(tmp_path: Path) -> None:
    """A probe ends at its deadline, whatever the engine does."""
    async with lane_rigged(streaming(asyncio.Event()), tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=0.05) as response:
            await whole(response)
        assert (response.outcome, response.detail) == (
            LaneOutcome.TOO_LONG,
            "no end within 0.05 s",
        )
        await until(gone(rig.relay_rig.engine.talks[0]))


async def test_a_response_that_never_stops_is_cut(tmp_path: Path) -> None:
    """A response has a limit of its size, and is whole up to there."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS)
        while True:
            await talk.say(chunk(b"x" * 65536))

    async with lane_rigged(script, tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            body = await whole(response)
        assert (response.outcome, response.detail) == (
            LaneOutcome.TOO_LONG,
            "the response exceeds 4 MiB",
        )
        assert MOST_RESPONSE_BYTES - 131072 < len(body) <= MOST_RESPONSE_BYTES


async def test_a_client_that_does_not_read_is_cut(tmp_path: Path) -> None:
    """The gateway keeps a bounded number of bytes for a client, and then ends the probe."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS)
        for _ in range(40):
            await talk.say(chunk(b"x" * 65536))

    async with lane_rigged(script, tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await until(gone(rig.relay_rig.engine.talks[0]))
            await whole(response)
        assert (response.outcome, response.detail) == (
            LaneOutcome.FAILED,
            "the gateway has closed the connection",
        )


async def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    """Characters are put together over pieces, and what is none becomes U+FFFD."""
    smile = "\U0001f600".encode()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(b"a" + smile[:2]))
        await talk.delivered()
        await talk.say(chunk(smile[2:] + b"\xff"), chunk(smile[:3]), LAST)

    async with (
        lane_rigged(script, tmp_path) as rig,
        rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response,
    ):
        text = (await whole(response)).decode()
    assert text == "a\U0001f600\ufffd\ufffd"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        EVENTS + chunk(b"data: 1\n\n"),
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
    ],
)
async def test_an_engine_that_breaks_off_is_a_failure(tmp_path: Path, said: bytes) -> None:
    """No incomplete response passes for a complete one, and nothing is sent again."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(said)

    async with lane_rigged(script, tmp_path) as rig:
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            await whole(response)
        assert response.outcome is LaneOutcome.FAILED
        assert response.detail
        assert len(rig.relay_rig.engine.heard) == 1


async def test_an_engine_that_dies_of_probes(tmp_path: Path) -> None:
    """An engine that dies twice of probes is sent no more of them, and pages are fetched."""

    async def script(talk: Talk) -> None:
        heard = await talk.request()
        await talk.say(sized(b"1") if b"/metrics" in heard.line else b"")

    async with lane_rigged(script, tmp_path) as rig:
        for _ in range(2):
            async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
                await whole(response)
            assert response.outcome is LaneOutcome.FAILED
            await settle()
            rig.relay_rig.crash()
            rig.relay_rig.tell(Standing.SERVING)
        with pytest.raises(LaneBusyError, match="died twice"):
            async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20):
                pass
        async with rig.lane.send("genesis", "/metrics", None, timeout_s=20) as response:
            assert await whole(response) == b"1"
        assert len(rig.relay_rig.engine.heard) == 3


async def test_an_engine_that_is_away_is_a_failure(tmp_path: Path) -> None:
    """An engine that accepts no connection has failed, rather than being busy."""
    async with lane_rigged(answering(), tmp_path) as rig:
        await rig.relay_rig.engine.close()
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            assert await whole(response) == b""
        assert (response.status, response.outcome, response.detail) == (
            0,
            LaneOutcome.FAILED,
            "the engine accepts no connection",
        )


async def said_to_lane(rig: LaneRig, raw: bytes) -> bytes:
    """Return all that the gateway answers to bytes on lane.sock."""
    reader, writer = await asyncio.open_unix_connection(rig.path)
    try:
        writer.write(raw)
        writer.write_eof()
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
        await settle()


@pytest.mark.parametrize("raw", [b"{}\n", b'{"verb":"probe"}\n', b"\xff\n", b"[" * 90_000 + b"\n"])
async def test_a_line_that_is_no_command_is_told(tmp_path: Path, raw: bytes) -> None:
    """A client learns that its command was not understood."""
    async with lane_rigged(answering(), tmp_path) as rig:
        answer = json.loads(await said_to_lane(rig, raw))
    assert answer["event"] == "failed"
    assert answer["why"]


@pytest.mark.parametrize("raw", [b"", b'{"verb"', b"x" * (2 << 20)])
async def test_a_command_without_an_end_is_dropped(tmp_path: Path, raw: bytes) -> None:
    """Bytes that are no line are not kept, and the next client is served."""
    async with lane_rigged(answering(sized(b"{}")), tmp_path) as rig:
        assert await said_to_lane(rig, raw) == b""
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            assert await whole(response) == b"{}"


async def test_a_gateway_that_is_away_is_busy(tmp_path: Path) -> None:
    """Without a gateway nothing is sent, which is no failure of the engine."""
    async with lane_rigged(answering(), tmp_path) as rig:
        pass
    with pytest.raises(LaneBusyError, match="the gateway does not answer"):
        await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
