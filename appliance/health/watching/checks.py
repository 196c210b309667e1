"""Checks of what may not answer: engines and the gateway through its lane, and the `[[watch]]` entries.

A reading of such a source is bounded in time and not made too often (`PeriodicReading`).

=======================================  ======================================================
an engine is checked                     while
=======================================  ======================================================
every 30 s                               it has answered, and still has the same main process
at each look                             it has not, or was not checked yet
not at all                               a client, a probe or a bench has the lane: the last
                                         answer stands for a minute, then nothing is known
=======================================  ======================================================

Requests of clients come first: a check yields to them, and has no result then.

A `[[watch]]` entry is a unit of this box, or a URL that the checker requests: at its own pace while it answers, and at
each look while it does not, since one failure would count as several otherwise.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from appliance.alerts.snapshot import UnitLook, WatchLook
from appliance.health.clock import HealthClock
from appliance.model.errors import ApplianceError, LaneAwayError, LaneBusyError
from appliance.model.observed import ActiveState
from appliance.model.words import Mark
from appliance.settings.tables import WatchSettings
from appliance.system.ports import ProbeLane
from appliance.wire.lane import LaneOutcome

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 3.0
_EARLY_S: Final = 1.0
"""Time by which a look may come too early and still read: else it would wait for a whole further look."""
T = TypeVar("T")


class PeriodicReading(Generic[T]):
    """Reading of one source.

    Args:
        what: What is read, for the log: ``the units``.
        read: Reads it; raises `ApplianceError`, OSError or ValueError. None: it cannot be seen.
        clock: Of the health agent.
        every_s: Age up to which the last reading serves; 0: each is new.
        patience_s: Longest time of a reading.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[], Awaitable[T | None]],
        clock: HealthClock,
        *,
        every_s: float = 0.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._what = what
        self._read = read
        self._clock = clock
        self._every_s = every_s
        self._patience_s = patience_s
        self._last: T | None = None
        self._last_s = float("-inf")
        self._fault = ""

    @property
    def read_s(self) -> float:
        """Time at which the last reading began; minus infinity: there was none."""
        return self._last_s

    async def latest(self, *, every_s: float | None = None) -> T | None:
        """Return the reading of now, or the last one while it serves; None: it failed.

        Args:
            every_s: Age up to which the last reading serves this time; None: the usual one.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s < (self._every_s if every_s is None else every_s) - _EARLY_S:
            return self._last
        self._last_s = now_s
        fault = ""
        try:
            async with asyncio.timeout(self._patience_s):
                self._last = await self._read()
        except TimeoutError:
            self._last, fault = None, f"no answer in {self._patience_s:g} s"
        except (ApplianceError, OSError, ValueError) as error:
            self._last, fault = None, str(error) or type(error).__name__
        self._tell(fault)
        return self._last

    def _tell(self, fault: str) -> None:
        if fault and not self._fault:
            _log.warning("%s cannot be observed: %s", self._what, fault)
        elif self._fault and not fault:
            _log.info("%s can be observed again", self._what)
        self._fault = fault


_EVERY_S: Final = 29.0
_STANDS_S: Final = 60.0
_TIMEOUT_S: Final = 2.0
"""Time for a health path. It answers within milliseconds, within a second on a loaded box."""
_ALL_S: Final = 2.5
"""Time for all engines of one look."""
_NOBODY: Final = "nobody.is.called.this"
"""Name for which the gateway refuses a probe at once, which shows that it answers."""
_OK: Final = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEngine:
    """Engine that serves."""

    health_path: str
    main_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswers:
    """Answers at one look."""

    gateway: bool
    """Whether the gateway answers."""
    engines: Mapping[str, bool] = field(default_factory=dict)
    """Whether each engine answers, by profile; absent: not known."""
    read_s: Mapping[str, float] = field(default_factory=dict)
    """Times of these answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    main_pid: int
    answered: bool
    at_s: float


class EngineChecks:
    """Checker of the engines that serve.

    Args:
        lane: Lane of the gateway.
        clock: Of the health agent.
        turn: Of the lane, which takes one request at a time: while it is taken no engine is asked.
    """

    def __init__(self, lane: ProbeLane, clock: HealthClock, turn: asyncio.Lock) -> None:
        self._lane = lane
        self._clock = clock
        self._turn = turn
        self._answers: dict[str, _Answer] = {}

    async def answers(self, serving: Mapping[str, CheckedEngine]) -> EngineAnswers:
        """Return which of the engines answer, asking those that are due."""
        known = self._answers
        self._answers = {
            name: known[name]
            for name, engine in serving.items()
            if name in known and known[name].main_pid == engine.main_pid
        }
        if not await self._gateway_answers():
            return EngineAnswers(gateway=False)
        if not self._turn.locked():
            async with self._turn:
                await self._ask({name: e for name, e in serving.items() if self._is_due(name)})
        now_s = self._clock.monotonic_s()
        fresh = {n: a for n, a in self._answers.items() if now_s - a.at_s < _STANDS_S}
        return EngineAnswers(
            gateway=True,
            engines={name: answer.answered for name, answer in fresh.items()},
            read_s={name: answer.at_s for name, answer in fresh.items()},
        )

    def _is_due(self, name: str) -> bool:
        last = self._answers.get(name)
        return (
            last is None or not last.answered or self._clock.monotonic_s() - last.at_s >= _EVERY_S
        )

    async def _gateway_answers(self) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                async with self._lane.send(_NOBODY, "/", None, timeout_s=_TIMEOUT_S):
                    return True
        except (LaneAwayError, TimeoutError):
            return False
        except LaneBusyError:
            return True

    async def _ask(self, engines: Mapping[str, CheckedEngine]) -> None:
        until_s = self._clock.monotonic_s() + _ALL_S
        for name, engine in engines.items():
            left_s = until_s - self._clock.monotonic_s()
            answered = await self._answered(name, engine, left_s) if left_s > 0 else None
            if answered is not None:
                self._answers[name] = _Answer(
                    main_pid=engine.main_pid,
                    answered=answered,
                    at_s=self._clock.monotonic_s(),
                )

    async def _answered(self, name: str, engine: CheckedEngine, left_s: float) -> bool | None:
        """Tell whether an engine answers; None: the lane is busy, or a client came."""
        try:
            async with asyncio.timeout(left_s):
                async with self._lane.send(
                    name, engine.health_path, None, timeout_s=_TIMEOUT_S
                ) as response:
                    async for _ in response.chunks():
                        pass
        except (LaneAwayError, TimeoutError):
            # The gateway answered just before: it waits for the engine to accept the connection.
            return False
        except LaneBusyError:
            return None
        if response.outcome is LaneOutcome.YIELDED:
            return None
        return response.outcome is LaneOutcome.ENDED and response.status in _OK


TIMEOUT_S: Final = 4.0
"""Time for an address of another machine, which may wake a disk first."""
_PATIENCE_S: Final = 6.5
"""Time for the answer about it, with the start of the checker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlAnswer:
    """Answer of a URL."""

    is_up: bool
    detail: str = ""
    """Phrase about what was wrong; empty: nothing."""


AskUrl = Callable[[str, float], Awaitable[UrlAnswer | None]]
"""Function that requests a URL within some seconds; None: the checker does not answer."""


async def ask_no_url(_url: str, _timeout_s: float) -> UrlAnswer | None:
    """Return None: there is no checker."""
    return None


class WatchChecks:
    """Checker of the entries.

    Args:
        entries: As the settings have them.
        ask: Asks a URL.
        clock: Of the health agent.
    """

    def __init__(self, entries: Sequence[WatchSettings], ask: AskUrl, clock: HealthClock) -> None:
        self._entries = entries
        self._urls = {
            entry.name: PeriodicReading(
                f"the watch {entry.name}",
                partial(ask, entry.url, TIMEOUT_S),
                clock,
                every_s=entry.every,
                patience_s=_PATIENCE_S,
            )
            for entry in entries
            if entry.url is not None
        }
        self._down: frozenset[str] = frozenset()

    def units(self) -> tuple[str, ...]:
        """Return the units that are watched."""
        return tuple(entry.unit for entry in self._entries if entry.unit is not None)

    async def urls(self) -> Mapping[str, UrlAnswer | None]:
        """Return the answer of each URL by its entry's name; None: not known."""
        answers = await asyncio.gather(
            *(
                r.latest(every_s=0.0 if name in self._down else None)
                for name, r in self._urls.items()
            )
        )
        found = dict(zip(self._urls, answers, strict=True))
        self._down = frozenset(n for n, a in found.items() if a is not None and not a.is_up)
        return found

    def looks(
        self,
        units: Mapping[str, UnitLook] | None,
        urls: Mapping[str, UrlAnswer | None],
        marks: Mapping[str, str],
    ) -> tuple[WatchLook, ...]:
        """Return every entry.

        Args:
            units: Units by name; None: they could not be read.
            urls: Result of `urls`.
            marks: Marks that operators have set, by name.
        """
        return tuple(
            WatchLook(
                name=entry.name,
                mark=_mark(entry, marks),
                is_up=is_up,
                detail=detail,
                host="" if entry.url is None else urlsplit(entry.url).hostname or "",
                read_s=self._urls[entry.name].read_s if entry.name in self._urls else None,
            )
            for entry in self._entries
            for is_up, detail in (_state(entry, units, urls),)
        )


def _mark(entry: WatchSettings, marks: Mapping[str, str]) -> Mark:
    told = marks.get(entry.name, "")
    return Mark(told) if told in set(Mark) else entry.mark


def _state(
    entry: WatchSettings,
    units: Mapping[str, UnitLook] | None,
    urls: Mapping[str, UrlAnswer | None],
) -> tuple[bool | None, str]:
    """Return whether an entry is up, and what is wrong with it."""
    if entry.unit is None:
        answer = urls.get(entry.name)
        return (None, "") if answer is None else (answer.is_up, answer.detail)
    unit = None if units is None else units.get(entry.unit)
    if unit is None:
        return None, ""
    is_up = unit.active in {ActiveState.ACTIVE, ActiveState.RELOADING}
    return is_up, "" if is_up else f"{entry.unit} is {unit.active} ({unit.sub})"
