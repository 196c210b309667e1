"""Schedule of the probes of one profile: when the next is due, and its prompts.

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
has the box. Probing takes less than half a per cent of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.model.measurements import (
    EventKind,
    ProbeKind,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_prompts import coding_task
from appliance.speed.probe_sizes import BUDGET_SHARE
from appliance.speed.schedule import Schedule

WARM_UPS: Final = 2
"""The first request after a start is 0.87 to 1.08 times as fast as others."""
_RESERVE_S: Final = 12 * 3600 * BUDGET_SHARE
"""Limit of the budget, 216 s: the 12 probes by which the detector confirms a drop may take it, also those
of a model that became twenty times slower, whose first takes about 75 s and each later one 8 s."""
_FIRST_PAUSE_S: Final = 30.0
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
class ProbeSchedule(Schedule):
    """Schedule of one profile between two probes."""

    cadence: Cadence = Cadence()
    rotation: int = 0
    """Number of probes so far, without warm-ups."""
    warm_ups: int = 0
    valid_s: float | None = None
    """Time of the last valid probe, or of one that other programs kept away: that silence has a
    reason, which the status shows; None: none since the start."""
    silent_before_s: float = 0.0
    """Serving time without a valid probe before the start."""
    silence_told: bool = False
    budget_s: float = _RESERVE_S


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
    earliest_s = schedule.earliest_s(BUDGET_SHARE)
    if schedule.warm_ups < WARM_UPS:
        return DueProbe(at_s=max(schedule.started_s, earliest_s), kind=ProbeKind.WARM_UP)
    interval_s, last_s = schedule.cadence.interval_s, schedule.last_s
    slot_s = schedule.started_s
    if last_s is not None:
        slot_s = schedule.slot_s(last_s, interval_s, schedule.name)
    wanted = [DueProbe(at_s=slot_s, kind=ProbeKind.SCHEDULED)]
    if wake_s is not None:
        wanted.append(DueProbe(at_s=wake_s, kind=ProbeKind.CONFIRMING, series=wake_series))
    if triggered_s is not None:
        since_s = schedule.started_s if last_s is None else last_s
        after_s = since_s + interval_s / _TRIGGERED_A_INTERVAL
        wanted.append(DueProbe(at_s=max(triggered_s, after_s), kind=ProbeKind.TRIGGERED))
    due = min(wanted, key=lambda probe: probe.at_s)
    return replace(due, at_s=max(due.at_s, earliest_s))


def prompts(schedule: ProbeSchedule, due: DueProbe, *, long_prompt: str) -> tuple[str, ...]:
    """Return the names of the prompts of a probe, in the order in which they are sent.

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
    spent = schedule.after_spending(began_s, now_s, share=BUDGET_SHARE, most_s=_RESERVE_S)
    if ProbeOutcome.VALID in outcomes:
        valid = replace(spent, failed=0, not_before_s=0.0)
        if kind is ProbeKind.WARM_UP:
            return replace(valid, warm_ups=schedule.warm_ups + 1)
        return replace(
            valid, last_s=now_s, rotation=schedule.rotation + 1, valid_s=now_s, silent_before_s=0.0
        )
    pause_s = schedule.pause_s(_FIRST_PAUSE_S, schedule.cadence.interval_s)
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
    """Return the schedule, and the event of a silence that has become too long, or has ended; None: neither."""
    is_silent = silent_s(schedule, now_s) >= schedule.cadence.silent_after_s
    if is_silent == schedule.silence_told:
        return schedule, None
    event = EventKind.NO_VALID_PROBE if is_silent else EventKind.VALID_PROBE_AGAIN
    return replace(schedule, silence_told=is_silent), event


def silent_s(schedule: ProbeSchedule, now_s: float) -> float:
    """Return the serving time since the last valid probe."""
    since_s = schedule.started_s if schedule.valid_s is None else schedule.valid_s
    return schedule.silent_before_s + now_s - since_s
