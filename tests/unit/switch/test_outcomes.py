"""Texts about how a unit, and a start, ended."""

import pytest

from appliance.model.observed import ActiveState, ObservedUnit
from appliance.switch.outcomes import end_text, start_failure_text


def failed(result: str, status: int) -> ObservedUnit:
    return ObservedUnit(active=ActiveState.FAILED, result=result, exit_status=status)


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        ("exit-code", 3, "the engine exited with status 3"),
        ("signal", 9, "the engine was killed by signal 9"),
        ("core-dump", 6, "the engine was killed by signal 6"),
        ("oom-kill", 9, "the engine ran out of memory"),
        ("timeout", 15, "the engine made no progress until the deadline"),
        ("watchdog", 6, "the engine stopped answering its watchdog"),
        ("start-limit-hit", 1, "it failed too often"),
        ("exec-condition", 1, "it was refused by the gate"),
        ("success", 0, "it was stopped by hand"),
        ("resources", 0, "it could not be run for want of resources"),
    ],
)
def test_status_and_failed_start_tell_an_end_alike(result: str, status: int, text: str) -> None:
    """One table of systemd's results: a row of the status and a failed start use the same words."""
    unit = failed(result, status)
    assert start_failure_text(unit, "") == text
    assert text.removeprefix("the engine ").removeprefix("it ") == end_text(unit)


def test_a_signal_without_a_number_is_told() -> None:
    """A row of the status may know no more of an end than systemd's result."""
    assert end_text(failed("signal", 0)) == "was killed by a signal"


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        ("exit-code", 3, "the engine exited with status 3"),
        ("exit-code", 0, "held by ana"),
        ("exec-condition", 0, "held by ana"),
        ("success", 0, "held by ana"),
        ("signal", 0, "the gate ended without a verdict"),
        ("start-limit-hit", 0, "it failed too often"),
    ],
)
def test_a_refusal_explains_what_the_gate_ended(result: str, status: int, text: str) -> None:
    """The engine is blamed only for what it did itself; a refusal comes before systemd's result."""
    assert start_failure_text(failed(result, status), "held by ana") == text


def test_a_gate_that_failed_says_so() -> None:
    """A gate that was killed or raised has left no refusal; its last status text is told."""
    unit = ObservedUnit(active=ActiveState.FAILED, result="exit-code", status_text="looking")
    assert start_failure_text(unit, "") == "the gate ended without a verdict (looking)"
