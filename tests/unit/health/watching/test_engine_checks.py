"""Checks of engines and gateway through the lane."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from appliance.health.watching.engine_checks import CheckedEngine, EngineChecks
from appliance.model.errors import LaneAwayError, LaneBusyError
from appliance.wire.lane import LaneOutcome
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeLaneResponse, FakeProbeLane, LaneAnswer, LaneRequest
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

ENGINE = CheckedEngine(health_path="/health", main_pid=7)
GOOD = LaneAnswer(pieces=[(0.01, b"ok")])


class Box:
    """Gateway with one engine, `a`."""

    def __init__(self) -> None:
        self.engine: Callable[[], LaneAnswer] = lambda: GOOD
        self.is_away = False
        self.lane = FakeProbeLane(self._answer)
        self.turn = asyncio.Lock()
        self.checks = EngineChecks(self.lane, VirtualHealthClock(), self.turn)

    def _answer(self, request: LaneRequest) -> LaneAnswer:
        if self.is_away:
            raise LaneAwayError("away")
        if request.profile != "a":
            raise LaneBusyError("it is not applied")
        return self.engine()

    async def ask(self, pid: int = 7) -> bool | None:
        """Whether the engine answers, of a gateway that does."""
        engine = CheckedEngine(health_path="/health", main_pid=pid)
        answers = await self.checks.answers({"a": engine})
        assert answers.gateway
        return answers.engines.get("a")


def refuse() -> LaneAnswer:
    """Have the lane refuse a check."""
    raise LaneBusyError("requests of clients are under way: 1")


def hang() -> LaneAnswer:
    """Have the gateway wait for an engine that accepts no connection."""
    raise LaneAwayError("the gateway does not answer")


async def test_an_engine_that_answers_is_asked_now_and_then() -> None:
    """The answer stands for half a minute, unless the engine is another process by then."""
    box = Box()
    assert await box.ask()
    assert [(r.profile, r.path, r.body) for r in box.lane.requests] == [("a", "/health", None)]
    await advance(20.0)
    assert await box.ask()
    assert len(box.lane.requests) == 1
    assert await box.ask(pid=8)
    assert len(box.lane.requests) == 2
    await advance(30.0)
    assert await box.ask(pid=8)
    assert len(box.lane.requests) == 3


@pytest.mark.parametrize(
    "engine",
    [
        lambda: LaneAnswer(status=503, pieces=[(0.01, b"loading")]),
        lambda: LaneAnswer(outcome=LaneOutcome.FAILED, status=0),
        lambda: LaneAnswer(pieces=[(60.0, b"late")]),
        hang,
    ],
    ids=["loads", "broken", "silent", "not accepting"],
)
async def test_an_engine_that_does_not_answer_is_asked_at_each_look(
    engine: Callable[[], LaneAnswer],
) -> None:
    """Errors and silence are no answer; each look asks anew, so that none counts twice."""
    box = Box()
    box.engine = engine
    assert await box.ask() is False
    box.engine = lambda: GOOD
    assert await box.ask() is True


async def test_a_busy_lane_tells_nothing() -> None:
    """While clients, a probe or a bench have the lane the last answer stands, for a minute."""
    box = Box()
    assert await box.ask()
    await advance(35.0)
    box.engine = refuse
    assert await box.ask() is True
    await advance(30.0)
    assert await box.ask() is None
    async with box.turn:
        box.engine = lambda: GOOD
        assert await box.ask() is None
    assert await box.ask() is True


async def test_a_check_yields_to_a_client() -> None:
    """A check that a request of a client ends says nothing about the engine."""
    box = Box()
    box.engine = lambda: LaneAnswer(pieces=[(1.0, b"ok")])
    asked = asyncio.create_task(box.ask())
    await advance(0.5)
    box.lane.request_arrives()
    assert await asked is None


async def test_a_gateway_that_is_away_is_told() -> None:
    """Without the gateway nothing is known of engines, and none is asked."""
    box = Box()
    assert await box.ask()
    box.is_away = True
    answers = await box.checks.answers({"a": ENGINE})
    assert (answers.gateway, answers.engines) == (False, {})


async def test_a_gateway_that_hangs_is_told() -> None:
    """A gateway that accepts connections and says nothing does not answer."""
    checks = EngineChecks(HangingLane(lambda _: GOOD), VirtualHealthClock(), asyncio.Lock())
    assert not (await checks.answers({"a": ENGINE})).gateway


class HangingLane(FakeProbeLane):
    """Lane whose connections are accepted by the kernel and never answered."""

    @asynccontextmanager
    async def send(
        self, profile: str, path: str, body: Mapping[str, object] | None, *, timeout_s: float
    ) -> AsyncIterator[FakeLaneResponse]:
        await advance(3600.0)
        async with super().send(profile, path, body, timeout_s=timeout_s) as response:
            yield response


async def test_engines_after_a_slow_one_are_asked_at_the_next_look() -> None:
    """One look takes a few seconds at most, however many engines are silent."""
    box = Box()
    box.lane.answer = lambda r: (
        refuse() if r.profile.startswith("nobody") else LaneAnswer(pieces=[(60.0, b"")])
    )
    began_s = asyncio.get_running_loop().time()
    answers = await box.checks.answers(dict.fromkeys("abc", ENGINE))
    assert asyncio.get_running_loop().time() - began_s <= 2.6
    assert answers.engines == {"a": False, "b": False}
