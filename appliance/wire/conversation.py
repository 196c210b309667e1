"""Conversations over the unix sockets of our processes: requests, events, and the table of a socket.

NDJSON, one request a connection. The client speaks first, one line of at most `MAX_REQUEST_BYTES`::

    {"protocol": {"min": 1, "max": 1}, "version": "0.1.0", "verb": "switch", "args": {…}}

The server answers one greeting, then events until a closing one, each a line of at most `MAX_LINE_BYTES`::

    {"event": "hello", "protocol": 1, "version": "0.1.0"}
    {"event": "phase", "phase": "drain", "state": "started", "text": "…", "ms": 0, "rolling_back": false}
    {"event": "result", "exit": 0, "outcome": "done", "message": "…", …}

`result` and `error` close every conversation. When the two sides share no protocol version the server
answers one `error` whose message names both versions and what to restart.

A new socket is a `SocketTable` in a module of `appliance.wire`: records of its requests by verb, records of
its events by name, and the words for its server. A record is a frozen Struct of msgspec
(`appliance.model.record`), and the annotations of its fields, with their bounds, are what is checked on the way
in: whatever a client sends, the result is a request of the table or `BadRequestError`. A field that is null or
left out has its default, and one that is not known is ignored. The words of events are text, because
the other side may be of a release that knows more of them.

The server is `appliance.wire.server.serve_conversations` with a function that yields the events of each request;
clients are `appliance.wire.client` for the command line and `appliance.wire.async_client` for processes.
tests/unit/wire/test_socket_tables.py checks each table. A request for an operator, over a socket of a process that
has no such right itself, has the operator's token: `ActingRequest`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from appliance import __version__
from appliance.model.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnknownProfileError,
    UnreachableError,
)
from appliance.model.json_reader import parse_object
from appliance.model.record import Record
from appliance.wire.control import Exit
from appliance.wire.json_values import Json, encode_json, text_in, whole_in
from appliance.wire.typed_json import JsonValueError, from_strict_json

ErrorKind = Literal[
    "failed",
    "bad-request",
    "unknown-profile",
    "not-found",
    "busy",
    "denied",
    "precondition",
    "unreachable",
    "settings",
]

EXIT_STATUSES: Final[Mapping[ErrorKind, int]] = {
    "failed": Exit.FAILED,
    "bad-request": Exit.USAGE,
    "unknown-profile": Exit.NO_SUCH_PROFILE,
    "not-found": Exit.NO_SUCH_PROFILE,
    "busy": Exit.BUSY,
    "denied": Exit.PERMISSION,
    "precondition": Exit.FAILED,
    "unreachable": Exit.UNREACHABLE,
    "settings": Exit.CONFIG,
}
"""Exit status of the command after each kind of error. Commands of the first release know only the
status, servers of the first release send only the status."""
_KINDS: Final[Mapping[int, ErrorKind]] = {
    # The first kind of a status is the one that the first release had.
    status: kind
    for kind, status in reversed(list(EXIT_STATUSES.items()))
}


def error_kind(error: ApplianceError) -> ErrorKind:  # noqa: PLR0911 - one a kind
    """Return the kind of an error."""
    match error:
        case UnknownProfileError():
            return "unknown-profile"
        case NotFoundError():
            return "not-found"
        case BusyError():
            return "busy"
        case PermissionDeniedError():
            return "denied"
        case BadRequestError():
            return "bad-request"
        case PreconditionError():
            return "precondition"
        case UnreachableError():
            return "unreachable"
        case _:
            return "failed"


def kind_of_answer(word: str, status: int) -> ErrorKind:
    """Return the kind that an answer names; of a word of an earlier or a later release, that of its exit status."""
    known = next((kind for kind in EXIT_STATUSES if kind == word), None)
    return known or _KINDS.get(status, "failed")


OPERATOR_TOKEN: Final = "operator_token"  # noqa: S105 - the name of an argument
REQUEST_KEY: Final = "request_key"
MOST_KEY_CHARACTERS: Final = 255


class ActingRequest(Record):
    """Request that is made for the operator whose token it has."""

    token: str
    request: Record
    key: str = ""
    """Text of the client's choice that is the same when it asks for the same again; empty: none."""

    def __repr__(self) -> str:
        """Return the request without its token."""
        return f"ActingRequest({self.request!r})"

    def extra_arguments(self) -> dict[str, str]:
        """Return the arguments beside those of the request."""
        key = {REQUEST_KEY: self.key} if self.key else {}
        return {OPERATOR_TOKEN: self.token, **key}


def acting_request(request: Record, args: Json) -> ActingRequest | None:
    """Return a decoded request with the token and the key of its arguments; None: it has no token.

    Raises:
        BadRequestError: token or key is no text, or too long.
    """
    token, key = args.get(OPERATOR_TOKEN), args.get(REQUEST_KEY) or ""
    if token is None:
        return None
    if not isinstance(token, str) or not token:
        raise BadRequestError(f"{OPERATOR_TOKEN} is none")
    if not isinstance(key, str) or len(key) > MOST_KEY_CHARACTERS:
        raise BadRequestError(
            f"{REQUEST_KEY} is no text of at most {MOST_KEY_CHARACTERS} characters"
        )
    return ActingRequest(token, request, key)


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
        self.name = name
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
        document = {"event": self._event_name(type(event)), **_event_fields(event)}
        return encode_json(msgspec.to_builtins(document)).encode() + b"\n"

    def _event_name(self, kind: type[Record]) -> str:
        """Return the name of a type of events, or of the one that it narrows."""
        return next(self._event_names[one] for one in kind.__mro__ if one in self._event_names)

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
