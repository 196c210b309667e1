"""Progress of the phase that runs, by the usual duration of that phase.

Engines do not tell how far they have loaded in one way, and memory says little: a mapped model is resident
in part. The last times that the same profiles were brought up say how long it takes.
"""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Final

from appliance.model.operations import Finished, Operation, Outcome

_MOST: Final = 5
"""Times that are looked at, the newest: a model that grew soon has another usual duration."""
_LEAST_S: Final = 1.0
"""Usual duration below which a share says nothing."""
MOST_SHARE: Final = 0.99
"""Share of a phase that has taken as long as usual, or longer, and still runs."""


def usual_phases_s(ended: Iterable[Finished], operation: Operation) -> Mapping[str, float]:
    """Return the median duration of each phase, by its name.

    Args:
        ended: Operations that are over, newest first.
        operation: Operation that runs; others with the same target that were done count.
    """
    like = [
        one.phases_ms
        for one in ended
        if one.outcome is Outcome.DONE
        and one.operation.target == operation.target
        and one.operation.id != operation.id
    ][:_MOST]
    phases = {phase for phases_ms in like for phase in phases_ms}
    return {
        phase: median(found[phase] for found in like if phase in found) / 1000 for phase in phases
    }


def phase_share(phase_s: float, usual_s: float | None) -> float | None:
    """Return the share of a phase that is over, 0 to 1; None: its usual duration is not known, or short."""
    if usual_s is None or usual_s < _LEAST_S:
        return None
    return round(min(phase_s / usual_s, MOST_SHARE), 3)
