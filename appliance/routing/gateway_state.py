"""Decision which profiles clients see as serving, starting or down, and whose requests are held.

Everything is derived from the box and the operation's row, so that a supervisor that takes over in
the middle of an operation holds the same requests as the one before.

============================  ==============================================================
the operation                 whose new requests are held
============================  ==============================================================
checks, or is committed       nobody's
runs                          those of what it stops, and of what it starts
runs a command                nobody's: it may take days, and nothing is coming
goes back                     those of everything that it touched
============================  ==============================================================

A switch to what serves already stops nothing and starts nothing: its requests are not held.
"""

from collections.abc import Iterable

from appliance.model.gateway import Standing, State
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import Kind, Operation, Phase
from appliance.model.profile import Catalogue
from appliance.status.unit_state import unit_verdict


def state_of(
    catalogue: Catalogue,
    observed: Observed,
    committed: Iterable[str],
    operation: Operation | None,
    *,
    started: frozenset[str] = frozenset(),
    on_hold: bool = False,
) -> State:
    """Return the standing of every profile, and the profiles whose new requests are held.

    Args:
        catalogue: Every applied profile.
        observed: Their units.
        committed: Names to serve after a boot.
        operation: The running operation, until it is committed; None: none runs.
        started: Profiles whose start the operation's process has asked for.
        on_hold: A boot would hold.
    """
    operated = operation is not None and operation.kind in {Kind.HOLD, Kind.RUN}
    runs = operation is not None and operation.kind is Kind.RUN
    by_hand = observed.hold_active or not observed.run.idle
    return State(
        standings={n: standing_of(observed.unit(n)) for n in sorted(catalogue)},
        held=frozenset() if operation is None else _held(operation, observed, started),
        target=() if operation is None else _target(operation),
        committed=tuple(committed),
        paused=on_hold or by_hand or operated,
        lent=runs or not observed.run.idle,
        failed=frozenset(n for n in catalogue if _has_failed(observed.unit(n))),
        crashed=frozenset(n for n in catalogue if _crashed(observed.unit(n))),
    )


def _has_failed(unit: ObservedUnit) -> bool:
    """Tell whether a unit is down by a failure of its engine, or by a refusal of its gate."""
    return unit_verdict(unit).state in {"failed", "refused"}


def _crashed(unit: ObservedUnit) -> bool:
    return unit.waits_to_restart and unit.engine_ended


def standing_of(unit: ObservedUnit) -> Standing:
    """Return the standing that a unit's state gives its profile.

    A unit that stops counts as one that starts: what systemd does next (start it again after a
    crash, or leave it) shows when it has stopped.
    """
    if unit.serving:
        return Standing.SERVING
    passing = unit.active in {ActiveState.ACTIVATING, ActiveState.DEACTIVATING}
    return Standing.STARTING if passing or unit.has_job else Standing.DOWN


def _held(operation: Operation, observed: Observed, started: frozenset[str]) -> frozenset[str]:
    goal = operation.goal
    if operation.rolling_back:
        return frozenset({*goal.stop, *goal.start, *goal.restore}) - {*goal.kept}
    if operation.phase in {Phase.PREFLIGHT, Phase.RUN}:
        return frozenset()
    if goal.stop:
        return frozenset({*goal.stop, *goal.start})
    return frozenset(n for n in goal.start if n in started or not observed.unit(n).serving)


def _target(operation: Operation) -> tuple[str, ...]:
    if operation.rolling_back:
        return operation.goal.restore if operation.rollback else ()
    return () if operation.phase is Phase.PREFLIGHT else operation.goal.start
