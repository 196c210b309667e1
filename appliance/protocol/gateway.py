"""What the gateway is told: how profiles stand, and whose requests wait for an operation.

Everything is read off the box and the operation's row, so that a supervisor that takes over in
the middle of an operation holds the same requests as the one before.

============================  ==============================================================
the operation                 whose new requests wait
============================  ==============================================================
checks, or is committed       nobody's
runs                          those of what it stops, and of what it starts
runs a command                nobody's: it may take days, and nothing is coming
goes back                     those of everything that it touched
============================  ==============================================================

A switch to what serves already stops nothing and starts nothing: its requests do not wait.
"""

from collections.abc import Iterable, Mapping

from appliance.domain.gateway import Standing, State
from appliance.domain.names import is_profile_name
from appliance.domain.observed import ActiveState, Observed, ObservedUnit
from appliance.domain.operations import Kind, Operation, Phase
from appliance.domain.profile import Catalogue


def state_of(
    catalogue: Catalogue,
    observed: Observed,
    committed: Iterable[str],
    operation: Operation | None,
    *,
    started: frozenset[str] = frozenset(),
    on_hold: bool = False,
) -> State:
    """What clients meet now.

    Args:
        catalogue: Every applied profile.
        observed: Their units.
        committed: Names to serve after a boot.
        operation: The running one, until it is committed; None: none runs.
        started: What its process has started so far.
        on_hold: A boot would hold.
    """
    operated = operation is not None and operation.kind in {Kind.HOLD, Kind.RUN}
    by_hand = observed.hold_active or not observed.run.idle
    return State(
        standings={n: standing_of(observed.unit(n)) for n in sorted(catalogue)},
        held=frozenset() if operation is None else _held(operation, observed, started),
        target=() if operation is None else _target(operation),
        committed=tuple(committed),
        paused=on_hold or by_hand or operated,
    )


def standing_of(unit: ObservedUnit) -> Standing:
    """How a unit stands.

    One that stops is worth a moment's wait: what systemd does with it next (start it again after
    a crash, leave it) shows when it has stopped.
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


def encode_state(state: State) -> dict[str, object]:
    """As it is sent and kept, for JSON."""
    return {
        "standings": {name: standing.value for name, standing in state.standings.items()},
        "held": sorted(state.held),
        "target": list(state.target),
        "committed": list(state.committed),
        "paused": state.paused,
    }


def decode_state(document: object) -> State:
    """The reverse. Raises `ValueError`."""
    if not isinstance(document, Mapping):
        raise ValueError("a state is no object")  # noqa: TRY004 - whatever is wrong is one thing
    standings = document.get("standings")
    if not isinstance(standings, Mapping):
        raise ValueError("standings is no object")  # noqa: TRY004
    return State(
        standings={_name(n): Standing(s) for n, s in standings.items()},
        held=frozenset(decode_names(document, "held")),
        target=decode_names(document, "target"),
        committed=decode_names(document, "committed"),
        paused=document.get("paused") is True,
    )


def decode_names(document: Mapping[str, object], key: str) -> tuple[str, ...]:
    """The profile names at `key`. Raises `ValueError`."""
    names = document.get(key)
    if not isinstance(names, list):
        raise ValueError(f"{key} is no list")  # noqa: TRY004
    return tuple(_name(name) for name in names)


def _name(name: object) -> str:
    if not isinstance(name, str) or not is_profile_name(name):
        raise ValueError(f"{name!r:.60} is no profile")
    return name
