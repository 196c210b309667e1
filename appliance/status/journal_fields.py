"""Fields of log entries about operations and alerts: the argument `extra` of the log calls."""

from typing import Final

from appliance.model.alerts import SubjectKind, Transition, TransitionKind
from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.model.operations import Operation, Outcome

_TRANSITIONS: Final = {
    TransitionKind.FIRED: JournalEvent.ALERT_FIRED,
    TransitionKind.RESOLVED: JournalEvent.ALERT_RESOLVED,
}
"""Events of transitions; all others are `ALERT_CHANGED`."""


def operation_fields(
    event: JournalEvent, operation: Operation, *others: tuple[JournalField, object]
) -> dict[str, object]:
    """Return the fields of an operation, with each profile that was named or is touched."""
    goal = operation.goal
    about = ((JournalField.OPERATION, operation.id), (JournalField.KIND, operation.kind), *others)
    names = dict.fromkeys((*operation.target, *goal.start, *goal.stop))
    return event_fields(event, profiles=names, others=about)


def end_fields(operation: Operation, outcome: Outcome) -> dict[str, object]:
    """Return the fields of an operation's end."""
    is_done = outcome is Outcome.DONE
    event = JournalEvent.OPERATION_DONE if is_done else JournalEvent.OPERATION_FAILED
    return operation_fields(event, operation, (JournalField.OUTCOME, outcome))


def transition_fields(
    transition: Transition, *, untold_target: str | None = None
) -> dict[str, object]:
    """Return the fields of a change of an alert.

    Args:
        transition: The change.
        untold_target: Target that will never be told of the change; None: the change itself is reported.
    """
    subject = transition.subject
    event = _TRANSITIONS.get(transition.kind, JournalEvent.ALERT_CHANGED)
    others: list[tuple[JournalField, object]] = [
        (JournalField.ALERT, transition.alert),
        (JournalField.RULE, transition.rule),
        (JournalField.SUBJECT, subject.text),
        (JournalField.TRANSITION, transition.kind),
    ]
    if untold_target is not None:
        event = JournalEvent.ALERT_UNTOLD
        others.append((JournalField.TARGET, untold_target))
    profiles = (subject.name,) if subject.kind is SubjectKind.PROFILE else ()
    return event_fields(event, profiles=profiles, others=others)
