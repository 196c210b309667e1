"""State words of units: one table for every state and cause that systemd has (systemd.service(5), Result=)."""

from dataclasses import replace

import pytest

from appliance.model.gateway import Standing
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.routing.gateway_state import state_of
from appliance.routing.model_names import readiness, routed
from appliance.status.unit_state import UnitVerdict, unit_verdict
from appliance.switch.outcomes import start_failure_text
from tests.fakes.profiles import applied, catalogue

RESULTS = (
    "success",
    "protocol",
    "timeout",
    "exit-code",
    "signal",
    "core-dump",
    "watchdog",
    "start-limit-hit",
    "resources",
    "oom-kill",
    "exec-condition",
)
"""Results of a service (service-util.h of systemd 252 to 258)."""
READY = ObservedUnit(started_unix_s=100.0, since_unix_s=101.0, exit_status=9)
"""Unit whose engine has served in this run."""
STARTS = replace(READY, started_unix_s=102.0)
"""Unit whose engine has not served in this run."""
STOPPED = replace(READY, was_stopped=True, stopped_s=200.0, changed_s=205.0)
STOPPED_EARLY = replace(STOPPED, stopped_s=205.0)

SERVING = UnitVerdict(state="serving", is_wanted=True)
LOADING = UnitVerdict(state="loading", is_wanted=True)
STOPPING = UnitVerdict(state="stopping", is_wanted=True)
DOWN = UnitVerdict(state="stopped", is_wanted=True)


def alike(verdict: UnitVerdict) -> dict[str, UnitVerdict]:
    return dict.fromkeys(RESULTS, verdict)


def ended(state: str, *, is_wanted: bool, suffix: str = "") -> dict[str, UnitVerdict]:
    """Return verdicts that tell how a process ended which exited with 9, or was killed by signal 9."""
    texts = {
        "success": "was stopped by hand",
        "protocol": "ended by itself with signal 9",
        "timeout": "made no progress until the deadline",
        "exit-code": "exited with status 9",
        "signal": "was killed by signal 9",
        "core-dump": "was killed by signal 9",
        "watchdog": "stopped answering its watchdog",
        "start-limit-hit": "failed too often",
        "resources": "could not be run for want of resources",
        "oom-kill": "ran out of memory",
        "exec-condition": "was refused by the gate",
    }
    return {
        result: UnitVerdict(state=state, is_wanted=is_wanted, text=f"{text}{suffix}")
        for result, text in texts.items()
    }


CRASHED = ended("failed", is_wanted=False)
CRASHING = ended("stopping", is_wanted=False)
RESTARTING = ended("restarting", is_wanted=False)
HALTED = ended("stopped", is_wanted=True, suffix=" while it stopped")
HALTED_EARLY = ended("stopped", is_wanted=True, suffix=" when it was stopped")

TABLE = {
    (ActiveState.ACTIVE, "running", READY): alike(SERVING),
    (ActiveState.RELOADING, "reload", READY): alike(SERVING),
    (ActiveState.ACTIVATING, "condition", STARTS): alike(LOADING),
    (ActiveState.ACTIVATING, "start", STARTS): alike(LOADING),
    (ActiveState.ACTIVATING, "start", replace(STARTS, restarts=2)): alike(
        replace(LOADING, text="after a crash; restarted 2 times so far")
    ),
    (ActiveState.ACTIVATING, "auto-restart", READY): RESTARTING
    | {
        "success": UnitVerdict(
            state="restarting", is_wanted=False, text="ended by itself with signal 9"
        )
    },
    (ActiveState.DEACTIVATING, "stop-sigterm", READY): CRASHING
    | {
        "success": STOPPING,
        "timeout": replace(STOPPING, text="does not end by the deadline of its stop"),
    },
    (ActiveState.DEACTIVATING, "stop-sigkill", STARTS): CRASHING | {"success": STOPPING},
    (ActiveState.INACTIVE, "dead", READY): alike(DOWN)
    | {
        "exec-condition": UnitVerdict(
            state="refused", is_wanted=False, text="was refused by the gate"
        )
    },
    (ActiveState.INACTIVE, "dead", replace(READY, has_job=True)): alike(LOADING),
    (ActiveState.FAILED, "failed", replace(READY, has_job=True)): alike(LOADING),
    (ActiveState.FAILED, "failed", READY): CRASHED,
    (ActiveState.FAILED, "failed", STOPPED): HALTED
    | {"timeout": replace(DOWN, text="had to be killed after 5 s")},
    (ActiveState.FAILED, "failed", STOPPED_EARLY): HALTED_EARLY
    | {"timeout": replace(DOWN, text="had to be killed")},
    (ActiveState.MAINTENANCE, "cleaning", READY): alike(DOWN),
}
ROWS = [
    pytest.param(
        replace(unit, active=active, sub=sub, result=result), verdict, id=f"{row}-{sub}-{result}"
    )
    for row, ((active, sub, unit), verdicts) in enumerate(TABLE.items())
    for result, verdict in verdicts.items()
]


def test_the_table_names_every_state_and_cause() -> None:
    """No state of a unit and no result of a service is left out."""
    assert {active for active, _, _ in TABLE} == set(ActiveState)
    assert all(set(verdicts) == set(RESULTS) for verdicts in TABLE.values())


@pytest.mark.parametrize(("unit", "expected"), ROWS)
def test_a_state_word_says_what_is_true_and_whether_it_was_wanted(
    unit: ObservedUnit, expected: UnitVerdict
) -> None:
    """A unit that was stopped is stopped, however it ended; one that nobody stopped has failed."""
    assert unit_verdict(unit) == expected


@pytest.mark.parametrize(("unit", "expected"), ROWS)
def test_clients_are_told_the_same_state(unit: ObservedUnit, expected: UnitVerdict) -> None:
    """``failed`` of the model list, and of a refusal, is that of the state word."""
    box = catalogue(applied("orm"))
    state = state_of(box, Observed(units={"orm": unit}), (), None)
    assert (state.failed == {"orm"}) is (expected.state in {"failed", "refused"})
    waits = expected.state in {"loading", "restarting", "stopping"}
    assert (state.standing("orm") is Standing.STARTING) is waits
    ready = readiness(routed(box["orm"]), state)
    if expected.state == "stopped":
        assert not isinstance(ready, bool)
        assert ready.code == "model_not_active"


@pytest.mark.parametrize("state", [ActiveState.INACTIVE, ActiveState.FAILED])
def test_the_gates_sentence_comes_before_systemds_result(state: ActiveState) -> None:
    """Unless the unit was stopped while its gate waited."""
    unit = ObservedUnit(active=state, result="exit-code")
    assert unit_verdict(unit, refusal="held by ana").text == "held by ana"
    stopped = ObservedUnit(active=ActiveState.FAILED, result="signal", was_stopped=True)
    assert unit_verdict(stopped, refusal="held by ana") == DOWN
    assert start_failure_text(stopped, "held by ana") == "it was stopped by hand"
