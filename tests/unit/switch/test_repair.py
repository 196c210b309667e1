"""Repair: which committed profiles come back by themselves, and when."""

from dataclasses import replace

import pytest

from appliance.model.observed import ActiveState, Observed, ObservedUnit, stopped_at
from appliance.model.operations import Finished, Goal, Kind, Operation, Outcome
from appliance.switch.repair import (
    PAUSES_S,
    evicted_in_vain,
    left_by_choice,
    left_by_hold,
    to_repair,
)
from tests.fakes.profiles import applied, catalogue

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"), applied("embedder"))
NOW_S = 100_000.0

IDLE = ObservedUnit()
CRASHED = ObservedUnit(active=ActiveState.FAILED, sub="failed", result="start-limit-hit")
LEASE_HELD = ObservedUnit(
    active=ActiveState.FAILED, sub="failed", result="exit-code", exit_status=79
)
PATCH_FAILED = ObservedUnit(
    active=ActiveState.FAILED, sub="failed", result="exit-code", exit_status=78
)
UP = ObservedUnit(active=ActiveState.ACTIVE, sub="running", main_pid=1)
COMING = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", has_job=True)
STOPPING = ObservedUnit(active=ActiveState.DEACTIVATING, sub="stop-sigterm", has_job=True)


def repaired(
    unit: ObservedUnit,
    *,
    rival: ObservedUnit = IDLE,
    refused: bool = False,
    attempts: tuple[float, ...] = (),
    left: tuple[str, ...] = (),
    box: Observed | None = None,
) -> bool:
    names = to_repair(
        committed=("aeon", "gone"),
        observed=box or Observed(units={"aeon": unit, "genesis": rival}),
        catalogue=BOX,
        refusals={"aeon": "held"} if refused else {},
        attempts={"aeon": attempts},
        now_unix_s=NOW_S,
        left=left,
    )
    assert names in {(), ("aeon",)}
    return bool(names)


@pytest.mark.parametrize(
    ("unit", "refused", "wanted"),
    [
        (CRASHED, False, True),
        (LEASE_HELD, False, True),
        (PATCH_FAILED, False, False),
        (IDLE, False, False),
        (IDLE, True, True),
        (UP, True, False),
        (COMING, True, False),
    ],
)
def test_what_crashed_or_was_refused_comes_back(
    unit: ObservedUnit,
    refused: bool,  # noqa: FBT001
    wanted: bool,  # noqa: FBT001
) -> None:
    """A unit that systemd gave up on, and one that the gate refused, are started again."""
    assert repaired(unit, refused=refused) is wanted


@pytest.mark.parametrize("rival", [UP, COMING, STOPPING])
def test_nothing_comes_back_beside_a_rival(rival: ObservedUnit) -> None:
    """While a rival is not idle, a crashed profile stays down."""
    assert not repaired(CRASHED, rival=rival)


@pytest.mark.parametrize(
    "box",
    [
        Observed(units={"aeon": CRASHED}, hold_active=True),
        Observed(units={"aeon": CRASHED}, going_down=True),
        Observed(units={"aeon": CRASHED}, run=UP),
    ],
)
def test_nothing_comes_back_during(box: Observed) -> None:
    """A hold, a shutdown and a command each keep a crashed profile down."""
    assert not repaired(CRASHED, box=box)


@pytest.mark.parametrize("earlier", range(1, len(PAUSES_S) + 2))
def test_pauses_grow(earlier: int) -> None:
    """The n-th repair within an hour waits for the n-th pause; the last pause repeats."""
    pause_s = PAUSES_S[min(earlier, len(PAUSES_S)) - 1]
    latest = (NOW_S - pause_s,) * earlier
    assert repaired(CRASHED, attempts=latest)
    assert not repaired(CRASHED, attempts=tuple(t + 0.5 for t in latest))


def test_attempts_are_forgotten() -> None:
    """Repairs of more than an hour ago, and of a clock that ran ahead, do not delay one."""
    assert repaired(CRASHED, attempts=(NOW_S - 3601.0, NOW_S + 60.0))


@pytest.mark.parametrize(
    ("unit", "rival", "attempts", "is_left"),
    [
        (IDLE, IDLE, (), True),
        (CRASHED, IDLE, (), True),  # it ended badly when the hold stopped it
        (CRASHED, IDLE, (NOW_S - 1.0,), False),  # tried since, and failed: a crash
        (CRASHED, IDLE, (NOW_S - 20.0,), True),
        (IDLE, IDLE, (NOW_S - 1.0,), True),  # tried since, and refused before it began
        (UP, IDLE, (), False),
        (COMING, IDLE, (), False),
        (STOPPING, IDLE, (), True),  # the hold still stops it
        (IDLE, UP, (), False),
        (IDLE, COMING, (), False),
        (IDLE, STOPPING, (), True),
    ],
)
def test_what_a_hold_leaves_down(
    unit: ObservedUnit,
    rival: ObservedUnit,
    attempts: tuple[float, ...],
    is_left: bool,  # noqa: FBT001
) -> None:
    """When a timed hold is over, what it stopped is due, unless somebody chose a rival."""
    names = left_by_hold(
        NOW_S - 10.0,
        committed=("aeon", "gone"),
        observed=Observed(units={"aeon": unit, "genesis": rival}),
        catalogue=BOX,
        attempts={"aeon": attempts},
    )
    assert names == (("aeon",) if is_left else ())
    assert repaired(IDLE, left=names) is is_left
    assert not repaired(STOPPING, left=names)


STOPPED = replace(IDLE, changed_s=55.0, stopped_s=50.0)


@pytest.mark.parametrize(
    ("unit", "rival", "refused", "lost"),
    [
        (STOPPED, replace(CRASHED, changed_s=60.0), False, True),
        (STOPPED, replace(CRASHED, changed_s=52.0), False, True),  # it did not wait for the stop
        (STOPPED, replace(LEASE_HELD, changed_s=60.0), False, True),
        (STOPPED, replace(PATCH_FAILED, changed_s=60.0), False, True),
        (STOPPED, replace(IDLE, changed_s=60.0), True, True),
        (STOPPED, replace(IDLE, changed_s=60.0), False, False),  # somebody stopped it
        (STOPPED, replace(CRASHED, changed_s=40.0), False, False),  # before the profile's end
        (STOPPED, replace(IDLE, changed_s=40.0), True, False),
        (STOPPED, replace(UP, changed_s=60.0), False, False),
        (STOPPED, replace(COMING, changed_s=60.0), True, False),
        (IDLE, replace(CRASHED, changed_s=60.0), False, False),  # systemd has forgotten its end
        (replace(UP, stopped_s=50.0), replace(CRASHED, changed_s=60.0), False, False),
    ],
)
def test_evicted_profile_comes_back_when_its_rival_is_lost(
    unit: ObservedUnit,
    rival: ObservedUnit,
    refused: bool,  # noqa: FBT001
    lost: bool,  # noqa: FBT001
) -> None:
    """The last that happened decides: a rival that crashed for good or was refused was no stop."""
    found = evicted_in_vain(
        committed=("aeon", "embedder", "gone"),
        observed=Observed(
            units={"aeon": unit, "genesis": rival, "embedder": replace(IDLE, stopped_s=1.0)}
        ),
        catalogue=BOX,
        refusals={"genesis": "held"} if refused else {},
    )
    assert found == ({"aeon": "genesis"} if lost else {})


@pytest.mark.parametrize(
    ("outcome", "rollback", "boot_id", "left"),
    [
        (Outcome.FAILED, False, "now", True),
        (Outcome.FAILED, True, "now", False),
        (Outcome.FAILED, False, "before", False),
        (Outcome.DONE, False, "now", False),
    ],
)
def test_what_was_given_up_without_roll_back_is_left(
    outcome: Outcome,
    rollback: bool,  # noqa: FBT001
    boot_id: str,
    left: bool,  # noqa: FBT001
) -> None:
    """Only a failed operation of this boot that was told not to roll back leaves things down."""
    operation = Operation(
        id=1,
        kind=Kind.SWITCH,
        target=("genesis",),
        goal=Goal(stop=("aeon",), start=("genesis",)),
        boot_id=boot_id,
        requested_by="ana",
        began_unix_s=0.0,
        rollback=rollback,
    )
    last = Finished(operation=operation, outcome=outcome, message="", finished_unix_s=1.0)
    assert left_by_choice(last, "now") == ({"aeon"} if left else set())
    assert left_by_choice(None, "now") == set()


@pytest.mark.parametrize(
    ("active_exit_s", "inactive_exit_s", "main_exit_s", "stopped_s"),
    [
        (50.0, 10.0, 51.0, 50.0),  # stopped while it served
        (49.0, 10.0, 48.9, 55.0),  # crashed, and stopped before its restart
        (20.0, 30.0, 54.0, 55.0),  # stopped while it loaded; it served in the run before
        (0.0, 0.0, 0.0, 55.0),
    ],
)
def test_a_stop_begins_before_the_process_ends(
    active_exit_s: float, inactive_exit_s: float, main_exit_s: float, stopped_s: float
) -> None:
    """The unit's times in systemd tell a stop of a serving model from all other ends."""
    found = stopped_at(
        active_exit_s=active_exit_s,
        inactive_exit_s=inactive_exit_s,
        main_exit_s=main_exit_s,
        changed_s=55.0,
    )
    assert found == stopped_s
