"""Rules about operations."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.alerts.watchdog_rules.snapshot import EndedOperation, OperationLook
from appliance.model.alerts import AlertRule, Finding, Severity, Sign
from appliance.model.words import Mark
from tests.fakes.looks import NOW, box_look, looked, of_rule, profile_look, signs_of

GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN
FAILED = EndedOperation(
    id=9,
    kind="switch",
    target="aeon",
    outcome="rolled-back",
    failed=True,
    ended_unix_s=NOW - 5,
    text="aeon: no VRAM came back; genesis serves again",
)
DONE = replace(FAILED, outcome="done", failed=False)
STUCK = OperationLook(
    id=9,
    kind="switch",
    target=("aeon",),
    profiles=("aeon", "genesis"),
    phase="release",
    phase_s=61.0,
    deadline_s=60.0,
)


@pytest.mark.parametrize(
    ("last", "genesis", "aeon", "box"),
    [
        (None, UNKNOWN, UNKNOWN, UNKNOWN),
        (DONE, GOOD, GOOD, GOOD),
        (FAILED, UNKNOWN, BAD, UNKNOWN),
        (replace(FAILED, target="removed"), UNKNOWN, UNKNOWN, BAD),
        (replace(FAILED, target=""), UNKNOWN, UNKNOWN, BAD),
        (replace(FAILED, kind="repair"), UNKNOWN, UNKNOWN, UNKNOWN),
        (replace(DONE, kind="hold"), UNKNOWN, UNKNOWN, UNKNOWN),
        (replace(DONE, kind="restart"), GOOD, GOOD, GOOD),
        (replace(FAILED, ended_unix_s=NOW - 86_400), UNKNOWN, UNKNOWN, UNKNOWN),
        (replace(DONE, ended_unix_s=NOW - 86_400), GOOD, GOOD, GOOD),
    ],
)
def test_failed_switch_lasts_until_the_next_success(
    last: EndedOperation | None, genesis: Sign, aeon: Sign, box: Sign
) -> None:
    """A failure is its target's; a start that succeeded, of any profile, ends all of them."""
    look = box_look(profile_look(), profile_look("aeon", mark=Mark.STANDBY), last_operation=last)
    assert signs_of(looked([look]), AlertRule.SWITCH_FAILED) == {
        "box": box,
        "profile:genesis": genesis,
        "profile:aeon": aeon,
    }


@pytest.mark.parametrize(
    ("mark", "severity"),
    [
        (Mark.LIVE, Severity.CRITICAL),
        (None, Severity.CRITICAL),
        (Mark.STANDBY, Severity.WARNING),
    ],
)
def test_failed_switch_is_critical_if_its_target_is_live(
    mark: Mark | None, severity: Severity
) -> None:
    """The words say what was tried, and how it ended."""
    look = box_look(profile_look("aeon", mark=mark), last_operation=FAILED)
    one = of_rule(looked([look]), AlertRule.SWITCH_FAILED)["profile:aeon"]
    assert (one.severity, one.fact) == (severity, "switch failed: rolled-back")
    assert (one.details, one.command) == ((FAILED.text,), "appliance logs aeon")
    assert one.since_unix_s == NOW - 5


def test_failure_of_a_removed_target_is_the_box_s() -> None:
    """Without a profile the box has the alert, as a warning."""
    look = box_look(last_operation=replace(FAILED, target="removed"))
    one = of_rule(looked([look]), AlertRule.SWITCH_FAILED)["box"]
    assert (one.severity, one.command) == (Severity.WARNING, "appliance operations")


def stuck(**changes: Any) -> Finding:
    found = of_rule(looked([box_look(**changes)]), AlertRule.SWITCH_STUCK)
    assert set(found) == {"box"}
    return found["box"]


@pytest.mark.parametrize(
    ("operation", "sign"),
    [
        (None, GOOD),
        (STUCK, BAD),
        (replace(STUCK, phase_s=60.0), GOOD),
        (replace(STUCK, deadline_s=None), GOOD),
    ],
)
def test_phase_that_overruns_is_stuck(operation: OperationLook | None, sign: Sign) -> None:
    """A phase with a deadline must end by it; a load that makes progress has none."""
    assert stuck(operation=operation).sign is sign


def test_nobody_knows_operations_without_the_supervisor() -> None:
    """An old status does not say how long a phase takes."""
    assert stuck(operation=STUCK, supervisor_answers=False).sign is UNKNOWN


@pytest.mark.parametrize(
    ("target", "fact"),
    [("aeon", "switch to aeon is stuck in release"), ("", "switch is stuck in release")],
)
def test_words_of_a_stuck_switch(target: str, fact: str) -> None:
    """The fact names the phase, the details its time."""
    one = stuck(operation=replace(STUCK, target=(target,) if target else ()))
    assert one.fact == fact
    assert one.details == ("in this phase for 61.0 s, of at most 60.0 s",)
    assert (one.command, one.since_unix_s) == ("appliance cancel", NOW - 61)
