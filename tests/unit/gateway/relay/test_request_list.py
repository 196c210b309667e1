"""List of requests in flight and held, and the cancelling of one of them."""

import asyncio
import sys
from types import FrameType
from typing import Any

from appliance.gateway.exchange import Exchange
from appliance.gateway.meter import Meter
from appliance.gateway.supervisor_commands import MOST_LISTED, RequestList
from appliance.model.gateway import Standing
from tests.fakes.engine_server import EVENTS, LAST, Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import Rig, post, rigged
from tests.waiting import settle, until

STREAM = {"model": "genesis", "stream": True, "messages": [{"content": "my secret prompt"}]}
EVENT = b'data: {"choices":[{"delta":{"content":"secret answer"}}]}\n\n'


def rows(listed: RequestList) -> list[dict[str, Any]]:
    """Rows of the list, whose ids are short texts."""
    found: Any = listed.document()["requests"]
    assert all(0 < len(row["id"]) < 20 for row in found)
    return list(found)


class Slow:
    """Engine that sends the pieces of a stream when a test wants them."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def __call__(self, talk: Talk) -> None:
        await talk.request()
        talk.writer.write(EVENTS)
        try:
            while piece := await self.pieces.get():
                talk.writer.write(chunk(piece))
                await talk.writer.drain()
            talk.writer.write(LAST)
        finally:
            self.gone.set()


async def test_a_held_request_is_listed_and_cancelled() -> None:
    """The client gets an error after which no client tries again; the others wait on."""
    async with rigged(answering(sized(b"{}"))) as rig:
        rig.tell(Standing.STARTING, held=["genesis"])
        listed = RequestList(rig.relay)
        callers = [await rig.connect() for _ in range(2)]
        for caller in callers:
            await caller.send(post(headers="Authorization: Bearer right\r\n"))
        await until(lambda: len(rig.relay.hold_queue) == 2)
        first, second = rows(listed)
        assert {**first, "id": "", "age_s": 0} == {
            "id": "",
            "profile": "genesis",
            "api": "chat",
            "key": "someone",
            "state": "held",
            "streams": False,
            "age_s": 0,
            "waited_s": None,
            "pieces": 0,
            "bytes": 0,
            "tokens": None,
        }
        assert first["id"] != second["id"]
        assert [row["id"] for row in rows(listed)] == [first["id"], second["id"]]
        assert listed.cut("none-1") is None
        # Those of another process, which begins to count anew, are others.
        assert not {row["id"] for row in rows(RequestList(rig.relay))} & {first["id"], second["id"]}
        assert listed.cut(first["id"]) is not None
        answer = await callers[0].answer()
        assert (answer.status, answer.error["code"]) == (403, "request_cancelled")
        assert [row["id"] for row in rows(listed)] == [second["id"]]
        assert listed.cut(first["id"]) is None
        rig.tell(Standing.SERVING)
        assert (await callers[1].answer()).status == 200
        assert rows(listed) == []


async def test_a_stream_is_listed_without_its_texts_and_cut() -> None:
    """Pieces and bytes are counted; prompt and answer are not told; the engine's connection ends at once."""
    engine = Slow()
    async with rigged(engine) as rig:
        listed = RequestList(rig.relay)
        caller = await rig.connect()
        await caller.send(post(STREAM))
        for _ in range(3):
            engine.pieces.put_nowait(EVENT)
            await until(engine.pieces.empty)
            await settle()
        await until(lambda: rows(listed)[0]["pieces"] > 0)
        [row] = rows(listed)
        assert (row["state"], row["streams"], row["key"], row["tokens"]) == (
            "answering",
            True,
            None,
            None,
        )
        assert "secret" not in str(row)
        assert listed.cut(row["id"]) == row
        answer = await caller.answer()
        assert b"request_cancelled" in answer.body
        assert answer.whole
        assert rig.watcher.seen[0].end is not None
        assert rig.watcher.seen[0].end[0] == 403
        await asyncio.wait_for(until_closed(rig), 5)


async def until_closed(rig: Rig) -> None:
    """Wait until the engine's side has no request under way."""
    await until(lambda: rig.relay.in_flight(["genesis"]) == 0)


async def test_tokens_are_those_that_the_stream_tells() -> None:
    """An engine that tells its usage with each piece is taken at its word."""
    engine = Slow()
    async with rigged(engine) as rig:
        listed = RequestList(rig.relay)
        caller = await rig.connect()
        await caller.send(post(STREAM))
        engine.pieces.put_nowait(b'data: {"choices":[],"usage":{"completion_tokens":7}}\n\n')
        await until(lambda: rows(listed)[0]["tokens"] == 7)
        engine.pieces.put_nowait(b"")
        assert (await caller.answer()).whole


async def test_the_oldest_are_listed_and_the_rest_counted() -> None:
    """A crowd makes neither a long answer nor much work: requests that are left off are not summarised."""
    async with rigged(answering(sized(b"{}"))) as rig:
        rig.tell(Standing.STARTING, held=["genesis"])
        callers = [await rig.connect() for _ in range(MOST_LISTED + 5)]
        for caller in callers:
            caller.writer.write(post())
        await until(lambda: len(rig.relay.hold_queue) == MOST_LISTED + 5)
        summaries = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal summaries
            summaries += event == "call" and frame.f_code is Exchange.row.__code__

        sys.setprofile(count)
        try:
            found = RequestList(rig.relay).document()
        finally:
            sys.setprofile(None)
        assert summaries == MOST_LISTED
        assert len(found["requests"]) == MOST_LISTED
        assert found["left_off"] == 5


def test_progress_counts_each_piece_once() -> None:
    """Also after the gaps of a long stream were counted while it lasts."""
    seconds = 10.0
    meter = Meter(clock=lambda: seconds)
    request = meter.begin("aeon", None)
    assert request.progress().waited_s is None
    request.sent()
    for seconds in (10.5, 11.0, 12.0, 30.0):  # noqa: B007 - the clock reads it
        request.chunk(100)
    seconds = 41.0
    meter.document()
    request.chunk(50)
    progress = request.progress()
    assert (progress.pieces, progress.size_bytes) == (5, 450)
    assert (progress.age_s, progress.waited_s) == (31.0, 0.0)
