"""Schedule of the canaries of one profile: when a round is due, and how much of it is affordable.

==========  ====================================================================
Round       Due
==========  ====================================================================
first       two minutes after a start, so that the probes warm the engine up
usual       once in each interval, at a moment that depends on the profile's name
further     a quarter of the interval after the last, of groups that had faults
continued   30 s after one that a real request interrupted; where none was answered,
            after twice the pause each time, up to the interval
==========  ====================================================================

None is due under the conditions that also stop probes. Canaries take less than a quarter of a per
cent of the time, from a budget of their own; a round that uses it up goes on later where it
stopped.
"""

from dataclasses import dataclass, replace
from typing import Final

from appliance.speed.schedule import Schedule

_SHARE: Final = 0.0025
_RESERVE_S: Final = 60.0
_START_DELAY_S: Final = 120.0
_FIRST_PAUSE_S: Final = 30.0
_FURTHER: Final = 4
"""Number of further rounds in an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryCadence:
    """Settings of the schedule."""

    interval_s: float = 3600.0
    speed: float = 1.0
    """Factor by which all times are shorter, for trials."""

    @property
    def pace_s(self) -> float:
        """Return the time from one usual round to the next."""
        return self.interval_s / self.speed

    @property
    def share(self) -> float:
        """Return the share of all time that canaries may take."""
        return min(1.0, _SHARE * self.speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySchedule(Schedule):
    """Schedule of one profile between two rounds; `last_s` is the beginning of one with an answer."""

    cadence: CanaryCadence = CanaryCadence()
    unfinished: bool = False
    """Whether the last round still has canaries to ask."""
    budget_s: float = _RESERVE_S


def next_round_s(schedule: CanarySchedule, *, wants_more: bool) -> float:
    """Return the time of the next round.

    Args:
        schedule: Schedule of the profile.
        wants_more: Whether a group of canaries wants further rounds.
    """
    earliest_s = schedule.earliest_s(schedule.cadence.share)
    if schedule.last_s is None:
        due_s = schedule.started_s + _START_DELAY_S / schedule.cadence.speed
    elif schedule.unfinished:
        due_s = schedule.last_s
    elif wants_more:
        due_s = schedule.last_s + schedule.cadence.pace_s / _FURTHER
    else:
        due_s = _slot_s(schedule, schedule.last_s)
    return max(due_s, earliest_s)


def is_further(schedule: CanarySchedule, now_s: float) -> bool:
    """Tell whether a round that is due is a further one, before the usual."""
    return schedule.last_s is not None and now_s < _slot_s(schedule, schedule.last_s)


def _slot_s(schedule: CanarySchedule, last_s: float) -> float:
    """Return the profile's own moment in the interval after that of the last round."""
    # The moment differs from that of the profile's probes, which comes from the name alone.
    return schedule.slot_s(last_s, schedule.cadence.pace_s, f"canaries of {schedule.name}")


def after_request(schedule: CanarySchedule, *, began_s: float, now_s: float) -> CanarySchedule:
    """Return the schedule after a request, whose time is taken from the budget."""
    return schedule.after_spending(began_s, now_s, share=schedule.cadence.share, most_s=_RESERVE_S)


def is_affordable(schedule: CanarySchedule) -> bool:
    """Tell whether a round may go on with its next request."""
    return schedule.budget_s >= 0


def after_round(
    schedule: CanarySchedule,
    *,
    began_s: float,
    now_s: float,
    answered: int,
    interrupted: bool,
    unfinished: bool,
) -> CanarySchedule:
    """Return the schedule after a round.

    Args:
        schedule: Schedule before.
        began_s: Beginning of the round.
        now_s: End of the round.
        answered: Number of requests with a verdict.
        interrupted: Whether a request without a verdict has ended the round.
        unfinished: Whether canaries are left to ask.
    """
    failed = 0 if answered else schedule.failed
    done = replace(
        schedule,
        last_s=began_s if answered else schedule.last_s,
        not_before_s=0.0,
        failed=failed,
        unfinished=unfinished,
    )
    if not interrupted:
        return done
    pause_s = done.pause_s(_FIRST_PAUSE_S / schedule.cadence.speed, schedule.cadence.pace_s)
    return replace(done, failed=failed + 1, not_before_s=now_s + pause_s)


def after_restart(schedule: CanarySchedule, started_s: float) -> CanarySchedule:
    """Return the schedule of a profile that has begun to serve anew."""
    return replace(
        schedule, started_s=started_s, last_s=None, not_before_s=0.0, failed=0, unfinished=False
    )
