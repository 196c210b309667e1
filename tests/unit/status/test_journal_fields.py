"""Fields of log entries about operations and alerts."""

import pytest

from appliance.model.alerts import Subject, SubjectKind, Transition, TransitionKind
from appliance.model.journal_events import JOURNAL_EXTRA, JournalEvent
from appliance.model.operations import Goal, Kind, Operation, Outcome
from appliance.status.journal_fields import (
    end_fields,
    operation_fields,
    transition_fields,
)
from tests.fakes.alert_samples import profile_subject, transition

SWITCH = Operation(
    id=7,
    kind=Kind.SWITCH,
    target=("genesis",),
    goal=Goal(start=("genesis",), stop=("aeon",)),
    boot_id="boot",
    requested_by="ana",
    began_unix_s=0.0,
)


def pairs(fields: dict[str, object]) -> list[tuple[str, str]]:
    """Return names and values without the message id."""
    found = fields[JOURNAL_EXTRA]
    assert isinstance(found, tuple)
    return [pair for pair in found if pair[0] != "MESSAGE_ID"]


def test_an_operation_has_each_profile_once() -> None:
    """Target, starts and stops are one list of profiles."""
    assert pairs(operation_fields(JournalEvent.OPERATION_BEGUN, SWITCH)) == [
        ("APPLIANCE_EVENT", "operation-begun"),
        ("APPLIANCE_PROFILE", "genesis"),
        ("APPLIANCE_PROFILE", "aeon"),
        ("APPLIANCE_OPERATION", "7"),
        ("APPLIANCE_KIND", "switch"),
    ]


@pytest.mark.parametrize(
    ("outcome", "event"),
    [(Outcome.DONE, "operation-done"), (Outcome.ROLLED_BACK, "operation-failed")],
)
def test_an_end_tells_its_outcome(outcome: Outcome, event: str) -> None:
    """Anything but a success is the event of a failure."""
    found = pairs(end_fields(SWITCH, outcome))
    assert ("APPLIANCE_EVENT", event) in found
    assert ("APPLIANCE_OUTCOME", outcome.value) in found


@pytest.mark.parametrize(
    ("change", "target", "event"),
    [
        (transition(TransitionKind.FIRED), None, "alert-fired"),
        (transition(TransitionKind.RESOLVED), None, "alert-resolved"),
        (transition(TransitionKind.ACKED), None, "alert-changed"),
        (transition(TransitionKind.FIRED), "phone", "alert-untold"),
    ],
)
def test_a_change_of_an_alert_has_its_event(
    change: Transition, target: str | None, event: str
) -> None:
    """Changes have their kinds; a message that is given up is an event of its own, with its target."""
    found = pairs(transition_fields(change, untold_target=target))
    assert found[0] == ("APPLIANCE_EVENT", event)
    assert [value for name, value in found if name == "APPLIANCE_TARGET"] == [target] * bool(target)


@pytest.mark.parametrize(
    ("subject", "profiles"),
    [(profile_subject("aeon"), ["aeon"]), (Subject(kind=SubjectKind.BOX, name=""), [])],
)
def test_an_alert_about_a_profile_has_it(subject: Subject, profiles: list[str]) -> None:
    """An alert about the box is in the log of no profile."""
    found = pairs(transition_fields(transition(subject=subject)))
    assert [value for name, value in found if name == "APPLIANCE_PROFILE"] == profiles
