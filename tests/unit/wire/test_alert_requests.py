"""Requests about alerts on health.sock, and transitions as its events."""

from collections.abc import Mapping

import pytest

from appliance.model.alerts import (
    BOX,
    AlertRule,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.errors import BadRequestError
from appliance.model.events import AlertEvent
from appliance.wire.alert_requests import (
    ActRequest,
    AddWindowRequest,
    AlertsRequest,
    OutboxRequest,
    RemoveWindowRequest,
    SilenceRequest,
    TestAlertRequest,
    WindowsRequest,
)
from appliance.wire.health_socket import HEALTH, HealthRequest


@pytest.mark.parametrize(
    ("verb", "args", "request_"),
    [
        ("alerts", {"action": "list"}, AlertsRequest()),
        ("alerts", {"action": "silence", "name": "a"}, SilenceRequest("a", 7200.0)),
        ("alerts", {"action": "test", "target": None}, TestAlertRequest()),
        ("alerts", {"action": "outbox", "most": 1000}, OutboxRequest(1000)),
        (
            "window",
            {"action": "add", "name": "w", "begin": "02:00", "minutes": 90, "days": ["mon"]},
            AddWindowRequest("w", "02:00", 90, ("mon",)),
        ),
        ("window", {"action": "ls"}, WindowsRequest()),
        ("window", {"action": "rm", "name": "w"}, RemoveWindowRequest("w")),
        ("act", {"token": "A1.1.ack.x"}, ActRequest("A1.1.ack.x")),
    ],
)
def test_what_is_left_out_has_its_default(
    verb: str, args: Mapping[str, object], request_: HealthRequest
) -> None:
    """Fields that are null or missing have their default."""
    assert HEALTH.decode_request(verb, args) == request_


@pytest.mark.parametrize(
    ("verb", "args", "field"),
    [
        ("alerts", {}, "action is none of list, show"),
        ("alerts", {"action": "show"}, "alert"),
        ("alerts", {"action": "silence", "name": "a", "for_s": -1}, "for_s"),
        ("alerts", {"action": "outbox", "most": 1001}, "most"),
        ("window", {"action": "add", "name": "w", "begin": "02:00"}, "minutes"),
        ("act", {}, "token"),
        ("act", {"token": ""}, "token"),
        ("act", {"token": "ä"}, "token"),
        ("act", {"token": "x" * 121}, "token"),
    ],
)
def test_each_wrong_field_is_named(verb: str, args: Mapping[str, object], field: str) -> None:
    """A field of the wrong type or out of its range is refused by its name."""
    with pytest.raises(BadRequestError, match=rf"^{field}\b"):
        HEALTH.decode_request(verb, args)


@pytest.mark.parametrize("subject", [BOX, Subject(kind=SubjectKind.PROFILE, name="genesis")])
def test_a_transition_arrives_as_it_was_recorded(subject: Subject) -> None:
    """Subject, texts and times are the same on the other side."""
    sent = Transition(
        id=7,
        unix_s=1.8e9,
        kind=TransitionKind.FIRED,
        alert="A17",
        subject=subject,
        rule=AlertRule.SLOW,
        episode=3,
        severity=Severity.WARNING,
        fact="slow: 27 tok/s (was 41)",
        details=("4 probes", "since Tuesday"),
        likely="11 of 49 layers on the CPU",
        command="appliance status genesis",
        since_unix_s=1.79e9,
        by="ana",
        reason="silenced",
    )
    event = HEALTH.decode_event(HEALTH.encode_event(sent.event()))
    assert isinstance(event, AlertEvent)
    assert event == sent.event()
    assert (event.subject, event.kind) == (subject.text, "fired")
