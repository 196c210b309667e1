"""Goals of operations: which profiles each kind stops, starts and commits; deadlines of their phases.

======== ============================== =============================== ==================
kind     stops                          starts                          committed after
======== ============================== =============================== ==================
switch   what runs and is in the way    the target                      target instead of
                                                                        what conflicts
start    nothing, or it is refused      the targets, else the committed unchanged
stop     the targets, else all          nothing                         unchanged
restart  the targets, else all          the same                        unchanged
hold     all                            nothing, and keeps it so        unchanged
repair   nothing                        the targets                     unchanged
run      what runs and is in the way    nothing, but a command; what    unchanged
         of the command's claim         was stopped comes back
======== ============================== =============================== ==================

When it fails, what it stopped is started again, and what it found running is left running.

Each phase ends by a deadline of its own, which the gateway, systemd, the gate or a client keeps. The
deadlines of this module are later: after them an operation is stuck, and what should have ended the
phase has failed.

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
from dataclasses import dataclass
from typing import Final, Literal, assert_type

from appliance.model.claims import NOTHING, Claim
from appliance.model.errors import PreconditionError
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import Goal, HoldUntil, Kind, Operation, Phase
from appliance.model.profile import Catalogue, Deadlines

_ENDS: Final = 2
"""Rank of a unit that stops, or that systemd will start again after a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """Changes that a commit makes on disk for the next boot."""

    names: tuple[str, ...] | None = None
    """Names to serve after a boot, sorted; None: unchanged."""
    sets_hold: bool = False
    """Whether the hold is replaced by `hold`."""
    hold: HoldUntil = None
    """New hold; None: no hold."""


def in_the_way(name: str, catalogue: Catalogue) -> frozenset[str]:
    """Return the profiles that can never run together with `name`."""
    return in_the_way_of(catalogue[name].claim, catalogue) - {name}


def in_the_way_of(claim: Claim, catalogue: Catalogue) -> frozenset[str]:
    """Return the profiles that can never run while another process has `claim`."""
    return frozenset(n for n, applied in catalogue.items() if applied.claim.intersects(claim))


def goal_of(
    kind: Kind,
    names: tuple[str, ...],
    *,
    catalogue: Catalogue,
    observed: Observed,
    committed: Iterable[str],
    hold_until: HoldUntil = None,
    claim: Claim = NOTHING,
) -> Goal:
    """Return the goal of an operation on `names` (all known) as the box is now.

    Args:
        kind: Kind of the operation.
        names: Profiles; none for a run.
        catalogue: Every applied profile.
        observed: The box.
        committed: Names to serve after a boot.
        hold_until: Of a hold.
        claim: Of a run.
    """
    busy = observed.busy()
    committed = tuple(sorted(committed))
    if kind in {Kind.START, Kind.REPAIR}:
        names = names or tuple(n for n in committed if n in catalogue)
    serve = tuple(n for n in names if observed.unit(n).serving)
    kept = tuple(sorted(n for n in names if n in busy and _rank(observed.unit(n)) < _ENDS))
    match kind:
        case Kind.SWITCH:
            rivals = frozenset[str]().union(*(in_the_way(n, catalogue) for n in names))
            evicted = tuple(n for n in busy if n in rivals and n not in names)
            beside = tuple(n for n in committed if n not in rivals and n not in names)
            return Goal(
                stop=evicted,
                start=names,
                restore=_together((*evicted, *serve), catalogue, observed),
                kept=kept,
                commit=tuple(sorted({*beside, *names})),
            )
        case Kind.START | Kind.REPAIR:
            return Goal(start=names, restore=tuple(sorted(serve)), kept=kept)
        case Kind.STOP:
            return Goal(stop=tuple(sorted(names)) or busy)
        case Kind.RESTART:
            again = tuple(sorted(names)) or observed.serving()
            ran = tuple(n for n in again if n in busy)
            return Goal(stop=again, start=again, restore=ran)
        case Kind.HOLD:
            restore = _together(busy, catalogue, observed)
            return Goal(stop=busy, restore=restore, hold_until=hold_until)
        case _:
            assert_type(kind, Literal[Kind.RUN])
            rivals = in_the_way_of(claim, catalogue)
            evicted = tuple(n for n in busy if n in rivals)
            return Goal(
                stop=evicted,
                restore=_together(evicted, catalogue, observed),
                claim=tuple(sorted(claim.devices)),
            )


def check_left_out(name: str, catalogue: Catalogue) -> None:
    """Check that no devices lose their owner when a boot does not start `name` any more.

    A profile that is not applied owns nothing.

    Raises:
        PreconditionError: it owns devices alone.
    """
    devices = sorted(catalogue[name].claim.devices) if name in catalogue else []
    if devices:
        raise PreconditionError(
            f"{name} owns {' and '.join(devices)}, and after a boot no model would:"
            f" appliance switch NAME commits another in its place;"
            f" if none is meant: appliance uncommit {name} --exclusive"
        )


def to_start(operation: Operation) -> tuple[str, ...]:
    """Return the profiles that an operation brings up in its present direction, in their order."""
    if not operation.rolling_back:
        return operation.goal.start
    return operation.goal.restore if operation.rollback else ()


def writes_of(operation: Operation, committed: tuple[str, ...]) -> Writes:
    """Return what `operation` changes when it succeeds; names that are `committed` already stay."""
    goal = operation.goal
    ends_hold = bool(goal.start) and operation.kind is not Kind.REPAIR
    return Writes(
        names=None if goal.commit == committed else goal.commit,
        sets_hold=goal.hold_until is not None or ends_hold,
        hold=goal.hold_until,
    )


def _together(names: Iterable[str], catalogue: Catalogue, observed: Observed) -> tuple[str, ...]:
    """Return those of `names` that can serve together; of two that conflict, the first by rank."""
    chosen: set[str] = set()
    for name in sorted(names, key=lambda n: (_rank(observed.unit(n)), n)):
        if not in_the_way(name, catalogue) & chosen:
            chosen.add(name)
    return tuple(sorted(chosen))


def _rank(unit: ObservedUnit) -> int:
    """Return the rank of a unit for a restore: serving, starting, stopping or crashed."""
    if unit.serving:
        return 0
    ends = unit.active is ActiveState.DEACTIVATING or unit.waits_to_restart
    return _ENDS if ends else 1


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
