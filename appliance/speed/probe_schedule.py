"""Schedule of the probes of one profile: when the next is due, and what it asks.

==========  =======================================================================
Probe       Due
==========  =======================================================================
warm-up     at once after a start, twice; both are discarded
confirming  when the detector wants one
triggered   when real traffic is slow, at most three times in an interval
scheduled   once in each interval, at a moment that depends on the profile's name
repeated    30 s after one that measured nothing, then after twice the pause, up to
            the interval
==========  =======================================================================

None is due while the profile does not serve, an operation runs, the profile is held, or a bench
has the box. Probing takes less than half a per cent of the time: probes spend from a budget that
grows with the time, and wait while it is overdrawn. Times are monotonic seconds of one boot;
nothing of this is stored, since a first probe at once does no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

from appliance.model.measurements import EventKind, ProbeKind, ProbeOutcome
from appliance.model.words import Series
from appliance.speed.probe_prompts import coding_task
from appliance.speed.probe_sizes import BUDGET_SHARE

WARM_UPS: Final = 2
"""The first request after a start is 0.87 to 1.08 times as fast as others."""
_RESERVE_S: Final = 12 * 3600 * BUDGET_SHARE
"""Limit of the budget, 216 s: the 12 probes by which the detector confirms a drop may take it, also those
of a model that became twenty times slower, whose first takes about 75 s and each later one 8 s."""
_FIRST_PAUSE_S: Final = 30.0
_MOST_DOUBLED: Final = 10
_TRIGGERED_A_INTERVAL: Final = 3
_NOT_THE_ENGINE: Final = frozenset(
    {ProbeOutcome.YIELDED, ProbeOutcome.BUSY, ProbeOutcome.CLOCK, ProbeOutcome.CROWDED}
)
"""Outcomes that say nothing of the engine: the probe is repeated instead of the next being awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Settings of the schedule."""

    interval_s: float = 900.0
    silent_after_s: float = 6 * 3600.0
    """Serving time without a valid probe after which that is an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConditions:
    """Conditions under which a probe may begin."""

    serving: bool
    operation: bool = False
    """Whether an operation runs."""
    held: bool = False
    """Whether the profile's requests are held or drained."""
    bench: bool = False
    """Whether a bench has the box."""

    @property
    def met(self) -> bool:
        return self.serving and not (self.operation or self.held or self.bench)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueProbe:
    """Next probe of a profile; it may take several requests."""

    at_s: float
    kind: ProbeKind
    series: Series | None = None
    """Series that the detector wants confirmed; None: both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSchedule:
    """Schedule of one profile between two probes."""

    name: str
    started_s: float
    """Time at which the profile began to serve."""
    cadence: Cadence = Cadence()
    rotation: int = 0
    """Number of probes so far, without warm-ups."""
    warm_ups: int = 0
    last_s: float | None = None
    """Time of the last probe that need not be repeated; None: none since the start."""
    not_before_s: float = 0.0
    """End of the pause after a probe that measured nothing."""
    failed: int = 0
    """Number of probes in a row that measured nothing."""
    valid_s: float | None = None
    """Time of the last valid probe, or of one that other programs kept away: that silence has a
    reason, which the status tells; None: none since the start."""
    silent_before_s: float = 0.0
    """Serving time without a valid probe before the start."""
    silence_told: bool = False
    budget_s: float = _RESERVE_S
    """Time that probes may take, as it was at `budget_at_s`; negative: overdrawn."""
    budget_at_s: float = 0.0


def next_probe(
    schedule: ProbeSchedule,
    conditions: ProbeConditions,
    *,
    wake_s: float | None = None,
    wake_series: Series | None = None,
    triggered_s: float | None = None,
) -> DueProbe | None:
    """Return the next probe, which is due once its time has come; None: none under the conditions.

    Args:
        schedule: Schedule of the profile.
        conditions: State of the profile and the box.
        wake_s: Time at which the detector wants a probe; None: at none.
        wake_series: Series for which the detector wants it.
        triggered_s: Time since which real traffic is slower than the baseline; None: it is not.
    """
    if not conditions.met:
        return None
    earliest_s = max(schedule.not_before_s, _affordable_s(schedule))
    if schedule.warm_ups < WARM_UPS:
        return DueProbe(at_s=max(schedule.started_s, earliest_s), kind=ProbeKind.WARM_UP)
    wanted = [DueProbe(at_s=_slot_s(schedule), kind=ProbeKind.SCHEDULED)]
    if wake_s is not None:
        wanted.append(DueProbe(at_s=wake_s, kind=ProbeKind.CONFIRMING, series=wake_series))
    if triggered_s is not None:
        last_s = schedule.started_s if schedule.last_s is None else schedule.last_s
        after_s = last_s + schedule.cadence.interval_s / _TRIGGERED_A_INTERVAL
        wanted.append(DueProbe(at_s=max(triggered_s, after_s), kind=ProbeKind.TRIGGERED))
    due = min(wanted, key=lambda probe: probe.at_s)
    return replace(due, at_s=max(due.at_s, earliest_s))


def _slot_s(schedule: ProbeSchedule) -> float:
    """Return the profile's own moment in the interval after that of the last probe."""
    if schedule.last_s is None:
        return schedule.started_s
    interval_s = schedule.cadence.interval_s
    phase_s = crc32(schedule.name.encode()) / (1 << 32) * interval_s
    return ((schedule.last_s - phase_s) // interval_s + 1) * interval_s + phase_s


def _affordable_s(schedule: ProbeSchedule) -> float:
    """Return the time until which the budget is overdrawn."""
    if schedule.budget_s >= 0:
        return 0.0
    return schedule.budget_at_s - schedule.budget_s / BUDGET_SHARE


def prompts(schedule: ProbeSchedule, due: DueProbe, *, long_prompt: str) -> tuple[str, ...]:
    """Return the names of the prompts of a probe, in the order in which they are asked.

    The order of the two series changes with each probe, so that one that often yields after its
    first request measures both.

    Args:
        schedule: Schedule of the profile.
        due: The probe.
        long_prompt: Name of the long prompt (`speed.probe_prompts.prefill_name`), which stays the
            same from the first probe for a baseline on.
    """
    task, prefill = coding_task(schedule.rotation), long_prompt
    if due.kind is ProbeKind.WARM_UP or due.series is Series.DECODE:
        return (task,)
    if due.series is Series.PREFILL:
        return (prefill,)
    return (task, prefill) if schedule.rotation % 2 == 0 else (prefill, task)


def after_probe(
    schedule: ProbeSchedule,
    kind: ProbeKind,
    outcomes: Sequence[ProbeOutcome],
    *,
    began_s: float,
    now_s: float,
) -> ProbeSchedule:
    """Return the schedule after a probe with an outcome for each of its requests, at least one."""
    grown_s = schedule.budget_s + (now_s - schedule.budget_at_s) * BUDGET_SHARE
    spent = replace(
        schedule, budget_s=min(_RESERVE_S, grown_s) - (now_s - began_s), budget_at_s=now_s
    )
    if ProbeOutcome.VALID in outcomes:
        valid = replace(spent, failed=0, not_before_s=0.0)
        if kind is ProbeKind.WARM_UP:
            return replace(valid, warm_ups=schedule.warm_ups + 1)
        return replace(
            valid, last_s=now_s, rotation=schedule.rotation + 1, valid_s=now_s, silent_before_s=0.0
        )
    doubled = min(schedule.failed, _MOST_DOUBLED)
    pause_s = min(_FIRST_PAUSE_S * (1 << doubled), schedule.cadence.interval_s)
    paused = replace(spent, failed=schedule.failed + 1, not_before_s=now_s + pause_s)
    if ProbeOutcome.CROWDED in outcomes and not schedule.silence_told:
        paused = replace(paused, valid_s=now_s, silent_before_s=0.0)
    if not _NOT_THE_ENGINE.isdisjoint(outcomes):
        return paused
    if kind is ProbeKind.WARM_UP:
        return replace(paused, warm_ups=schedule.warm_ups + 1)
    return replace(paused, last_s=now_s, rotation=schedule.rotation + 1)


def after_start(schedule: ProbeSchedule, *, stopped_s: float, started_s: float) -> ProbeSchedule:
    """Return the schedule of a profile that has stopped serving, and has begun again."""
    return replace(
        schedule,
        started_s=started_s,
        warm_ups=0,
        last_s=None,
        not_before_s=0.0,
        failed=0,
        valid_s=None,
        silent_before_s=silent_s(schedule, stopped_s),
    )


def after_silence(schedule: ProbeSchedule, now_s: float) -> tuple[ProbeSchedule, EventKind | None]:
    """Return the schedule, and the event to tell: a silence has become too long, or has ended."""
    is_silent = silent_s(schedule, now_s) >= schedule.cadence.silent_after_s
    if is_silent == schedule.silence_told:
        return schedule, None
    event = EventKind.NO_VALID_PROBE if is_silent else EventKind.VALID_PROBE_AGAIN
    return replace(schedule, silence_told=is_silent), event


def silent_s(schedule: ProbeSchedule, now_s: float) -> float:
    """Return the serving time since the last valid probe."""
    since_s = schedule.started_s if schedule.valid_s is None else schedule.valid_s
    return schedule.silent_before_s + now_s - since_s
