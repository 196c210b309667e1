"""Scheduler of switches on request: when the box goes from one profile to the next.

Rules:

- The box stays with a profile for the residency at least, whatever is asked for, so two clients
  that want different profiles get a switch each so often, not one a request.
- After that it switches as soon as nothing is in flight any more; and after `patience_s`, counted
  from when the first request began to wait, it switches in any case: the stream of requests for
  the profile that serves never starves the others.
- The profile that is waited for longest is next. A profile that has served queues up behind,
  because its requests begin to wait after those that were there.
- A profile whose switch failed is not tried again for a while, the longer the more often it failed
  (`FAILURE_PAUSES_S`), and its requests are refused; the other profiles take their turns.
- While an operation runs, and while an operator holds the box, no switch begins.

So a request waits at most for the rest of the residency or of the patience, whichever is longer,
and for one turn of every profile before it. Time is a plain number of seconds, of any clock that
never goes back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

FAILURE_PAUSES_S: Final[Sequence[float]] = (60.0, 120.0, 300.0, 900.0)
"""Seconds of pause after the n-th switch on request in succession that failed, until the next one to the
same profile; the last one repeats. Each failure costs the box a stop, a load and a roll-back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingProfile:
    """Profile that does not serve, and for which requests wait."""

    profile: str
    since_s: float
    """Time when the first of those requests began to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxState:
    """State of the box, as far as switches depend on it."""

    since_s: float | None = None
    """Time since when a profile serves; None: none does."""
    in_flight: int = 0
    """Number of requests that a switch would have to drain."""
    busy: bool = False
    """Whether an operation runs, or an operator holds the box."""
    paused_until_s: Mapping[str, float] = field(default_factory=dict)
    """Time until which no switch to a profile is tried, by profile; absent: the last did not fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPolicy:
    """Durations in the rules."""

    residency_s: float = 60.0
    """Time for which a profile serves at least."""
    patience_s: float = 60.0
    """Time for which the first request waits while the profile that serves has requests in
    flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTo:
    """Decision to request a switch now."""

    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAgain:
    """Decision to check again at that time, or when something changes."""

    at_s: float


def next_switch(
    now_s: float, box: BoxState, waiting: Sequence[WaitingProfile], policy: SwitchPolicy
) -> SwitchTo | CheckAgain | None:
    """Decide what to do for the waiting profiles; None: nothing until something changes.

    Args:
        now_s: Time now.
        box: State of the box.
        waiting: Profiles that requests wait for.
        policy: Residency and patience.
    """
    if box.busy or not waiting:
        return None
    candidates = [w for w in waiting if not has_failed(w.profile, now_s, box)]
    if not candidates:
        return CheckAgain(at_s=min(box.paused_until_s[w.profile] for w in waiting))
    first = min(candidates, key=lambda w: (w.since_s, w.profile))
    due_s = _due_s(box, first, policy)
    return SwitchTo(profile=first.profile) if now_s >= due_s else CheckAgain(at_s=due_s)


def has_failed(profile: str, now_s: float, box: BoxState) -> bool:
    """Tell whether a switch to a profile failed so recently that it is not tried again yet."""
    return now_s < box.paused_until_s.get(profile, float("-inf"))


def failure_pause_s(failures: int) -> float:
    """Return the pause after that many failed switches in succession to one profile, one at least."""
    return FAILURE_PAUSES_S[min(failures, len(FAILURE_PAUSES_S)) - 1]


def _due_s(box: BoxState, first: WaitingProfile, policy: SwitchPolicy) -> float:
    if box.since_s is None:
        return first.since_s
    due_s = box.since_s + policy.residency_s
    return max(due_s, first.since_s + policy.patience_s) if box.in_flight else due_s
