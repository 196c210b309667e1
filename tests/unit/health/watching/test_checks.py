"""Checks: bounded readings, engines by the gateway's lane, units and URLs of `[[watch]]` entries."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.alerts.snapshot import UnitLook, WatchLook
from appliance.health.watching.checks import (
    CheckedEngine,
    EngineChecks,
    PeriodicReading,
    UrlAnswer,
    WatchChecks,
    ask_no_url,
)
from appliance.model.errors import LaneAwayError, LaneBusyError, UnitError
from appliance.model.observed import ActiveState
from appliance.model.words import Mark
from appliance.settings.tables import WatchSettings
from appliance.wire.lane import LaneOutcome
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeLaneResponse, FakeProbeLane, LaneAnswer, LaneRequest
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time


class Source:
    """Source that counts its readings and fails or hangs on request."""

    def __init__(self) -> None:
        self.readings = 0
        self.fault: Exception | None = None
        self.takes_s = 0.0

    async def read(self) -> int | None:
        """Return how often it was read."""
        await advance(self.takes_s)
        if self.fault is not None:
            raise self.fault
        self.readings += 1
        return self.readings


async def test_a_reading_serves_for_its_period() -> None:
    """A source is asked again when its period is over, a second early at most, or another one is asked for."""
    source = Source()
    reading = PeriodicReading("it", source.read, VirtualHealthClock(), every_s=30.0)
    assert await reading.latest() == 1
    await advance(28.9)
    assert await reading.latest() == 1
    assert await reading.latest(every_s=0.0) == 2
    await advance(29.1)
    assert await reading.latest() == 3


@pytest.mark.parametrize("fault", [UnitError("gone"), OSError("gone"), ValueError("gone")])
async def test_a_fault_is_none_and_told_once(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed reading gives nothing, and the log has its beginning and its end."""
    caplog.set_level(logging.INFO)
    source = Source()
    reading = PeriodicReading("the thing", source.read, VirtualHealthClock())
    source.fault = fault
    assert [await reading.latest(), await reading.latest()] == [None, None]
    source.fault = None
    assert await reading.latest() == 1
    assert [record.getMessage() for record in caplog.records] == [
        "the thing cannot be observed: gone",
        "the thing can be observed again",
    ]


async def test_a_source_that_hangs_is_left() -> None:
    """A reading takes three seconds at most, and its last result does not outlive it."""
    source = Source()
    reading = PeriodicReading("it", source.read, VirtualHealthClock())
    assert await reading.latest() == 1
    source.takes_s = 60.0
    began_s = asyncio.get_running_loop().time()
    assert await reading.latest() is None
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3.0)


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


NAS = WatchSettings(name="nas", url="http://nas/", unit=None, mark=Mark.LIVE, every=30.0)
OLD = WatchSettings(name="old", url=None, unit="vllm.service", mark=Mark.STANDBY, every=30.0)


class Nas:
    """Service on another machine."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: UrlAnswer | None = UrlAnswer(is_up=True)

    async def ask(self, url: str, _timeout_s: float) -> UrlAnswer | None:
        """Answer as it is now."""
        self.asked.append(url)
        return self.answer


async def test_a_url_is_asked_at_its_pace_and_again_while_it_is_down() -> None:
    """An answer serves for its period; a failure is looked at anew each time."""
    nas = Nas()
    checks = WatchChecks([NAS, OLD], nas.ask, VirtualHealthClock())
    for _ in range(3):
        assert await checks.urls() == {"nas": UrlAnswer(is_up=True)}
        await advance(9.0)
    assert nas.asked == ["http://nas/"]
    nas.answer = UrlAnswer(is_up=False, detail="status 503")
    await advance(10.0)
    for _ in range(3):
        await checks.urls()
        await advance(9.0)
    assert len(nas.asked) == 4
    urls = await checks.urls()
    assert replace(checks.looks({}, urls, {})[0], read_s=None) == WatchLook(
        name="nas", mark=Mark.LIVE, is_up=False, detail="status 503", host="nas"
    )


@pytest.mark.parametrize(
    ("unit", "is_up", "detail"),
    [
        (UnitLook(unit="vllm.service", active=ActiveState.ACTIVE, sub="running"), True, ""),
        (UnitLook(unit="vllm.service", active=ActiveState.RELOADING, sub="reload"), True, ""),
        (
            UnitLook(unit="vllm.service", active=ActiveState.FAILED, sub="failed"),
            False,
            "vllm.service is failed (failed)",
        ),
    ],
)
async def test_a_unit_is_up_while_it_is_active(*, unit: UnitLook, is_up: bool, detail: str) -> None:
    """The state of a unit is that of systemd."""
    checks = WatchChecks([OLD], ask_no_url, VirtualHealthClock())
    assert checks.units() == ("vllm.service",)
    (look,) = checks.looks({"vllm.service": unit}, {}, {"old": "retired"})
    assert look == WatchLook(name="old", mark=Mark.RETIRED, is_up=is_up, detail=detail)


async def test_what_cannot_be_asked_is_unknown() -> None:
    """Without systemd or a checker an entry is neither up nor down; a mark that is none is not taken."""
    checks = WatchChecks([NAS, OLD], ask_no_url, VirtualHealthClock())
    looks = checks.looks(None, await checks.urls(), {"nas": "loud"})
    assert [(look.name, look.mark, look.is_up) for look in looks] == [
        ("nas", Mark.LIVE, None),
        ("old", Mark.STANDBY, None),
    ]
    assert [look.is_up for look in checks.looks({}, {}, {})] == [None, None]
