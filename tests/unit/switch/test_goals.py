"""Goals of operations: what each kind stops, starts, restores and commits."""

from collections.abc import Mapping

import pytest

from appliance.model.claims import Claim
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import FOREVER, Goal, Kind
from appliance.switch.goals import goal_of, in_the_way
from tests.fakes.profiles import applied, catalogue

BOX = catalogue(
    applied("both", "gpu-all"),
    applied("left", "gpu-0"),
    applied("other", "gpu-all"),
    applied("right", "gpu-1"),
    applied("shared"),
)
UP = ObservedUnit(active=ActiveState.ACTIVE, sub="running", main_pid=1)
QUEUED = ObservedUnit(has_job=True)
COMING = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", has_job=True)
STOPPING = ObservedUnit(active=ActiveState.DEACTIVATING, sub="stop-sigterm", has_job=True)
PAUSED = ObservedUnit(active=ActiveState.ACTIVATING, sub="auto-restart")


def goal(
    kind: Kind,
    *names: str,
    units: Mapping[str, ObservedUnit],
    committed: tuple[str, ...] = (),
    claim: str = "",
) -> Goal:
    return goal_of(
        kind,
        names,
        catalogue=BOX,
        observed=Observed(units={name: units.get(name, ObservedUnit()) for name in BOX}),
        committed=committed,
        hold_until=FOREVER if kind is Kind.HOLD else None,
        claim=Claim(devices=frozenset({claim} - {""})),
    )


@pytest.mark.parametrize(
    ("name", "rivals"),
    [
        ("both", {"left", "other", "right"}),
        ("left", {"both", "other"}),
        ("shared", set()),
    ],
)
def test_who_is_in_the_way(name: str, rivals: set[str]) -> None:
    """Profiles whose claims intersect, and never the profile itself."""
    assert in_the_way(name, BOX) == rivals


@pytest.mark.parametrize(
    ("units", "names", "evicted", "restore", "commit"),
    [
        ({}, ("both",), (), (), ("both", "shared")),
        (
            {"left": UP, "right": UP},
            ("both",),
            ("left", "right"),
            ("left", "right"),
            ("both", "shared"),
        ),
        ({"both": UP}, ("left",), ("both",), ("both",), ("left", "right", "shared")),
        ({"right": UP, "shared": UP}, ("left",), (), (), ("left", "right", "shared")),
        ({"left": UP}, ("left",), (), ("left",), ("left", "right", "shared")),
    ],
)
def test_a_switch_evicts_and_replaces_what_is_in_the_way(
    units: dict[str, ObservedUnit],
    names: tuple[str, ...],
    evicted: tuple[str, ...],
    restore: tuple[str, ...],
    commit: tuple[str, ...],
) -> None:
    """A profile that runs beside the target keeps running and stays committed."""
    found = goal(Kind.SWITCH, *names, committed=("right", "shared"), units=units)
    assert (found.stop, found.start, found.restore) == (evicted, names, restore)
    assert found.commit == commit


@pytest.mark.parametrize("kind", [Kind.SWITCH, Kind.START, Kind.REPAIR])
@pytest.mark.parametrize(
    ("unit", "kept", "restore"),
    [
        (UP, ("left",), ("left",)),
        (COMING, ("left",), ()),
        (QUEUED, ("left",), ()),
        (STOPPING, (), ()),
        (PAUSED, (), ()),
        (ObservedUnit(), (), ()),
    ],
)
def test_what_runs_already_is_kept(
    kind: Kind, unit: ObservedUnit, kept: tuple[str, ...], restore: tuple[str, ...]
) -> None:
    """A failure leaves what ran before the operation alone, and wants back what served."""
    found = goal(kind, "left", "shared", units={"left": unit})
    assert (found.kept, found.restore, found.stop) == (kept, restore, ())


@pytest.mark.parametrize("kind", [Kind.SWITCH, Kind.RUN])
@pytest.mark.parametrize(
    ("units", "restore"),
    [
        ({"left": UP, "right": PAUSED}, ("left", "right")),
        ({"both": STOPPING, "left": QUEUED}, ("left",)),
        ({"both": STOPPING, "left": QUEUED, "right": UP}, ("left", "right")),
        ({"both": PAUSED, "left": COMING}, ("left",)),
        ({"both": UP, "left": COMING}, ("both",)),
        ({"both": COMING, "left": STOPPING, "right": STOPPING}, ("both",)),
        ({"both": PAUSED, "left": PAUSED}, ("both",)),
    ],
)
def test_only_what_can_serve_together_is_restored(
    kind: Kind, units: dict[str, ObservedUnit], restore: tuple[str, ...]
) -> None:
    """While one profile replaces another both are stopped, and one of them comes back."""
    names = ("other",) if kind is Kind.SWITCH else ()
    found = goal(kind, *names, claim="gpu-all", units=units)
    assert (found.stop, found.restore) == (tuple(sorted(units)), restore)


@pytest.mark.parametrize(
    ("kind", "names", "expected"),
    [
        (Kind.START, ("right",), Goal(start=("right",), kept=("right",))),
        (Kind.START, (), Goal(start=("left", "shared"), restore=("left",), kept=("left",))),
        (Kind.REPAIR, ("shared",), Goal(start=("shared",))),
        (Kind.STOP, ("shared", "left"), Goal(stop=("left", "shared"))),
        (Kind.STOP, (), Goal(stop=("left", "right"))),
        (Kind.RESTART, ("left",), Goal(stop=("left",), start=("left",), restore=("left",))),
        (Kind.RESTART, (), Goal(stop=("left",), start=("left",), restore=("left",))),
        (
            Kind.HOLD,
            (),
            Goal(stop=("left", "right"), restore=("left", "right"), hold_until=FOREVER),
        ),
    ],
)
def test_the_other_kinds_touch_what_they_name(
    kind: Kind, names: tuple[str, ...], expected: Goal
) -> None:
    """With names those, without the committed ones, what is busy, or what serves."""
    committed = ("gone", "left", "shared")
    assert goal(kind, *names, committed=committed, units={"left": UP, "right": COMING}) == expected


def test_a_command_evicts_what_is_in_the_way_of_its_claim() -> None:
    """A command on one GPU leaves the other one's profile alone."""
    found = goal(Kind.RUN, claim="gpu-0", units=dict.fromkeys(("left", "right", "shared"), UP))
    assert found == Goal(stop=("left",), restore=("left",), claim=("gpu-0",))
