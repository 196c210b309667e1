"""Clients that hang up at any moment: the work at the engine ends, and nothing is left behind."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from appliance.model.gateway import Standing
from tests.fakes.engine_server import EVENTS, Talk, chunk, sized
from tests.unit.gateway.relay.rig import ASKED, Caller, Rig, get, post, rigged
from tests.waiting import settle, until

HANGUPS = 100
ENDED_S = 0.2
"""Time in which the engine has to see the end of a request."""


@dataclass
class WorkingEngine:
    """Engine that works on every request until its client is gone, as a long prompt makes it."""

    began: int = 0
    ended_s: list[float] = field(default_factory=list)
    """Times of the event loop at which the end of a request was seen."""
    whole: int = 0

    def has_ended(self, before: int) -> bool:
        """Tell whether more requests have ended than before."""
        return len(self.ended_s) > before

    async def script(self, talk: Talk) -> None:
        """Read a request, begin to answer where it wants, and wait for its end."""
        while True:
            heard = await talk.request()
            if b'"quick"' in heard.body:
                self.whole += 1
                await talk.say(sized(b"{}"))
                continue
            self.began += 1
            if b'"decode"' in heard.body:
                await talk.say(EVENTS, chunk(b"data: 1\n\n"))
            try:
                left = await talk.reader.read()
            except ConnectionError:
                left = b""
            assert left == b""
            self.ended_s.append(asyncio.get_running_loop().time())
            return


async def in_prefill(rig: Rig, engine: WorkingEngine, *, stream: bool) -> Caller:
    caller, before = await rig.connect(), engine.began
    caller.writer.write(post(ASKED | {"stream": stream}))
    await until(lambda: engine.began > before)
    return caller


async def in_decode(rig: Rig, engine: WorkingEngine, *, stream: bool) -> Caller:
    caller = await rig.connect()
    caller.writer.write(post(ASKED | {"stream": stream, "user": "decode"}))
    await caller.reader.readuntil(b"data: 1\n\n")
    assert engine.began
    return caller


async def in_upload(rig: Rig, _engine: WorkingEngine, *, stream: bool) -> Caller:
    caller = await rig.connect()
    raw = post(ASKED | {"stream": stream, "user": "x" * 1000})
    await caller.send(raw[:-500])
    return caller


async def on_the_way(rig: Rig, _engine: WorkingEngine, *, stream: bool) -> Caller:
    """Return a caller whose request may or may not have got anywhere."""
    caller = await rig.connect()
    caller.writer.write(post(ASKED | {"stream": stream}))
    await settle(random.randrange(8))  # noqa: S311 - no secret
    return caller


Stage = Callable[..., Awaitable[Caller]]
STAGES: list[Stage] = [in_prefill, in_decode, in_upload, on_the_way]


async def hang_up(caller: Caller, *, how: str) -> None:
    """Reset the connection, close it, or close only its sending half."""
    match how:
        case "reset":
            caller.writer.transport.abort()
        case "close":
            caller.writer.close()
        case _:
            caller.writer.write_eof()
    await settle(2)


@pytest.mark.parametrize("seed", range(2))
async def test_random_hangups_end_the_work(seed: int) -> None:
    """A hundred clients leave at random: each request ends at the engine, and no place is taken."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    engine = WorkingEngine()
    slowest_s = 0.0
    async with rigged(engine.script) as rig:
        loop = asyncio.get_running_loop()
        for _ in range(HANGUPS // 2):
            stage = chance.choice(STAGES)
            caller = await stage(rig, engine, stream=chance.random() < 0.5)
            ended, left_s = len(engine.ended_s), loop.time()
            await hang_up(caller, how=chance.choice(["reset", "close", "half"]))
            if stage in {in_prefill, in_decode}:
                await until(partial(engine.has_ended, ended))
                slowest_s = max(slowest_s, engine.ended_s[-1] - left_s)
        await nothing_is_left(rig, engine)
        assert slowest_s < ENDED_S
        # The way is free: nothing of those that left is sent on, and a connection is kept again.
        assert (await rig.ask(post(ASKED | {"user": "quick"}))).status == 200
        assert engine.whole == 1


async def test_random_hangups_in_the_hold_queue_reach_no_engine() -> None:
    """Requests whose clients leave while they wait are not sent on when the model serves."""
    chance = random.Random(3)  # noqa: S311 - no secret
    engine = WorkingEngine()
    async with rigged(engine.script) as rig:
        rig.tell(Standing.STARTING)
        callers = []
        for number in range(HANGUPS):
            caller = await rig.connect()
            caller.writer.write(post(ASKED | {"stream": number % 2 == 0}))
            callers.append(caller)
        await until(lambda: len(rig.relay.hold_queue) == HANGUPS)
        # Streams are sent signs of life by now: their status has been sent.
        await asyncio.wait_for(callers[0].reader.readuntil(b'"waiting"'), 5)
        chance.shuffle(callers)
        for caller in callers:
            await hang_up(caller, how=chance.choice(["reset", "close", "half"]))
        await until(lambda: len(rig.relay.hold_queue) == 0)
        rig.tell(Standing.SERVING)
        await settle()
        await nothing_is_left(rig, engine)
        assert engine.began == 0


async def test_a_client_that_sends_too_far_ahead_is_missed_too() -> None:
    """A connection that is not read, because too much waits on it already, is looked at all the same."""
    engine = WorkingEngine()
    async with rigged(engine.script) as rig:
        caller = await in_prefill(rig, engine, stream=False)
        with suppress(TimeoutError):
            await asyncio.wait_for(caller.send(*[get("/health") * 1000] * 20), 0.3)
        assert not engine.ended_s
        caller.writer.transport.abort()
        await until(lambda: engine.ended_s, within_s=5)
        await nothing_is_left(rig, engine)


async def nothing_is_left(rig: Rig, engine: WorkingEngine) -> None:
    """Wait until no request, connection or byte of a client that left is kept."""
    await until(lambda: len(engine.ended_s) == engine.began)
    await until(lambda: rig.relay.requests_under_way() == 0)
    await until(lambda: all(seen.end is not None for seen in rig.watcher.seen))
    await until(lambda: rig.relay.buffered_bytes == 0)
    upstream = rig.relay.upstreams.get("genesis")
    if upstream is not None:
        await until(lambda: len(upstream.pool._watched) == upstream.pool.idle)
        # A connection that was opened for a client that has left is kept for the next one.
        assert upstream.pool.idle <= 1 + HANGUPS
