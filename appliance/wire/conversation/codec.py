"""Codec of conversations: table of a socket, requests, and the events that every socket has.

A request is one line of JSON of at most `MAX_REQUEST_BYTES`. Every field is checked on the way in:
whatever a client sends, the result is a request of the table or `BadRequestError`. A field that is
null or left out has its default.

An event is one line of JSON of at most `MAX_LINE_BYTES`. Its words are text here, because the other
side may be of a release that knows more of them; for the same reason a field that is missing has
its default, and one that is not known is ignored.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from appliance import __version__
from appliance.model.errors import ApplianceError, BadRequestError
from appliance.model.json_reader import parse_object
from appliance.model.record import Record
from appliance.wire.acting_request import ActingRequest
from appliance.wire.control import Exit
from appliance.wire.conversation.error_kinds import EXIT_STATUSES, ErrorKind, kind_of_answer
from appliance.wire.json_values import Json, encode_json, text_in, whole_in
from appliance.wire.typed_json import JsonValueError, from_strict_json

RequestT = TypeVar("RequestT", bound=Record)
EventT = TypeVar("EventT", bound=Record)
RecordT = TypeVar("RecordT", bound=Record)

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 1
MAX_LINE_BYTES: Final = 1 << 20
"""Longest event in bytes: a status of many profiles is one event."""
MAX_REQUEST_BYTES: Final = 64 << 10
"""Longest request in bytes: a thousand names."""
GREETING_S: Final = 5.0
"""Time that a client waits for the greeting: systemd keeps the socket open while the server is dead,
so a connection proves nothing."""
_MAX_EXIT: Final = 255
_MAX_VERSION_CHARACTERS: Final = 20
_NO_DETAILS: Final[Json] = {}


# --- events that every socket has ----------------------------------------------------


class HelloEvent(Record):
    """Greeting of the server."""

    protocol: int = PROTOCOL_MAX
    """Version that the rest of the conversation uses."""
    version: str = __version__


class ResultEvent(Record):
    """Event `result`: the request was carried out."""

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


CommonEvent = HelloEvent | ResultEvent | ErrorEvent | UnknownEvent


class RequestRefusedError(ApplianceError):
    """Refusal of a request by the server."""

    def __init__(self, event: ErrorEvent) -> None:
        super().__init__(event.message or "the request was refused")
        self.kind = event.kind


# --- the table of a socket -----------------------------------------------------------


class SocketTable(Generic[RequestT, EventT]):
    """Table of one socket: its verbs, its events and its words.

    Args:
        name: What the socket is called, "control socket".
        server: What answers on it, "supervisor".
        unit: Unit of the server without its suffix, for hints.
        group: Group of the users who may connect.
        requests: Type of the requests of each verb, and of its argument `action` where it has several.
        events: Types of events by name, without those that every socket has.
        results: Types of further `result` events, by the name of the whole number that marks each.
        closing: Types of the events that end a conversation, besides `result` and `error`.
        until_left: Types of requests and of events from which on the answer ends when the client
            leaves; before, and without one, what the answer does until its next event is done for
            nobody.
        others: Verbs of requests that are decoded elsewhere.
    """

    def __init__(
        self,
        *,
        name: str,
        server: str,
        unit: str,
        group: str,
        requests: Sequence[tuple[str, str, type[RequestT]]],
        events: Mapping[str, type[Record]],
        results: Mapping[str, type[Record]] = MappingProxyType({}),
        closing: tuple[type[Record], ...] = (),
        until_left: tuple[type[Record], ...] = (),
        others: Mapping[type[Record], str] = MappingProxyType({}),
    ) -> None:
        self.server = server
        self.unit = unit
        self.not_running = f"{server} not running: sudo systemctl start {unit}"
        self.not_a_member = f"permission denied: sudo usermod -aG {group} $USER, then log in again"
        self.not_our_protocol = f"the {name} does not speak the protocol of the {server}"
        self.line_too_long = f"the {name} sent a line that is too long"
        self.requests = requests
        self.verbs = tuple({verb: None for verb, _, _ in requests})
        self.events = events
        self.results = results
        self.closing: tuple[type[Record], ...] = (ResultEvent, ErrorEvent, *closing)
        self.until_left = until_left
        self._forms = {(verb, action): form for verb, action, form in requests}
        self._event_names: dict[type[Record], str] = {
            HelloEvent: "hello",
            ResultEvent: "result",
            ErrorEvent: "error",
            **{form: event for event, form in events.items()},
            **dict.fromkeys(results.values(), "result"),
        }
        self._request_names: dict[type, tuple[str, str]] = {
            **{form: name for name, form in self._forms.items()},
            **{form: (verb, "") for form, verb in others.items()},
        }

    # --- requests, in the order of the handshake

    def encode_request(self, request: Record) -> bytes:
        """Return the line of a request."""
        more = {}
        if isinstance(request, ActingRequest):
            more, request = request.extra_arguments(), request.request
        verb, action = self._request_names[type(request)]
        document = {
            "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
            "version": __version__,
            "verb": verb,
            "args": {**({"action": action} if action else {}), **request.fields(), **more},
        }
        return encode_json(document).encode() + b"\n"

    def common_protocol(self, document: Json) -> int:
        """Return the highest version that both sides know. Raises `BadRequestError`."""
        offered: Any = document.get("protocol")
        try:
            lowest, highest = int(offered["min"]), int(offered["max"])
        except (TypeError, KeyError, ValueError, OverflowError) as error:  # int(Infinity)
            raise BadRequestError("the request names no protocol versions") from error
        common = min(highest, PROTOCOL_MAX)
        if common < max(lowest, PROTOCOL_MIN):
            theirs = str(document.get("version", "unknown"))[:_MAX_VERSION_CHARACTERS]
            raise BadRequestError(
                f"this command is appliance {theirs}, the {self.server} {__version__}, and they"
                f" share no protocol: sudo systemctl restart {self.unit}"
            )
        return common

    def verb_of(self, document: Json) -> tuple[str, Json]:
        """Return the verb of a request and its arguments. Raises `BadRequestError`."""
        word = str(document.get("verb"))
        args = document.get("args", {})
        if word not in self.verbs:
            import difflib  # noqa: PLC0415 - 1 ms of every command

            meant = difflib.get_close_matches(word, self.verbs, 1)
            hint = f'; did you mean "{meant[0]}"?' if meant else ""
            raise BadRequestError(f"the {self.server} does not know this verb{hint}")
        if not isinstance(args, dict):
            raise BadRequestError("args is not an object")
        return word, args

    def decode_request(self, verb: str, args: Json) -> RequestT:
        """Return the request that a verb and its arguments make. Raises `BadRequestError`."""
        actions = [action for known, action in self._forms if known == verb]
        action = "" if actions == [""] else args.get("action")
        if not isinstance(action, str) or action not in actions:
            words = " and ".join(filter(None, (", ".join(actions[:-1]), actions[-1])))
            raise BadRequestError(f"action is none of {words}")
        return self.filled(self._forms[verb, action], args)

    def filled(self, form: type[RecordT], args: Json) -> RecordT:
        """Return the record of a type that a request's arguments make. Raises `BadRequestError`."""
        given = {name: _once(value) for name, value in args.items() if value is not None}
        try:
            return from_strict_json(form, given)
        except JsonValueError as error:
            raise BadRequestError(str(error)) from None

    # --- events

    def encode_event(self, event: Record) -> bytes:
        """Return the line of an event."""
        if isinstance(event, UnknownEvent):
            return encode_json({"event": event.name}).encode() + b"\n"
        document = {"event": self._event_names[type(event)], **_event_fields(event)}
        return encode_json(document).encode() + b"\n"

    def decode_event(self, line: bytes) -> EventT:
        """Return the event of a line. Raises `ValueError` for a line that is no event."""
        document = parse_object(line)
        name = document.get("event")
        if not isinstance(name, str):
            raise ValueError("not an event")  # noqa: TRY004 - as for bytes that are no JSON
        return self._event(name, document)  # type: ignore[return-value]  # one of the table's

    def _event(self, name: str, document: Json) -> Record:
        match name:
            case "result":
                marked = (
                    f for key, f in self.results.items() if whole_in(document, key) is not None
                )
                form = next(marked, None)
                return _result(document) if form is None else from_strict_json(form, document)
            case "error":
                kind = kind_of_answer(text_in(document, "error"), _exit_in(document, "exit"))
                return ErrorEvent(kind, text_in(document, "message"))
            case "hello":
                return from_strict_json(HelloEvent, document)
            case _:
                form = self.events.get(name)
                return UnknownEvent(name) if form is None else from_strict_json(form, document)


def refusal_line(kind: ErrorKind, message: str) -> bytes:
    """Return the line that refuses a client of any socket before it has asked for anything."""
    document = {"event": "error", **_event_fields(ErrorEvent(kind, message))}
    return encode_json(document).encode() + b"\n"


def parse_request(line: bytes) -> Json:
    """Return the JSON object of a line. Raises `BadRequestError`."""
    try:
        return parse_object(line)
    except ValueError as error:
        raise BadRequestError(f"the request is {error}") from error


def _event_fields(event: Record) -> dict[str, Any]:
    match event:
        case ErrorEvent(kind, message):
            return {"exit": EXIT_STATUSES[kind], "message": message, "error": kind}
        case ResultEvent(status, outcome, message, details):
            told = {"outcome": outcome, "message": message} if outcome or message else {}
            return {"exit": status, **told, **details}
        case _:
            return event.fields()


def _once(value: object) -> object:
    """Return a list of names without those that it has already; anything else as it is."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return list(dict.fromkeys(value))
    return value


def _result(document: Json) -> ResultEvent:
    known = {"event", *ResultEvent.__match_args__}
    return ResultEvent(
        _exit_in(document, "exit"),
        text_in(document, "outcome"),
        text_in(document, "message"),
        {key: value for key, value in document.items() if key not in known},
    )


def _exit_in(document: Json, key: str) -> int:
    status = whole_in(document, key)
    return status if status is not None and 0 <= status <= _MAX_EXIT else Exit.FAILED
