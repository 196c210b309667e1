"""Faults of the gateway itself: one request ends with a refusal or a break, one line is logged, no other suffers."""

import asyncio
import json
import logging
from collections.abc import Generator

import pytest

from appliance.gateway.relay import RequestProgress
from appliance.gateway.request_body import ScanQueue
from appliance.model.gateway import Key, Standing
from tests.fakes.engine_server import CHUNKED, EVENTS, LAST, Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import (
    RecordedObservation,
    RecordingObserver,
    Rig,
    get,
    post,
    rigged,
)
from tests.waiting import until

TEXT = "a prompt that nobody may read"
PROMPT = {"model": "genesis", "messages": [TEXT]}
LONG = {"model": "genesis", "messages": [TEXT * 1000]}


class FaultyObserver(RecordingObserver):
    """Observer with a fault in one of its methods, or of its observations' methods."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def fail(self, place: str) -> None:
        if place == self.place:
            raise RuntimeError(TEXT)

    def begin(self, profile: str, key: Key | None) -> RecordedObservation:
        self.fail("begin")
        super().begin(profile, key)
        return FaultyObservation(self)

    def begin_sent(self, profile: str, key: Key | None) -> RecordedObservation:
        self.fail("begin_sent")
        super().begin_sent(profile, key)
        return FaultyObservation(self)


class FaultyObservation(RecordedObservation):
    """Observation of a `FaultyObserver`."""

    def __init__(self, observer: FaultyObserver) -> None:
        super().__init__(observer.seen[-1])
        self._observer = observer

    def sent(self) -> None:
        self._observer.fail("sent")

    def chunk(self, size: int) -> None:
        self._observer.fail("chunk")
        super().chunk(size)

    def owed(self, *, owed: bool) -> None:
        self._observer.fail("owed")
        super().owed(owed=owed)

    def progress(self) -> RequestProgress:
        self._observer.fail("progress")
        return super().progress()

    def end(self, status: int, tail: bytes, size: int = 0) -> None:
        self._observer.fail("end")
        super().end(status, tail, size)


class FaultyKeys:
    """Check of keys with a fault."""

    def check(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:  # noqa: ARG002
        raise RuntimeError(TEXT)


class FaultyHolder:
    """Holder of the probe lane with a fault."""

    def request_sent(self, token: bytes | None) -> None:  # noqa: ARG002
        raise RuntimeError(TEXT)

    def make_way(self) -> None:
        raise RuntimeError(TEXT)

    def owns(self, token: bytes | None) -> bool:  # noqa: ARG002
        raise RuntimeError(TEXT)


def check_log(caplog: pytest.LogCaptureFixture, count: int = 1) -> None:
    """Check that so many lines tell of faults, and quote nothing."""
    lines = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert len(lines) == len(caplog.records) == count
    assert all("RuntimeError at test_faults.py:" in one.getMessage() for one in lines)
    assert TEXT not in caplog.text
    assert "Traceback" not in caplog.text


async def check_usable(rig: Rig) -> None:
    """Check that the next client is served, and nothing is left of the last one."""
    rig.relay.observer = rig.watcher
    answer = await rig.ask(post())
    assert answer.status == 200
    await until(lambda: not len(rig.relay._clients))
    assert rig.relay.in_flight(["genesis"]) == rig.relay.buffered_bytes == 0


@pytest.mark.parametrize("document", [PROMPT, LONG], ids=["short", "scanned in steps"])
@pytest.mark.parametrize("place", ["begin", "begin_sent", "sent", "chunk"])
@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/chat/completions", "server_error"), ("/v1/messages", "api_error")]
)
async def test_before_the_response(
    place: str, path: str, kind: str, document: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the response has begun, the client is told in its own API."""
    # A connection is kept after an answer that has a length.
    is_kept = place == "begin_sent"
    said = sized(b"{}") if is_kept else EVENTS + chunk(b"data: 1\n\n") + LAST
    async with rigged(answering(said)) as rig:
        if is_kept:
            await rig.ask(post())
        rig.relay.observer = FaultyObserver(place)
        answer = await rig.ask(post(document, path=path))
        assert (answer.status, answer.whole) == (500, True)
        error = json.loads(answer.body)["error"]
        assert error["type"] == kind
        assert "journalctl -u appliance-gateway" in error["message"]
        await check_usable(rig)
    check_log(caplog)


@pytest.mark.parametrize(
    ("head", "whole"), [(EVENTS, True), (CHUNKED, False)], ids=["events", "another body"]
)
async def test_within_the_response(
    head: bytes, caplog: pytest.LogCaptureFixture, *, whole: bool
) -> None:
    """A stream of events ends with an error event; any other body is broken off."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(head, chunk(b"data: 1\n\n"))
        await until(lambda: observer.place == "chunk")
        await talk.say(chunk(b"data: 2\n\n"))
        await talk.request()

    observer = FaultyObserver("")
    async with rigged(script) as rig:
        rig.relay.observer = observer
        caller = await rig.connect()
        await caller.send(post(PROMPT))
        await until(lambda: bool(observer.seen and observer.seen[0].sizes))
        observer.place = "chunk"
        answer = await caller.answer()
        assert (answer.status, answer.whole) == (200, whole)
        assert (b'"code":"gateway_fault"' in answer.body) is whole
    check_log(caplog)


@pytest.mark.parametrize("said", [sized(b"{}"), EVENTS + LAST], ids=["at once", "in chunks"])
async def test_after_the_response(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A fault after the last byte adds nothing to the response, which is whole or broken off."""
    async with rigged(answering(said)) as rig:
        await rig.ask(post())
        rig.relay.observer = FaultyObserver("end")
        caller = await rig.connect()
        await caller.send(post(PROMPT))
        answer = await caller.answer()
        assert (answer.status, answer.whole) in {(200, True), (0, False)}
        await caller.close()
        await check_usable(rig)
    check_log(caplog)


@pytest.mark.parametrize("place", ["a key", "the lane"])
async def test_where_a_request_is_examined(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """A fault in what the relay is given ends the request that met it."""
    async with rigged(answering(sized(b"{}"))) as rig:
        checker, headers = rig.relay._key_checker, "Authorization: Bearer right\r\n"
        if place == "a key":
            rig.relay._key_checker = FaultyKeys()
        else:
            rig.relay.lane_holder = FaultyHolder()
        answer = await rig.ask(post(PROMPT, headers=headers))
        assert (answer.status, answer.error["code"]) == (500, "gateway_fault")
        rig.relay._key_checker, rig.relay.lane_holder = checker, None
        await check_usable(rig)
    check_log(caplog)


async def test_in_the_hold_queue(caplog: pytest.LogCaptureFixture) -> None:
    """A fault at one request of the queue ends that one; the others are sent on."""
    async with rigged(answering(sized(b"{}"))) as rig:
        rig.tell(Standing.STARTING)
        callers = [await rig.connect() for _ in range(3)]
        for caller in callers:
            await caller.send(post(PROMPT))
        await until(lambda: len(rig.relay.hold_queue) == 3)
        rig.relay.lane_holder = OneFault()
        rig.tell(Standing.SERVING)
        statuses = [(await caller.answer()).status for caller in callers]
        assert sorted(statuses) == [200, 200, 500]
        await check_usable(rig)
    check_log(caplog)


class OneFault(FaultyHolder):
    """Holder that fails once."""

    def __init__(self) -> None:
        self._failed = False

    def request_sent(self, token: bytes | None) -> None:
        if not self._failed:
            self._failed = True
            super().request_sent(token)


async def test_in_a_scan(caplog: pytest.LogCaptureFixture) -> None:
    """A fault in the scan of one body leaves the queue of scans working."""

    def faulty() -> Generator[None, None, None]:
        yield
        raise RuntimeError(TEXT)

    def good() -> Generator[None, None, None]:
        yield

    queue, told = ScanQueue(), list[object]()
    queue.add("a", faulty(), told.append)
    queue.add("a", good(), told.append)
    queue.add("b", good(), told.append)
    while queue.busy:
        await asyncio.sleep(0)
    refusals = [one for one in told if one is not None]
    assert len(told) == 3
    assert [getattr(one, "code", "") for one in refusals] == ["gateway_fault"]
    check_log(caplog)


async def test_a_client_that_leaves(caplog: pytest.LogCaptureFixture) -> None:
    """A fault while a client's connection is cleared up leaves it counted nowhere."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(b"data: 1\n\n"))
        await talk.request()

    async with rigged(script) as rig:
        rig.relay.observer = FaultyObserver("end")
        caller = await rig.connect()
        await caller.send(post(PROMPT))
        await caller.begun()
        await caller.close()
        await until(lambda: not len(rig.relay._clients))
        assert rig.relay.in_flight(["genesis"]) == rig.relay.buffered_bytes == 0
        assert (await rig.ask(get("/v1/models"))).status == 200
    check_log(caplog)
