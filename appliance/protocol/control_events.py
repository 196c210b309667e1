"""Codec of the events on the control socket.

An event is one line of JSON of at most `MAX_LINE_BYTES`. Its words (kinds, phases, outcomes) are
text here, because the other side may be of a release that knows more of them; for the same reason
a field that is missing or of another type is read as empty.
"""

from __future__ import annotations

from appliance import __version__
from appliance.domain.errors import ApplianceError
from appliance.protocol.control import PROTOCOL_MAX, ErrorKind, Exit
from appliance.protocol.json_values import (
    Json,
    encode_json,
    number_in,
    object_in,
    parse_object,
    text_in,
    texts_in,
)
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

EXIT_STATUSES: Final[Mapping[ErrorKind, int]] = {
    "failed": Exit.FAILED,
    # The request cannot be read by this server.
    "bad-request": Exit.USAGE,
    "unknown-profile": Exit.NO_SUCH_PROFILE,
    # Another operation runs, or an operator holds the box: a later request may succeed.
    "busy": Exit.BUSY,
    # The client may not make this request.
    "denied": Exit.PERMISSION,
}
"""Exit status of the command after each kind of error. Commands of the first release know only the
status, servers of the first release send only the status."""
_ERROR_KINDS: Final[Mapping[int, ErrorKind]] = {
    status: kind for kind, status in EXIT_STATUSES.items()
}
_MAX_EXIT: Final = 255
_NO_DETAILS: Final[Json] = {}
_NO_PHASES: Final[Mapping[str, float]] = {}


class HelloEvent(Record):
    """Greeting of the server."""

    protocol: int = PROTOCOL_MAX
    """Version that the rest of the conversation uses."""
    version: str = __version__


class AcceptedEvent(Record):
    """Event `accepted`: an operation runs; fields as in `appliance.domain.operations.Accepted`."""

    operation: int
    kind: str
    target: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()
    joined: bool = False
    usual_ms: float | None = None


class TicketEvent(Record):
    """Permission for the command of a run, sent only to the client that asked for it."""

    token: str


class PhaseEvent(Record):
    """Event `phase`; fields as in `appliance.domain.operations.PhaseChanged`."""

    phase: str
    state: str
    text: str = ""
    ms: float = 0.0
    rolling_back: bool = False


class EndedEvent(Record):
    """Event `result` of an operation; fields as in `appliance.domain.operations.Ended`."""

    operation: int
    kind: str
    target: tuple[str, ...]
    outcome: str
    cause: str | None
    exit: int
    message: str
    serving: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    phases_ms: Mapping[str, float] = _NO_PHASES
    ms: float = 0.0
    hold: Json | None = None
    """Row of the status document for a hold; None: of any other operation."""


class ResultEvent(Record):
    """Event `result` of a request that began no operation."""

    exit: int = Exit.OK
    outcome: str = ""
    message: str = ""
    details: Json = _NO_DETAILS
    """Further fields that the verb promises."""


class ErrorEvent(Record):
    """Event `error`: the request was refused."""

    kind: ErrorKind
    message: str


class UnknownEvent(Record):
    """Event of a later release."""

    name: str


ClosingEvent = EndedEvent | ResultEvent | ErrorEvent
ControlEvent = HelloEvent | AcceptedEvent | TicketEvent | PhaseEvent | UnknownEvent | ClosingEvent

_NAMES: Final[Mapping[type, str]] = {
    HelloEvent: "hello",
    AcceptedEvent: "accepted",
    TicketEvent: "ticket",
    PhaseEvent: "phase",
    EndedEvent: "result",
    ResultEvent: "result",
    ErrorEvent: "error",
}


class RequestRefusedError(ApplianceError):
    """Refusal of a request by the supervisor."""

    def __init__(self, event: ErrorEvent) -> None:
        super().__init__(event.message or "the supervisor refused the request")
        self.kind = event.kind


def encode_event(event: ControlEvent) -> bytes:
    """Return the line of an event."""
    document = {"event": event.name if isinstance(event, UnknownEvent) else _NAMES[type(event)]}
    return encode_json({**document, **_fields(event)}).encode() + b"\n"


def _fields(event: ControlEvent) -> dict[str, Any]:
    match event:
        case UnknownEvent():
            return {}
        case ErrorEvent(kind, message):
            return {"exit": EXIT_STATUSES[kind], "message": message, "error": kind}
        case ResultEvent(status, outcome, message, details):
            told = {"outcome": outcome, "message": message} if outcome or message else {}
            return {"exit": status, **told, **details}
        case EndedEvent(hold=None):
            fields = event.fields()
            del fields["hold"]
            return fields
        case _:
            return event.fields()


def decode_event(line: bytes) -> ControlEvent:
    """Return the event of a line. Raises `ValueError` for a line that is no event."""
    document = parse_object(line)
    if not isinstance(document.get("event"), str):
        raise ValueError("not an event")  # noqa: TRY004 - as for bytes that are no JSON
    return _event(document)


def _event(document: Json) -> ControlEvent:  # noqa: PLR0911 - one a kind of event
    match document["event"]:
        case "hello":
            version = text_in(document, "version")
            return HelloEvent(_whole(document, "protocol") or 0, version)
        case "accepted":
            return AcceptedEvent(
                operation=_whole(document, "operation") or 0,
                kind=text_in(document, "kind"),
                target=tuple(texts_in(document, "target")),
                evicts=tuple(texts_in(document, "evicts")),
                joined=document.get("joined") is True,
                usual_ms=number_in(document, "usual_ms"),
            )
        case "ticket":
            return TicketEvent(text_in(document, "token"))
        case "phase":
            return PhaseEvent(
                phase=text_in(document, "phase"),
                state=text_in(document, "state"),
                text=text_in(document, "text"),
                ms=number_in(document, "ms") or 0.0,
                rolling_back=document.get("rolling_back") is True,
            )
        case "result":
            return _result(document)
        case "error":
            return ErrorEvent(_error_kind(document), text_in(document, "message"))
        case name:
            return UnknownEvent(str(name))


def _result(document: Json) -> EndedEvent | ResultEvent:
    operation, status = _whole(document, "operation"), _exit(document)
    outcome, message = text_in(document, "outcome"), text_in(document, "message")
    if operation is None:
        known = {"event", *ResultEvent.__match_args__}
        details = {key: value for key, value in document.items() if key not in known}
        return ResultEvent(status, outcome, message, details)
    phases_ms = object_in(document, "phases_ms")
    return EndedEvent(
        operation=operation,
        kind=text_in(document, "kind"),
        target=tuple(texts_in(document, "target")),
        outcome=outcome,
        cause=text_in(document, "cause") or None,
        exit=status,
        message=message,
        serving=tuple(texts_in(document, "serving")),
        committed=tuple(texts_in(document, "committed")),
        restored=tuple(texts_in(document, "restored")),
        log=tuple(texts_in(document, "log")),
        phases_ms={phase: number_in(phases_ms, phase) or 0.0 for phase in phases_ms},
        ms=number_in(document, "ms") or 0.0,
        hold=object_in(document, "hold") or None,
    )


def _whole(document: Json, key: str) -> int | None:
    value = document.get(key)
    return value if type(value) is int else None


def _exit(document: Json) -> int:
    status = _whole(document, "exit")
    return status if status is not None and 0 <= status <= _MAX_EXIT else Exit.FAILED


def _error_kind(document: Json) -> ErrorKind:
    word = text_in(document, "error")
    known = next((kind for kind in EXIT_STATUSES if kind == word), None)
    # None: a word of an earlier or a later release.
    return known or _ERROR_KINDS.get(_exit(document), "failed")
