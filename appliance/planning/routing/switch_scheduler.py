"""When a box that switches on request goes from one profile to the next.

Rules:

- It stays with a profile for the least residency, whatever is asked for, so two clients that want
  different profiles get a switch each so often, not one a request.
- After that it goes on as soon as nothing is in flight any more; and after `patience_s`, counted
  from when the first one began to wait, it goes on in any case: the stream of requests for the
  profile that serves never starves the others.
- Whoever has waited longest is next. A profile that has had its turn queues up behind, because
  its requests begin to wait after those that were there.
- A profile whose switch failed is not tried again until some time has passed, and its requests
  are told so; the others take their turns.
- While an operation runs, and while people hold the box, nothing is begun.

So a request waits at most for the rest of the residency or of the patience, whichever is longer,
and for one turn of every profile before it. Time is a plain number of seconds, of any clock that
never goes back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

FAILED_FOR_S: Final = 60.0
"""After a switch on request that failed, until the next one to the same profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Requests for a profile that does not serve."""

    profile: str
    since_s: float
    """When the one began to wait that has waited longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What serves, as far as turns are concerned."""

    since_s: float | None = None
    """When what serves now had loaded; None: nothing serves."""
    in_flight: int = 0
    """Requests that a switch would have to drain."""
    busy: bool = False
    """An operation runs, or people hold the box."""
    failed_s: Mapping[str, float] = field(default_factory=dict)
    """When the last switch to a profile failed; absent: it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How turns are taken."""

    residency_s: float = 60.0
    patience_s: float = 60.0
    """Of the first in the line, while the profile that serves has requests in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTo:
    """Ask for a switch now."""

    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do before then, or before something changes."""

    at_s: float


def next_turn(
    now_s: float, box: Box, waiting: Sequence[Waiting], turns: Turns
) -> SwitchTo | LookAgain | None:
    """What to do for those that wait; None: nothing until something changes.

    Args:
        now_s: The time.
        box: What serves.
        waiting: One for each profile that requests wait for.
        turns: The rules' figures.
    """
    if box.busy or not waiting:
        return None
    rested = [w for w in waiting if not failed(w.profile, now_s, box)]
    if not rested:
        return LookAgain(at_s=min(box.failed_s[w.profile] for w in waiting) + FAILED_FOR_S)
    first = min(rested, key=lambda w: (w.since_s, w.profile))
    due_s = _due_s(box, first, turns)
    return SwitchTo(profile=first.profile) if now_s >= due_s else LookAgain(at_s=due_s)


def failed(profile: str, now_s: float, box: Box) -> bool:
    """Whether a switch to a profile failed so lately that it is not tried again yet."""
    at_s = box.failed_s.get(profile)
    return at_s is not None and now_s < at_s + FAILED_FOR_S


def _due_s(box: Box, first: Waiting, turns: Turns) -> float:
    if box.since_s is None:
        return first.since_s
    due_s = box.since_s + turns.residency_s
    return max(due_s, first.since_s + turns.patience_s) if box.in_flight else due_s
