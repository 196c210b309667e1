"""Deadlines of phases: the time after which an operation is stuck, whatever it waits for.

Each phase ends by a deadline of its own, which the gateway, systemd, the gate or a client keeps. The ones here
are later, so that one that passes shows that nobody has kept it:

==============  ===========================================================================
phase           deadline
==============  ===========================================================================
preflight       a minute: the driver of the GPUs may take half of it
hold, commit    half a minute
drain           that of the drain
stop            the longest stop of the profiles
release         the time for memory to come back, of each profile after the other
run             none: a command may run for days
start, load     several times the longest silence of each profile that starts, ten minutes at
                least: a first load that compiles takes minutes, and is ended after a silence
warm-up         that of each profile that starts, after the other
verify          a quarter of a minute for each profile that starts: pages and log are read within that
==============  ===========================================================================

The profiles that start are those of the present direction: what was stopped counts as soon as the
operation goes back to it.
"""

from collections.abc import Iterable
from typing import Final

from appliance.model.operations import Operation, Phase
from appliance.model.profile import Catalogue, Deadlines
from appliance.switch.goals import to_start

_MARGIN_S: Final = 30.0
_PREFLIGHT_S: Final = 60.0
_LEAST_LOAD_S: Final = 600.0
_SILENCES: Final = 6.0
_VERIFY_S: Final = 15.0


def involved(operation: Operation) -> tuple[str, ...]:
    """Return the profiles that an operation starts or stops, sorted; those of its roll-back too."""
    goal = operation.goal
    return tuple(sorted({*goal.stop, *goal.start, *goal.restore} - set(goal.kept)))


def phase_deadline_s(operation: Operation, catalogue: Catalogue) -> float | None:
    """Return the longest time of the present phase, in seconds from its beginning; None: none."""
    every = _deadlines(involved(operation), catalogue)
    starting = _deadlines(to_start(operation), catalogue)
    match operation.phase:
        case Phase.RUN:
            return None
        case Phase.PREFLIGHT:
            return _PREFLIGHT_S
        case Phase.DRAIN:
            longest_s = max((deadlines.drain_s for deadlines in every), default=0.0)
            limit_s = longest_s if operation.drain_s is None else operation.drain_s
        case Phase.STOP:
            limit_s = max((deadlines.stop_s for deadlines in every), default=0.0)
        case Phase.RELEASE:
            limit_s = sum(deadlines.release_s for deadlines in every)
        case Phase.START | Phase.LOAD:
            silences_s = sum(deadlines.no_progress_s for deadlines in starting)
            limit_s = max(_LEAST_LOAD_S, _SILENCES * silences_s)
        case Phase.WARM_UP:
            limit_s = sum(deadlines.warm_up_s for deadlines in starting)
        case Phase.VERIFY:
            limit_s = _VERIFY_S * len(starting)
        case _:
            limit_s = 0.0
    return limit_s + _MARGIN_S


def _deadlines(names: Iterable[str], catalogue: Catalogue) -> list[Deadlines]:
    return [catalogue[name].deadlines for name in names if name in catalogue]
