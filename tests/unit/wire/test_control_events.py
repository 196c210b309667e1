"""Codec of the events on the control socket."""

import json
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    StoreError,
    UnknownProfileError,
    UnreachableError,
)
from appliance.wire.control import Exit
from appliance.wire.control_events import (
    AcceptedEvent,
    ControlEvent,
    EndedEvent,
    PhaseEvent,
    TicketEvent,
)
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import (
    EXIT_STATUSES,
    ErrorEvent,
    ErrorKind,
    HelloEvent,
    ResultEvent,
    UnknownEvent,
    error_kind,
)

ENDED = EndedEvent(
    operation=12,
    kind="hold",
    target=(),
    outcome="done",
    cause=None,
    exit=0,
    message="holding",
    serving=("a",),
    log=("one", "two"),
    phases_ms={"commit": 1.5},
    ms=2.5,
    hold={"until_unix_s": None, "kept": True},
)


@pytest.mark.parametrize(
    "event",
    [
        HelloEvent(),
        HelloEvent(2, "9.0.0"),
        AcceptedEvent(12, "switch", ("a",), ("b", "c"), joined=True, usual_ms=4.5),
        AcceptedEvent(12, "stop"),
        TicketEvent("secret"),
        PhaseEvent("load", "progress", "11 of 12 GiB", 3.5, rolling_back=True),
        ENDED,
        ENDED.replaced(hold=None, cause="cancelled"),
        ResultEvent(details={"status": {"a": [1]}}),
        ResultEvent(1, "rehearsed", "refused", {"plan": {}, "findings": []}),
        ErrorEvent("busy", "switch a is running"),
    ],
)
def test_an_event_arrives_as_it_was_sent(event: ControlEvent) -> None:
    """Encoding and decoding give an equal event of the same type, in one line."""
    line = CONTROL.encode_event(event)
    assert line.count(b"\n") == 1
    found = CONTROL.decode_event(line)
    assert (type(found), found) == (type(event), event)


_FIRST_RELEASE: Final[Mapping[ErrorKind, ErrorKind]] = {
    "precondition": "failed",
    "not-found": "unknown-profile",
}
"""Kinds that the first release takes for others, of the same exit status."""


@pytest.mark.parametrize("kind", EXIT_STATUSES)
def test_an_error_is_understood_by_both_releases(kind: ErrorKind) -> None:
    """The first release sends and reads the exit status only, of which each is one of its kinds."""
    document = json.loads(CONTROL.encode_event(ErrorEvent(kind, "why")))
    assert CONTROL.decode_event(json.dumps(document).encode()) == ErrorEvent(kind, "why")
    assert document["exit"] == EXIT_STATUSES[kind]
    del document["error"]
    told: ErrorKind = _FIRST_RELEASE.get(kind, kind)
    assert CONTROL.decode_event(json.dumps(document).encode()) == ErrorEvent(told, "why")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnknownProfileError("x"), "unknown-profile"),
        (NotFoundError("x"), "not-found"),
        (BusyError("x"), "busy"),
        (PermissionDeniedError("x"), "denied"),
        (BadRequestError("x"), "bad-request"),
        (PreconditionError("x"), "precondition"),
        (UnreachableError("x"), "unreachable"),
        (StoreError("x"), "failed"),
    ],
)
def test_an_errors_kind_is_its_type(error: ApplianceError, kind: ErrorKind) -> None:
    """The client's error kind follows the type of the error, never its text."""
    assert error_kind(error) == kind


@pytest.mark.parametrize(
    ("document", "event"),
    [
        ({"event": "hello"}, HelloEvent()),
        ({"event": "accepted", "operation": 1, "kind": "new"}, AcceptedEvent(1, "new")),
        (
            {"event": "phase", "phase": "migrate", "state": "new", "a": 1},
            PhaseEvent("migrate", "new"),
        ),
        ({"event": "result"}, ResultEvent(Exit.FAILED)),
        ({"event": "result", "exit": "strange"}, ResultEvent(Exit.FAILED)),
        ({"event": "result", "exit": 256}, ResultEvent(Exit.FAILED)),
        ({"event": "error", "exit": 200}, ErrorEvent("failed", "")),
        ({"event": "error", "exit": 75, "error": "new"}, ErrorEvent("busy", "")),
        ({"event": "weather", "exit": 75}, UnknownEvent("weather")),
    ],
)
def test_what_another_release_leaves_out_has_its_default(
    document: Mapping[str, object], event: ControlEvent
) -> None:
    """A missing field has its default, one that is not known is ignored; an unknown event has its name."""
    found = CONTROL.decode_event(json.dumps(document).encode())
    assert (type(found), found) == (type(event), event)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"event": 1}',
        b"\xff",
        b"[" * 100_000,
        b'{"event": "accepted"}',
        b'{"event": "accepted", "operation": true, "kind": "switch"}',
        b'{"event": "phase", "phase": "load", "state": 7}',
        b'{"event": "phase", "phase": "load", "state": "", "ms": 1%s}' % (b"0" * 400),
        b'{"event": "phase", "phase": "load", "state": "", "ms": NaN}',
    ],
)
def test_what_is_no_event(line: bytes) -> None:
    """Bytes that are no event are a ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"not an event|JSON|nested|missing|expected|out of range"):
        CONTROL.decode_event(line)


@given(
    st.fixed_dictionaries(
        {"event": st.sampled_from(["accepted", "phase", "result", "error", "hello"])},
        optional={
            key: st.none() | st.integers() | st.text() | st.lists(st.integers())
            for key in (*EndedEvent.__match_args__, *PhaseEvent.__match_args__, "error", "evicts")
        },
    )
)
def test_every_object_with_a_name_is_an_event(document: Mapping[str, object]) -> None:
    """Any fields are decoded to an event that can be sent again, or are no event."""
    try:
        event = CONTROL.decode_event(json.dumps(document).encode())
    except ValueError:
        return
    assert CONTROL.decode_event(CONTROL.encode_event(event)) == event
