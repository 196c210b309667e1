"""Transitions of alerts as health.sock sends them: to and from the type of the domain."""

from dataclasses import asdict

from appliance.domain.alerts import Subject, SubjectKind, Transition
from appliance.protocol.alert_requests import AlertEvent
from appliance.protocol.json_dataclasses import JsonValueError, from_json


def alert_event(transition: Transition) -> AlertEvent:
    """Return the event of the socket that tells a transition."""
    fields = asdict(transition)
    return AlertEvent(**{**fields, "subject": transition.subject.text})


def transition_in(event: AlertEvent) -> Transition:
    """Return the transition that an event of the socket tells. Raises `JsonValueError`."""
    fields = event.fields()
    subject = asdict(subject_of(event.subject))
    return from_json(Transition, {**fields, "details": list(event.details), "subject": subject})


def subject_of(text: str) -> Subject:
    """Return the subject of a key, as `Subject.text` makes it. Raises `JsonValueError`."""
    kind, _, name = text.partition(":")
    if kind not in set(SubjectKind):
        raise JsonValueError("is no subject")
    return Subject(kind=SubjectKind(kind), name=name)
