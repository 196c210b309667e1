"""Goals of operations: what each kind stops, starts, restores and commits."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from appliance.model.claims import Claim
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import FOREVER, Cause, Goal, Kind, Operation, Phase
from appliance.model.profile import Deadlines
from appliance.switch.goals import goal_of, in_the_way, involved, phase_deadline_s
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


QUICK = Deadlines(no_progress_s=20.0, stop_s=5.0, drain_s=4.0, release_s=7.0, warm_up_s=9.0)
SLOW = Deadlines(no_progress_s=300.0, stop_s=90.0, drain_s=30.0, release_s=60.0, warm_up_s=120.0)
CATALOGUE = catalogue(
    replace(applied("a", "gpu-0"), deadlines=QUICK), replace(applied("b"), deadlines=SLOW)
)
SWITCH = Operation(
    id=1,
    kind=Kind.SWITCH,
    target=("b",),
    goal=Goal(stop=("a",), start=("b",), restore=("a",)),
    boot_id="x",
    requested_by="ana",
    began_unix_s=0.0,
)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.PREFLIGHT, 60.0),
        (Phase.HOLD, 30.0),
        (Phase.DRAIN, 60.0),
        (Phase.STOP, 120.0),
        (Phase.RELEASE, 97.0),
        (Phase.RUN, None),
        (Phase.START, 1830.0),
        (Phase.LOAD, 1830.0),
        (Phase.WARM_UP, 150.0),
        (Phase.VERIFY, 45.0),
        (Phase.COMMIT, 30.0),
    ],
)
def test_a_phase_is_stuck_after_all_that_may_end_it(phase: Phase, expected: float | None) -> None:
    """The deadline is later than those of the profiles that the phase waits for."""
    assert phase_deadline_s(replace(SWITCH, phase=phase), CATALOGUE) == expected


@pytest.mark.parametrize("phase", [Phase.START, Phase.LOAD])
def test_a_load_waits_for_what_starts_alone(phase: Phase) -> None:
    """Silences of a profile that is only stopped count once the operation goes back to it."""
    goal = Goal(stop=("b",), start=("a",), restore=("b",))
    forward = replace(SWITCH, phase=phase, target=("a",), goal=goal)
    assert phase_deadline_s(forward, CATALOGUE) == 630.0
    back = replace(forward, cause=Cause.FAILURE, reason="a did not start")
    assert phase_deadline_s(back, CATALOGUE) == 1830.0
    assert phase_deadline_s(replace(back, rollback=False), CATALOGUE) == 630.0


def test_a_load_waits_for_what_was_coming_up_before() -> None:
    """A profile that is kept may still load, by a start of before the operation."""
    goal = Goal(start=("b",), restore=(), kept=("b",))
    load = replace(SWITCH, phase=Phase.LOAD, goal=goal)
    assert phase_deadline_s(load, CATALOGUE) == 1830.0


def test_a_drain_that_was_asked_for_counts() -> None:
    """An operator's time for the drain takes the place of the profiles'."""
    assert phase_deadline_s(replace(SWITCH, phase=Phase.DRAIN, drain_s=0.0), CATALOGUE) == 30.0


def test_a_load_has_ten_minutes_at_least() -> None:
    """A profile that may be silent for seconds only may still load for minutes."""
    goal = Goal(start=("a",))
    load = replace(SWITCH, phase=Phase.LOAD, goal=goal)
    assert phase_deadline_s(load, CATALOGUE) == 630.0


@pytest.mark.parametrize("phase", [Phase.DRAIN, Phase.STOP, Phase.RELEASE, Phase.WARM_UP])
def test_profiles_that_are_gone_have_no_deadline(phase: Phase) -> None:
    """A profile that is applied no more adds nothing."""
    assert phase_deadline_s(replace(SWITCH, phase=phase), {}) == 30.0


def test_profiles_that_are_kept_are_not_involved() -> None:
    """Profiles that are started or stopped are involved, in a roll-back too; those that stay are not."""
    assert involved(SWITCH) == ("a", "b")
    goal = Goal(start=("a", "b"), restore=("b",), kept=("b",))
    assert involved(replace(SWITCH, goal=goal)) == ("a",)
