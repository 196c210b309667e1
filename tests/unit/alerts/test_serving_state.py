"""Desired state of a profile."""

from dataclasses import replace

import pytest

from appliance.alerts.serving_state import is_desired
from appliance.alerts.snapshot import UnitLook
from appliance.model.observed import ActiveState
from appliance.model.status import OperationRow

RUNS = UnitLook(unit="a", active=ActiveState.ACTIVE, sub="running", active_since_unix_s=5.0)
ENDED = replace(RUNS, active=ActiveState.INACTIVE, sub="dead")
FAILED = replace(RUNS, active=ActiveState.FAILED, sub="failed", result="exit-code")
NEVER = UnitLook(unit="a")
SWITCH = OperationRow(
    id=1,
    kind="switch",
    target=("b",),
    profiles=("a", "b"),
    phase="stop",
    phase_s=0.0,
    deadline_s=None,
)


def desired(unit: UnitLook | None, /, **more: object) -> bool | None:
    """Whether a committed profile of this unit should serve."""
    given: dict[str, object] = {
        "is_committed": True,
        "is_held": False,
        "operation": None,
        "rivals": (),
        "is_watched_since_boot": True,
    }
    return is_desired("a", unit=unit, **{**given, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (RUNS, True),
        (replace(RUNS, active=ActiveState.ACTIVATING, sub="auto-restart"), True),
        (ENDED, False),
        (replace(ENDED, result="exit-code"), False),  # stopped in the pause before a restart
        (replace(ENDED, result="exec-condition"), True),  # the gate refused it
        (replace(FAILED, was_stopped=True), False),  # a stop by hand that ended badly
        (FAILED, True),  # by its wrapper, or with Restart=no in its profile
        (replace(FAILED, result="start-limit-hit"), True),
        (NEVER, True),
        (None, None),
    ],
)
def test_a_stop_by_hand_is_wanted_and_a_crash_is_not(
    *, unit: UnitLook | None, expected: bool | None
) -> None:
    """A unit that runs, has crashed for good or was refused should serve; a stopped one should not."""
    assert desired(unit) is expected


def test_a_unit_that_systemd_may_have_forgotten_is_unknown() -> None:
    """Where nobody has watched since the boot, a unit without a history may have been stopped by hand."""
    assert desired(NEVER, is_watched_since_boot=False) is None
    assert desired(ENDED, is_watched_since_boot=False) is False


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"is_committed": False}, False),
        ({"is_held": True}, False),
        ({"operation": SWITCH}, False),
        ({"operation": SWITCH.replaced(target=("b", "a"))}, True),
        ({"operation": SWITCH.replaced(profiles=("b",))}, True),
        ({"rivals": (replace(RUNS, unit="b"),)}, False),
        ({"rivals": (replace(FAILED, unit="b"), replace(ENDED, unit="c"))}, True),
    ],
)
def test_holds_operations_and_rivals_take_its_place(
    *, more: dict[str, object], expected: bool
) -> None:
    """A profile is not missed while a decision of somebody keeps it down."""
    assert desired(RUNS, **more) is expected
