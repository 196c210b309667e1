"""Report on alerts: rows of what is not over, and figures of the delivery, as the socket and screens have them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from appliance.alerts.book import AlertBook, AlertFacts, AlertState
from appliance.alerts.rules import command_for, over_phrase
from appliance.model.alerts import Severity, Subject, SubjectKind

_ORDER: Final = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow(AlertFacts):
    """Alert that is not over."""

    subject: str
    """Key of the subject: ``profile:genesis``, or ``box``."""
    sent_unix_s: float | None
    """Time at which the first target had the message; None: none has it."""
    gate: str | None
    """Gate that holds messages back now, as `DeliveryGate`; None: none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """Figures of the outbox and of the heartbeat."""

    enabled: bool
    """Whether messages are sent at all (setting `alerts.enabled`)."""
    targets: int
    """Number of targets."""
    waiting: int = 0
    """Rows that are not sent."""
    dead: int = 0
    """Rows that were given up in the last days."""
    oldest_s: float | None = None
    """Age of the oldest row that waits; None: none does."""
    trouble: str = ""
    """Sentence about what keeps messages from being kept or sent; empty: nothing."""
    heartbeat_set: bool = False
    """Whether anybody outside would notice the death of this box."""
    heartbeat_s: float | None = None
    """Time since the last sign of life that was taken; None: none was."""
    heartbeat_trouble: str = ""
    attempts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Attempts to send since the agent's start, by target and outcome (`SendOutcome`)."""


def open_alerts(book: AlertBook, sent: Mapping[str, float]) -> tuple[AlertRow, ...]:
    """Return the alerts that are not over, those that fire first, then by severity and age.

    Args:
        book: The alert book.
        sent: Times at which the first target had the message about each alert, by its id.
    """
    rows = [alert_row(state, sent) for state in open_states(book)]
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                row.ended_unix_s is not None,
                _ORDER[row.severity],
                row.fired_unix_s or 0.0,
            ),
        )
    )


def open_states(book: AlertBook) -> Iterable[AlertState]:
    """Return the states whose episode goes on."""
    return [state for state in book.states.values() if state.is_open and state.alert]


def alert_row(state: AlertState, sent: Mapping[str, float]) -> AlertRow:
    """Return the row of one state; while its subject is well there is nothing to do."""
    is_well = state.ended_unix_s is not None
    facts = {one.name: getattr(state, one.name) for one in fields(AlertFacts)}
    facts["command"] = "" if is_well else command_for(state.rule, state.subject, state.command)
    facts["over"] = over_phrase(state.rule, state.over) if is_well else ""
    return AlertRow(
        **facts,
        subject=state.subject.text,
        sent_unix_s=sent.get(state.alert),
        gate=None if state.gate is None else state.gate.value,
    )


def subject_phrase(subject: Subject) -> str:
    """Return a subject in a sentence: ``genesis``, ``the GPU GPU-1a2b``, ``the box``."""
    if subject.kind is SubjectKind.BOX:
        return "the box"
    return f"the GPU {subject.name}" if subject.kind is SubjectKind.GPU else subject.name
