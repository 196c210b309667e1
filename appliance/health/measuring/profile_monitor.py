"""Monitor of one profile's speed: waits until a probe is due, has it made, judges and stores it.

Rules:

- `run` alone makes probes, one at a time. What others see or say (`observe`, `add_traffic`,
  `probe_now`) is noted, and wakes it.
- A probe, the states that follow from it and its events are stored in one transaction, so that an agent
  that is killed goes on where it was and tells nothing twice.
- A probe that cannot be made, or measures nothing, is tried again by the schedule; a store that takes
  nothing keeps states and events until it does. Neither ends the monitor.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from appliance.health.box_view import ProfileView
from appliance.health.clock import HealthClock
from appliance.health.measuring.profile_timetable import ProfileTimetable
from appliance.model.amounts import age
from appliance.model.errors import BackendError, PreconditionError
from appliance.model.measurements import (
    EventKind,
    MeasurementEvent,
    Probe,
    ProbeKind,
    TrafficSums,
    decode_tok_s,
    prefill_tok_s,
)
from appliance.model.profile import Applied
from appliance.model.speeds import BaselineReport, SpeedReport
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_prompts import series_of
from appliance.speed.probe_schedule import Cadence, DueProbe, ProbeConditions
from appliance.speed.probe_sizes import ProbeCourse, sizes_for
from appliance.speed.profile_record import ProfileRecord
from appliance.wire.health_socket import ProbeProgressEvent

_log = logging.getLogger(__name__)

_STORE_TRAFFIC_EVERY_S: Final = 60.0
_MOST_PROGRESS: Final = 1000
_WANTED_WITHIN_S: Final = 1800.0
"""Time for a probe on demand, after the one that may be in progress: each prompt has 10 min."""
_WARNINGS: Final = frozenset(
    {EventKind.REGRESSION, EventKind.NO_VALID_PROBE, EventKind.DRAFTS_SILENT}
)


class CourseProber(Protocol):
    """Maker of probes."""

    def piece_tokens(self, applied: Applied) -> int | None:
        """Return the size of pieces for a new baseline of the long prompt; None: one request."""

    async def probe(
        self,
        applied: Applied,
        course: ProbeCourse,
        *,
        on_progress: Callable[[ProbeProgressEvent], None],
    ) -> Sequence[Probe]:
        """Ask the prompts of a course; returns a probe for each that was begun, at least one."""


class ProbeStore(Protocol):
    """Store of probes."""

    async def add(
        self,
        *,
        probe: Probe | None = None,
        states: Mapping[tuple[str, str], str] | None = None,
        events: Sequence[MeasurementEvent] = (),
    ) -> Sequence[MeasurementEvent]:
        """Store all of it in one transaction; returns the events with their numbers."""

    async def add_traffic(self, profile: str, sums: TrafficSums) -> None:
        """Add to the sums of an hour."""


class ProfileMonitor:
    """Monitor of the speed of one profile.

    Args:
        name: The profile.
        prober: Makes the probes.
        store: Store of probes, states and events.
        clock: Clocks.
        cadence: Settings of the schedule.
        states: States of the profile as they were stored, by the second part of their keys.
        trial_speed: Factor by which schedule and detectors run faster.
    """

    def __init__(
        self,
        name: str,
        *,
        prober: CourseProber,
        store: ProbeStore,
        clock: HealthClock,
        cadence: Cadence,
        states: Mapping[str, str],
        trial_speed: float = 1.0,
    ) -> None:
        self._name = name
        self._prober = prober
        self._store = store
        self._clock = clock
        self._record = ProfileRecord.restored(name, states)
        for fault in self._record.faults:
            _log.warning("%s", fault)
        self._timetable = ProfileTimetable(self._record, clock, cadence, trial_speed)
        self._news = asyncio.Event()
        self._traffic: TrafficSums | None = None
        """Sums that are not stored yet."""
        self._traffic_due_s = 0.0
        self._rates: dict[Series, float] = {}
        """Tokens a second of the last probes, warm-ups too."""
        self._wanted: list[asyncio.Queue[ProbeProgressEvent | None]] = []
        """Queues of those who want a probe now; None ends their wait."""
        self._last: Probe | None = None
        self._invalid: Counter[ProbeOutcome] = Counter()
        """Probes since the last valid one."""

    # --- what others see and say -------------------------------------------------------

    def observe(self, view: ProfileView, conditions: ProbeConditions) -> None:
        """Take in how the profile is, and whether it may be probed."""
        if self._timetable.observe(view, conditions):
            self._news.set()

    def add_traffic(self, sums: TrafficSums) -> None:
        """Take in sums of real traffic, which may make a probe due."""
        self._traffic = sums if self._traffic is None else self._traffic.plus(sums)
        if self._record.take_traffic(sums) and self._timetable.trigger():
            self._news.set()

    async def probe_now(self) -> AsyncIterator[ProbeProgressEvent]:
        """Probe at once; yields how it goes on.

        Raises:
            PreconditionError: The profile cannot be probed now.
            BackendError: The probe does not end.
        """
        queue: asyncio.Queue[ProbeProgressEvent | None] = asyncio.Queue()
        self._wanted.append(queue)
        self._news.set()
        is_made = False
        try:
            async with asyncio.timeout(_WANTED_WITHIN_S):
                while (progress := await queue.get()) is not None:
                    is_made = True
                    yield progress
        except TimeoutError as error:
            raise BackendError(f"the probe of {self._name} does not end") from error
        finally:
            if queue in self._wanted:
                self._wanted.remove(queue)
        if not is_made:
            why = self._timetable.waiting or "the gateway admits none"
            raise PreconditionError(f"{self._name} cannot be probed now: {why}")

    async def accept(self, by: str) -> None:
        """Accept the present speeds as the baseline."""
        minute, now_s = self._timetable.minute(), self._clock.unix_s()
        await self._begin_anew(self._record.accept(minute, now_s, by))

    async def reset(self, by: str) -> None:
        """Forget the baselines; first ones are learned anew."""
        minute, now_s = self._timetable.minute(), self._clock.unix_s()
        await self._begin_anew(self._record.reset(minute, now_s, by))

    async def _begin_anew(self, events: Sequence[MeasurementEvent]) -> None:
        """Store the beginning of a new baseline, and let its sizes be found."""
        self._timetable.warm_up_again()
        await self._store_all(events)
        self._news.set()

    def baseline(self) -> BaselineReport:
        """Return the baselines, and what an accept would make of them."""
        return self._record.baseline()

    def report(self) -> SpeedReport:
        """Return the present speed, from memory."""
        memory, last = self._record.memory, self._last
        return SpeedReport(
            profile=self._name,
            series=self._record.speeds(),
            last_probe_unix_s=self.last_probe_unix_s,
            last_outcome=None if last is None else last.outcome,
            last_valid_unix_s=memory.last_valid_unix_s,
            next_probe_unix_s=self._timetable.next_unix_s(),
            waiting=self._timetable.waiting,
            ttft_s=memory.ttft_s,
            cached_share=memory.traffic.cached_now,
            silence=self._silence_text() if self._timetable.is_silent else "",
            trouble=self.trouble,
        )

    @property
    def last_probe_unix_s(self) -> float | None:
        """Time of the last probe; None: there was none."""
        last = self._last
        return self._record.memory.last_valid_unix_s if last is None else last.began_unix_s

    @property
    def trouble(self) -> str:
        """Sentence about what keeps probes from running or being judged; empty: nothing."""
        found, traffic = list(self._record.faults), self._record.memory.traffic
        if self._timetable.is_silent:
            found.append(self._silence_text())
        elif self._last is not None and self._last.outcome is ProbeOutcome.CROWDED:
            found.append(f"its speed is not measured now: {self._last.detail}")
        if traffic.cache_lost:
            found.append(
                f"the prefix cache holds {traffic.cached_now:.0%} of real prompts,"
                f" usually {traffic.cached_usual:.0%}"
            )
        return "; ".join(found)

    # --- the loop ----------------------------------------------------------------------

    async def run(self) -> None:
        """Probe for ever."""
        while True:
            self._news.clear()
            await self._tell_silence()
            await self._store_traffic()
            due, applied = self._timetable.due(), self._timetable.applied
            is_due = due is not None and (bool(self._wanted) or self._timetable.is_due(due))
            if due is not None and applied is not None and is_due:
                await self._probe(applied, due)
                continue
            _tell(self._wanted, None)
            self._wanted = []
            await self._clock.wait(self._news, self._timetable.wake_s())

    async def _probe(self, applied: Applied, due: DueProbe) -> None:
        waiting = list(self._wanted)
        if waiting:
            due = replace(due, kind=ProbeKind.ON_DEMAND, series=None)
        probes = await self._prober.probe(
            applied,
            self._course(applied, due),
            on_progress=lambda progress: _tell(waiting, progress),
        )
        # From the first prompt on: a wait for the lane's turn before it costs the box nothing.
        took_s = self._clock.monotonic_s() - probes[0].began_s
        self._timetable.note_probe(due.kind, [probe.outcome for probe in probes], took_s=took_s)
        for probe in probes:
            await self._take(probe, speculative=applied.speculative)
        _tell(waiting, None)
        self._wanted = [queue for queue in self._wanted if queue not in waiting]

    def _course(self, applied: Applied, due: DueProbe) -> ProbeCourse:
        record, interval_s = self._record, self._timetable.interval_s
        if due.kind is ProbeKind.WARM_UP:
            sizes = record.memory.sizes or sizes_for(interval_s, None, None, None)
        else:
            pieces = self._prober.piece_tokens(applied)
            sizes = record.choose_sizes(interval_s, self._rates, pieces)
        if record.is_much_slower:
            due = replace(due, series=Series.DECODE)
        return ProbeCourse(
            kind=due.kind,
            prompts=self._timetable.prompts(due, sizes.long_prompt),
            output_tokens=record.answer_tokens(interval_s, sizes),
            decode_tok_s=self._rates.get(Series.DECODE),
            prefill_tok_s=self._rates.get(Series.PREFILL),
            started_unix_s=self._timetable.started_unix_s,
        )

    async def _take(self, probe: Probe, *, speculative: bool) -> None:
        """Judge a probe, and store it with what follows."""
        self._last = probe
        self._note_rates(probe)
        events: Sequence[MeasurementEvent] = ()
        if probe.kind is not ProbeKind.WARM_UP:
            minute = self._timetable.minute(probe.began_unix_s)
            events = self._record.take(probe, minute, speculative=speculative)
        await self._store_all(events, probe)

    def _note_rates(self, probe: Probe) -> None:
        if probe.outcome is not ProbeOutcome.VALID or probe.raw is None:
            self._invalid[probe.outcome] += 1
            return
        self._invalid.clear()
        measured = {Series.PREFILL: prefill_tok_s(probe.raw)}
        if series_of(probe.prompt) is Series.DECODE:  # The other answer is too short to tell.
            measured[Series.DECODE] = decode_tok_s(probe.raw)
        self._rates |= {series: rate for series, rate in measured.items() if rate is not None}

    async def _store_all(
        self, events: Sequence[MeasurementEvent], probe: Probe | None = None
    ) -> None:
        """Store a probe, the states that have changed, and events, which the journal shows too."""
        for event in events:
            level = logging.WARNING if event.kind in _WARNINGS else logging.INFO
            _log.log(level, "%s: %s", self._name, event.text)
        self._timetable.keep_silence()
        await self._store.add(probe=probe, states=self._record.unsaved(), events=events)

    # --- silence and traffic -----------------------------------------------------------

    async def _tell_silence(self) -> None:
        """Tell that no probe has been valid for too long, or that one is again."""
        kind = self._timetable.silence_event()
        if kind is None:
            return
        is_over = kind is EventKind.VALID_PROBE_AGAIN
        text = "a probe was valid again" if is_over else self._silence_text()
        now_s = self._clock.unix_s()
        await self._store_all(
            [MeasurementEvent(unix_s=now_s, profile=self._name, kind=kind, text=text)]
        )

    def _silence_text(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self._invalid.most_common(3))
        last = "" if self._last is None or not self._last.detail else f"; last: {self._last.detail}"
        lasted = age(self._timetable.silent_s)
        return f"no valid probe in {lasted} of serving ({counts or 'none was made'}){last}"

    async def _store_traffic(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._traffic is None or now_s < self._traffic_due_s:
            return
        sums, self._traffic = self._traffic, None
        self._traffic_due_s = now_s + _STORE_TRAFFIC_EVERY_S
        await self._store.add_traffic(self._name, sums)


def _tell(
    queues: Sequence[asyncio.Queue[ProbeProgressEvent | None]], progress: ProbeProgressEvent | None
) -> None:
    """Put progress into queues; one whose reader is too slow gets no more of it, but its end."""
    for queue in queues:
        if progress is None or queue.qsize() < _MOST_PROGRESS:
            queue.put_nowait(progress)
