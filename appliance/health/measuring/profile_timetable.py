"""Timetable of one profile: its schedule on this machine's clocks, its starts, its silence.

Times of the schedule are monotonic, those of the detectors Unix minutes; a trial lets both run faster
by one factor, while a probe costs the time that it really takes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from appliance.health.box_view import ProfileView
from appliance.health.clock import HealthClock
from appliance.model.measurements import (
    EventKind,
    ProbeKind,
)
from appliance.model.profile import Applied
from appliance.model.words import ProbeOutcome
from appliance.speed.probe_schedule import (
    WARM_UPS,
    Cadence,
    DueProbe,
    ProbeConditions,
    ProbeSchedule,
    after_probe,
    after_silence,
    after_start,
    next_probe,
    prompts,
    silent_s,
)
from appliance.speed.profile_record import ProfileRecord

_MINUTE_S: Final = 60.0
_LOOK_EVERY_S: Final = 300.0
"""Longest time to the next look: the wall clock may be set meanwhile."""


class ProfileTimetable:
    """Timetable of one profile.

    Args:
        record: Of the profile; starts are noted in it.
        clock: Clocks.
        cadence: Settings of the schedule.
        trial_speed: Factor by which schedule and detectors run faster.
    """

    def __init__(
        self, record: ProfileRecord, clock: HealthClock, cadence: Cadence, trial_speed: float
    ) -> None:
        self._record = record
        self._clock = clock
        self._speed = trial_speed
        self._schedule = ProbeSchedule(name=record.name, started_s=self._now_s(), cadence=cadence)
        self._view: ProfileView | None = None
        self._is_set = False
        """Whether the schedule is that of the backend's present start."""
        self._stopped_s: float | None = None
        """Time at which the profile ceased to serve; None: it serves, or has not yet."""
        self._triggered_s: float | None = None
        self.conditions = ProbeConditions(serving=False)

    # --- the profile -------------------------------------------------------------------

    def observe(self, view: ProfileView, conditions: ProbeConditions) -> bool:
        """Take in how the profile is, and whether it may be probed; returns whether that is new."""
        if (view, conditions) == (self._view, self.conditions):
            return False
        if self.conditions.serving and not conditions.serving:
            self._stopped_s = self._now_s()
        self._view, self.conditions = view, conditions
        if conditions.serving:
            self._follow_start(view)
        return True

    def _follow_start(self, view: ProfileView) -> None:
        """Note a start of the backend, or that it serves still."""
        now_s, record, began = self._now_s(), self._record, self._is_set
        schedule = self._schedule if began else self._restored(now_s)
        stopped_s = now_s if self._stopped_s is None else self._stopped_s
        if record.is_new_start(view.started_unix_s, view.main_pid):
            record.start(self.minute(), view.started_unix_s, view.main_pid)
            schedule = after_start(schedule, stopped_s=stopped_s, started_s=now_s)
        elif not began:
            warm_ups = WARM_UPS if record.memory.sizes is not None else 0
            schedule = replace(schedule, warm_ups=warm_ups)
            record.begin(self.minute())
        elif self._stopped_s is not None:
            silent_before_s = silent_s(schedule, stopped_s)
            schedule = replace(
                schedule, started_s=now_s, valid_s=None, silent_before_s=silent_before_s
            )
        self._schedule, self._is_set, self._stopped_s = schedule, True, None

    def _restored(self, now_s: float) -> ProbeSchedule:
        """Return the schedule of an agent that has just begun to watch the profile."""
        memory = self._record.memory
        return replace(
            self._schedule,
            started_s=now_s,
            budget_at_s=now_s,
            silent_before_s=memory.silent_s,
            silence_told=memory.silence_told,
        )

    @property
    def applied(self) -> Applied | None:
        """Profile as it is applied; None: it is not."""
        return None if self._view is None else self._view.applied

    @property
    def started_unix_s(self) -> float | None:
        """Start of the backend; None: not known."""
        return None if self._view is None else self._view.started_unix_s

    @property
    def waiting(self) -> str:
        """Reason why no probe is due, as a phrase; empty: one is."""
        conditions = self.conditions
        reasons = {
            "it does not serve": not conditions.serving,
            "it is not applied": self.applied is None,
            "an operation is running": conditions.operation,
            "requests are held": conditions.held,
            "a bench has the box": conditions.bench,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")

    # --- probes ------------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        return self._schedule.cadence.interval_s

    def trigger(self) -> bool:
        """Note that real traffic is slow; returns whether that is new."""
        is_new = self._triggered_s is None
        self._triggered_s = self._now_s() if is_new else self._triggered_s
        return is_new

    def warm_up_again(self) -> None:
        """Let the next probes be warm-ups, which find the sizes for a new baseline."""
        self._schedule = replace(self._schedule, warm_ups=0)

    def due(self) -> DueProbe | None:
        """Return the next probe; None: none, because of `waiting`."""
        if self.waiting:
            return None
        wish = self._record.wish()
        wake_s = None
        if wish is not None:
            wake_s = self._now_s() + (wish[0] - self.minute()) * _MINUTE_S
        return next_probe(
            self._schedule,
            self.conditions,
            wake_s=wake_s,
            wake_series=None if wish is None else wish[1],
            triggered_s=self._triggered_s,
        )

    def is_due(self, due: DueProbe) -> bool:
        """Tell whether the time of a probe has come."""
        return due.at_s <= self._now_s()

    def wake_s(self) -> float:
        """Return the monotonic time of the next look."""
        at_s, due = self._now_s() + _LOOK_EVERY_S, self.due()
        return (at_s if due is None else min(at_s, due.at_s)) / self._speed

    def next_unix_s(self) -> float | None:
        """Return the time of the next probe; None: none is due."""
        due = self.due()
        if due is None:
            return None
        return self._clock.unix_s() + max(0.0, due.at_s - self._now_s()) / self._speed

    def prompts(self, due: DueProbe, long_prompt: str) -> tuple[str, ...]:
        """Return the names of a probe's prompts."""
        return prompts(self._schedule, due, long_prompt=long_prompt)

    def note_probe(
        self, kind: ProbeKind, outcomes: Sequence[ProbeOutcome], *, took_s: float
    ) -> None:
        """Note a probe with an outcome for each of its prompts, at least one."""
        now_s = self._now_s()
        self._schedule = after_probe(
            self._schedule, kind, outcomes, began_s=now_s - took_s, now_s=now_s
        )
        self._triggered_s = None

    # --- silence -----------------------------------------------------------------------

    @property
    def silent_s(self) -> float:
        """Serving time since the last valid probe."""
        before = self._record.memory.silent_s
        if not self._is_set:
            return before
        now_s = self._now_s() if self._stopped_s is None else self._stopped_s
        return silent_s(self._schedule, now_s)

    @property
    def is_silent(self) -> bool:
        """Whether a silence has been told that has not ended."""
        return self._schedule.silence_told and self.conditions.serving

    def silence_event(self) -> EventKind | None:
        """Return the event to tell now: a silence has become too long, or has ended; None: none."""
        if not (self._is_set and self.conditions.serving):
            return None
        self._schedule, kind = after_silence(self._schedule, self._now_s())
        return kind

    def keep_silence(self) -> None:
        """Keep the silence in the record, for an agent that begins anew."""
        told = self._schedule.silence_told if self._is_set else self._record.memory.silence_told
        self._record.note_silence(self.silent_s, told=told)

    # --- clocks ------------------------------------------------------------------------

    def _now_s(self) -> float:
        """Return the time of the schedule."""
        return self._clock.monotonic_s() * self._speed

    def minute(self, unix_s: float | None = None) -> float:
        """Return a time of the detectors; None: now."""
        now_s = self._clock.unix_s() if unix_s is None else unix_s
        return now_s * self._speed / _MINUTE_S
