"""Checks of engines on their health paths, and of the gateway, both through the gateway's lane.

=======================================  ======================================================
an engine is asked                       while
=======================================  ======================================================
every 30 s                               it has answered, and still has the same main process
at each look                             it has not, or was not asked yet
not at all                               a client, a probe or a bench has the lane: the last
                                         answer stands for a minute, then nothing is known
=======================================  ======================================================

Requests of clients come first: a check yields to them, and says nothing then.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.health.clock import HealthClock
from appliance.model.errors import LaneAwayError, LaneBusyError
from appliance.system.ports import ProbeLane
from appliance.wire.lane import LaneOutcome

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
