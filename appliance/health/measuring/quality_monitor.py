"""Monitor of one profile's answers: asks its canaries, judges them, stores and tells what follows.

Rules:

- A round asks the standard canaries and the operator's, one request at a time, through the gateway's
  probe lane. One that gives way to a real request, or is not admitted, is no verdict: the round goes on
  later with the same canary.
- A connection that breaks is no verdict the first time. The second time in a row it is a fault: an
  engine that falls over the same request each time must not go unseen.
- Runs, the record and events are stored in one transaction. After a kill the record of the last run
  counts, and nothing is told twice.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from appliance.health.box_view import ProfileView
from appliance.health.clock import HealthClock
from appliance.model.errors import LaneBusyError
from appliance.model.measurements import CanaryRun, EventKind, MeasurementEvent
from appliance.model.paths import CANARIES_DIR
from appliance.model.profile import Applied
from appliance.speed.canaries import (
    PATH,
    Canary,
    CanaryFile,
    canary_body,
    generates_text,
    standard_canaries,
)
from appliance.speed.canary_schedule import (
    CanaryCadence,
    CanarySchedule,
    after_request,
    after_restart,
    after_round,
    is_affordable,
    is_further,
    next_round_s,
)
from appliance.speed.canary_verdict import (
    MOST_ANSWER_BYTES,
    CanaryOutcome,
    CanaryVerdict,
    judge_answer,
    judge_status,
    read_answer,
)
from appliance.speed.probe_schedule import ProbeConditions
from appliance.speed.quality_record import (
    HOUR_S,
    QualityRecord,
    QualityReport,
    accept_quality,
    begin_round,
    count_verdict,
    decode_quality,
    encode_quality,
    fault_hint,
    quality_report,
    quality_trouble,
    refused_text,
    wants_more,
)
from appliance.system.ports import LaneResponse, ProbeLane
from appliance.wire.lane import LaneOutcome

_log = logging.getLogger(__name__)

STATE_KEY: Final = "quality"
"""Key of a profile's record in the store."""
_RESPONSE_S: Final = 120.0
"""Time for one response: 256 tokens at 2 tokens a second."""
_LANE_S: Final = 60.0
"""Time for the lane beyond that; it has bounds of its own."""
_HTTP_OK: Final = 200
_LONG_UNANSWERED: Final = 8
"""Rounds in a row without an answer that are told: more than an hour."""


class CanaryFiles(Protocol):
    """Canary files of the operator."""

    async def read(self, profile: str) -> CanaryFile:
        """Return the canaries of a profile; a file that cannot be read is one of its problems."""


class CanaryStore(Protocol):
    """Store of canary runs."""

    async def add(
        self,
        *,
        canary_runs: Sequence[CanaryRun] = (),
        states: Mapping[tuple[str, str], str] | None = None,
        events: Sequence[MeasurementEvent] = (),
    ) -> Sequence[MeasurementEvent]:
        """Store all of it in one transaction; returns the events with their numbers."""


class QualityMonitor:
    """Monitor of the answers of one profile.

    Args:
        name: The profile.
        lane: Lane of the gateway.
        store: Store of runs, record and events.
        clock: Clocks.
        canaries: Files with the operator's canaries.
        cadence: Settings of the schedule.
        turn: Taken for each request, which waits for a probe that is under way.
        state: Record of the profile as it was stored; None: none is.
    """

    def __init__(
        self,
        name: str,
        *,
        lane: ProbeLane,
        store: CanaryStore,
        clock: HealthClock,
        canaries: CanaryFiles,
        cadence: CanaryCadence,
        turn: asyncio.Lock | None = None,
        state: str | None = None,
    ) -> None:
        self._name = name
        self._turn = turn or asyncio.Lock()
        self._lane = lane
        self._store = store
        self._clock = clock
        self._files = canaries
        self._record = _decoded(name, state)
        now_s = clock.monotonic_s()
        self._schedule = CanarySchedule(
            name=name, started_s=now_s, cadence=cadence, budget_at_s=now_s
        )
        self._view: ProfileView | None = None
        self._conditions = ProbeConditions(serving=False)
        self._news = asyncio.Event()
        self._left: deque[Canary] = deque()
        """Canaries that the present round has still to ask."""
        self._broken: str | None = None
        """Canary whose last request broke off; None: it did not."""
        self._last_round_unix_s: float | None = None
        self._unanswered = ""

    # --- what others see and say -------------------------------------------------------

    def observe(self, view: ProfileView, conditions: ProbeConditions) -> None:
        """Take in how the profile is, and whether it may be asked."""
        before, self._view = self._view, view
        if conditions.serving and (
            not self._conditions.serving or before is None or _start(before) != _start(view)
        ):
            self._schedule = after_restart(self._schedule, self._clock.monotonic_s())
            self._left = deque()
            self._news.set()
        if conditions != self._conditions or before is None or before.applied != view.applied:
            self._conditions = conditions
            self._news.set()

    @property
    def pass_rate(self) -> float | None:
        """Share of canaries that passed lately; None: none ran."""
        return self.report().pass_rate

    @property
    def last_round_unix_s(self) -> float | None:
        """Time of the last round since the start; None: none was."""
        return self._last_round_unix_s

    @property
    def is_lost(self) -> bool:
        """Whether a loss of quality is reported that has not ended."""
        return any(group.lost_unix_s is not None for group in self.report().groups)

    @property
    def trouble(self) -> str:
        """Sentences about what keeps canaries from being asked or judged; empty: nothing."""
        return quality_trouble(self._record, self._long_unanswered())

    def report(self) -> QualityReport:
        """Return the present quality, from memory."""
        return quality_report(
            self._name,
            self._record,
            last_round_unix_s=self._last_round_unix_s,
            unanswered=self._long_unanswered(),
        )

    def _long_unanswered(self) -> str:
        return self._unanswered if self._schedule.failed >= _LONG_UNANSWERED else ""

    async def accept(self, by: str) -> None:
        """Make the present pass rates the baseline."""
        events = accept_quality(self._record, self._name, self._clock.unix_s(), by)
        await self._keep(events=events)

    async def reset(self) -> None:
        """Forget all runs and accepted levels; canaries begin with the promise that they pass."""
        self._record = QualityRecord(
            rounds=self._record.rounds, file_problems=self._record.file_problems
        )
        await self._keep()

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            self._news.clear()
            due_s = self._due_s()
            if due_s is None or due_s > self._clock.monotonic_s():
                await self._clock.wait(self._news, due_s)
            else:
                await self._go_on()

    # --- rounds -----------------------------------------------------------------------

    def _due_s(self) -> float | None:
        """Return the time of the next round; None: none under the present conditions."""
        if self._applied() is None:
            return None
        return next_round_s(self._schedule, wants_more=wants_more(self._record))

    def _applied(self) -> Applied | None:
        """Return the profile if it may be asked now."""
        applied = None if self._view is None else self._view.applied
        may_be_asked = self._conditions.met and applied is not None and generates_text(applied)
        return applied if may_be_asked else None

    async def _go_on(self) -> None:
        """Begin a round, or go on with one."""
        applied = self._applied()
        if applied is None:
            return
        if not self._left:
            self._left = deque(await self._next_canaries(applied))
        left = self._left
        began_s, answered, interrupted = self._clock.monotonic_s(), 0, False
        while (
            left and self._applied() == applied and (not answered or is_affordable(self._schedule))
        ):
            verdict = await self._ask(applied, left[0])
            if left is not self._left:
                return  # The profile has started anew, and the schedule with it.
            if verdict.outcome is CanaryOutcome.NONE:
                self._unanswered, interrupted = verdict.fault, True
                break
            await self._count(left.popleft(), verdict)
            answered += 1
        if answered:
            self._last_round_unix_s = self._clock.unix_s()
        self._schedule = after_round(
            self._schedule,
            began_s=began_s,
            now_s=self._clock.monotonic_s(),
            answered=answered,
            interrupted=interrupted,
            unfinished=bool(left),
        )

    async def _next_canaries(self, applied: Applied) -> Sequence[Canary]:
        """Return the canaries of a new round."""
        file = await self._files.read(self._name)
        await self._tell_problems(file.problems)
        standard = standard_canaries(self._record.rounds, tools=applied.tools)
        further = is_further(self._schedule, self._clock.monotonic_s())
        return begin_round(self._record, [*standard, *file.canaries], further=further)

    async def _tell_problems(self, problems: tuple[str, ...]) -> None:
        if problems == self._record.file_problems:
            return
        self._record.file_problems = problems
        events = [
            MeasurementEvent(
                unix_s=self._clock.unix_s(),
                profile=self._name,
                kind=EventKind.CANARIES_REFUSED,
                text=refused_text(self._name, CANARIES_DIR, problem),
            )
            for problem in problems
        ]
        await self._keep(events=events)

    async def _count(self, canary: Canary, verdict: CanaryVerdict) -> None:
        hour_s = HOUR_S / self._schedule.cadence.speed
        counted = count_verdict(
            self._record, self._name, canary, verdict, self._clock.unix_s(), hour_s=hour_s
        )
        await self._keep(
            runs=[] if counted.run is None else [counted.run],
            events=[] if counted.event is None else [counted.event],
        )

    async def _keep(
        self, *, runs: Sequence[CanaryRun] = (), events: Sequence[MeasurementEvent] = ()
    ) -> None:
        states = {(self._name, STATE_KEY): encode_quality(self._record)}
        await self._store.add(canary_runs=runs, states=states, events=events)

    # --- one request ---------------------------------------------------------------------

    async def _ask(self, applied: Applied, canary: Canary) -> CanaryVerdict:
        """Return the verdict on a canary's answer; the time is taken from the budget."""
        async with self._turn:
            return await self._ask_now(applied, canary)

    async def _ask_now(self, applied: Applied, canary: Canary) -> CanaryVerdict:
        began_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(_RESPONSE_S + _LANE_S):
                verdict = await self._verdict(applied, canary)
        except LaneBusyError as error:
            return _no_verdict(str(error))
        except TimeoutError:
            verdict = _no_verdict("the gateway does not end the request")
        self._schedule = after_request(
            self._schedule, began_s=began_s, now_s=self._clock.monotonic_s()
        )
        if verdict.outcome in {CanaryOutcome.MALFORMED, CanaryOutcome.UNMET}:
            return replace(verdict, fault=f"{verdict.fault}{fault_hint(applied, canary)}")
        return verdict

    async def _verdict(self, applied: Applied, canary: Canary) -> CanaryVerdict:
        body = canary_body(applied, canary)
        pieces: list[bytes] = []
        size = 0
        async with self._lane.send(self._name, PATH, body, timeout_s=_RESPONSE_S) as response:
            async for piece, _ in response.chunks():
                pieces.append(piece)
                size += len(piece)
                if size > MOST_ANSWER_BYTES:
                    return judge_answer(
                        read_answer(b"".join(pieces), streamed=canary.streamed), canary.expectation
                    )
            return self._judged(canary, response, b"".join(pieces))

    def _judged(self, canary: Canary, response: LaneResponse, body: bytes) -> CanaryVerdict:
        was_broken, self._broken = self._broken == canary.name, None
        match response.outcome:
            case LaneOutcome.ENDED if response.status == _HTTP_OK:
                answer = read_answer(body, streamed=canary.streamed)
                return judge_answer(answer, canary.expectation)
            case LaneOutcome.ENDED:
                return judge_status(response.status)
            case LaneOutcome.TOO_LONG:
                return _unmet("the answer does not end within its bounds")
            case LaneOutcome.YIELDED:
                return _no_verdict("a request arrived")
            case _:
                if was_broken:
                    return _unmet("the engine breaks the connection")
                self._broken = canary.name
                return _no_verdict(response.detail or "the connection broke")


def _decoded(name: str, state: str | None) -> QualityRecord:
    if state is None:
        return QualityRecord()
    try:
        return decode_quality(state)
    except ValueError as error:
        _log.warning("%s: the record of its quality begins anew: %s", name, error)
        return QualityRecord()


def _start(view: ProfileView) -> tuple[float | None, int | None]:
    return view.started_unix_s, view.main_pid


def _no_verdict(fault: str) -> CanaryVerdict:
    return CanaryVerdict(outcome=CanaryOutcome.NONE, fault=fault)


def _unmet(fault: str) -> CanaryVerdict:
    return CanaryVerdict(outcome=CanaryOutcome.UNMET, fault=fault)
