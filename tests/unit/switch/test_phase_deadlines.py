"""Deadlines of phases."""

from dataclasses import replace

import pytest

from appliance.model.operations import Cause, Goal, Kind, Operation, Phase
from appliance.model.profile import Deadlines
from appliance.switch.phase_deadlines import involved, phase_deadline_s
from tests.fakes.profiles import applied, catalogue

QUICK = Deadlines(no_progress_s=20.0, stop_s=5.0, drain_s=4.0, release_s=7.0, warm_up_s=9.0)
SLOW = Deadlines(no_progress_s=300.0, stop_s=90.0, drain_s=30.0, release_s=60.0, warm_up_s=120.0)
BOX = catalogue(
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
    assert phase_deadline_s(replace(SWITCH, phase=phase), BOX) == expected


@pytest.mark.parametrize("phase", [Phase.START, Phase.LOAD])
def test_a_load_waits_for_what_starts_alone(phase: Phase) -> None:
    """Silences of a profile that is only stopped count once the operation goes back to it."""
    goal = Goal(stop=("b",), start=("a",), restore=("b",))
    forward = replace(SWITCH, phase=phase, target=("a",), goal=goal)
    assert phase_deadline_s(forward, BOX) == 630.0
    back = replace(forward, cause=Cause.FAILURE, reason="a did not start")
    assert phase_deadline_s(back, BOX) == 1830.0
    assert phase_deadline_s(replace(back, rollback=False), BOX) == 630.0


def test_a_load_waits_for_what_was_coming_up_before() -> None:
    """A profile that is kept may still load, by a start of before the operation."""
    goal = Goal(start=("b",), restore=(), kept=("b",))
    load = replace(SWITCH, phase=Phase.LOAD, goal=goal)
    assert phase_deadline_s(load, BOX) == 1830.0


def test_a_drain_that_was_asked_for_counts() -> None:
    """An operator's time for the drain takes the place of the profiles'."""
    assert phase_deadline_s(replace(SWITCH, phase=Phase.DRAIN, drain_s=0.0), BOX) == 30.0


def test_a_load_has_ten_minutes_at_least() -> None:
    """A profile that may be silent for seconds only may still load for minutes."""
    goal = Goal(start=("a",))
    load = replace(SWITCH, phase=Phase.LOAD, goal=goal)
    assert phase_deadline_s(load, BOX) == 630.0


@pytest.mark.parametrize("phase", [Phase.DRAIN, Phase.STOP, Phase.RELEASE, Phase.WARM_UP])
def test_profiles_that_are_gone_have_no_deadline(phase: Phase) -> None:
    """A profile that is applied no more adds nothing."""
    assert phase_deadline_s(replace(SWITCH, phase=phase), {}) == 30.0


def test_profiles_that_are_kept_are_not_involved() -> None:
    """Profiles that are started or stopped are involved, in a roll-back too; those that stay are not."""
    assert involved(SWITCH) == ("a", "b")
    goal = Goal(start=("a", "b"), restore=("b",), kept=("b",))
    assert involved(replace(SWITCH, goal=goal)) == ("a",)
