"""Codec of gateway.sock: commands and questions of the supervisor to the gateway, and answers.

NDJSON, one object a line each way, any number of commands on a connection, one after another:

===============================================  ==========================================
``{"verb": "route", "state": {…}}``              serve by this from now on
``{"verb": "hold", "names": […]}``               hold new requests for these profiles;
                                                 answers how many are held
``{"verb": "drain", "names": […], "timeout_s"}`` answers when their requests have finished or
                                                 were cut, and how many of each
``{"verb": "release", "state": {…}}``            as ``route``; answers how many were held
``{"verb": "stats"}``                            answers what was measured
``{"verb": "requests"}``                         answers which requests are in flight or held
``{"verb": "cut", "request": id}``               ends one of these with an error; answers which
``{"verb": "reload"}``                           read keys and profiles again
===============================================  ==========================================

An answer has ``ok``; when that is false, ``error`` says why. A connection that ends without an
answer was one to a process that another has taken over from: the supervisor asks again. A drain
ends with its connection: a supervisor that dies or is told to go back cuts no request.

The state is kept in this form in the gateway's own file, too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypedDict

from appliance.model.gateway import Standing, State
from appliance.model.json_reader import parse_object
from appliance.model.names import is_profile_name, is_request_id
from appliance.model.record import Record
from appliance.wire.json_values import Json, encode_json, object_in

MAX_COMMAND_BYTES: Final = 256 << 10
"""Longest command in bytes: the state of all profiles, less than 100 bytes each."""
MAX_ANSWER_BYTES: Final = 4 << 20
_MAX_DRAIN_S: Final = 86400.0


class RouteCommand(Record):
    """Command: route by this state from now on."""

    state: State


class HoldCommand(Record):
    """Command: hold new requests for these profiles."""

    names: tuple[str, ...]


class DrainCommand(Record):
    """Command: let the requests in flight of these profiles finish, then cut the rest."""

    names: tuple[str, ...]
    timeout_s: float


class ReleaseCommand(Record):
    """Command: route by this state, and release held requests."""

    state: State


class StatsCommand(Record):
    """Command: return the gateway's figures."""


class RequestsCommand(Record):
    """Command: return the requests in flight and held."""


class CutCommand(Record):
    """Command: end one request with an error for its client."""

    request: str
    """Id of the request in an earlier answer."""


class ReloadCommand(Record):
    """Command: read keys and profiles again."""


GatewayCommand = (
    RouteCommand
    | HoldCommand
    | DrainCommand
    | ReleaseCommand
    | StatsCommand
    | RequestsCommand
    | CutCommand
    | ReloadCommand
)


class ClientRequestRow(TypedDict):
    """Request of a client; neither its prompt nor its answer is told."""

    id: str
    profile: str
    """Profile that it was routed to."""
    api: str
    """`chat`, `completions`, `responses`, `anthropic` or `other`."""
    key: str | None
    """Name of the client's key; null: it came without one."""
    state: str
    """`held`, `sent` (the engine has sent nothing yet), `answering` or `tunnel` (a websocket)."""
    streams: bool
    """Whether the client asks for a stream of events."""
    age_s: float
    """Time since it was routed to the profile."""
    waited_s: float | None
    """Time that it was held; null: it still is."""
    pieces: int
    """Pieces of the answer so far: most engines send a token a piece."""
    bytes: int
    tokens: int | None
    """Output tokens so far, as the answer itself tells; null: it does not."""


class ClientRequestsDocument(TypedDict):
    """Requests in flight and held."""

    requests: list[ClientRequestRow]
    """At most 100, the oldest first."""
    left_off: int
    """Number of further ones."""


class GatewayAnswer(Record):
    """Answer that a command was carried out, with the figures that the command promises."""

    waiting: int = 0
    """Requests that a hold holds."""
    finished: int = 0
    """Requests that finished in a drain."""
    cut: int = 0
    """Requests that a drain or an operator cut."""
    released: int = 0
    """Requests that were held until a release."""
    stats: Json = MappingProxyType({})
    requests: Json = MappingProxyType({})
    """List `requests`, the oldest first, and `left_off`, the number of further ones."""


class CommandRefused(Record):
    """Answer that a command was not carried out."""

    error: str


_FORMS: Final[Mapping[str, type[Record]]] = {
    "route": RouteCommand,
    "hold": HoldCommand,
    "drain": DrainCommand,
    "release": ReleaseCommand,
    "stats": StatsCommand,
    "requests": RequestsCommand,
    "cut": CutCommand,
    "reload": ReloadCommand,
}
_VERBS: Final[Mapping[type, str]] = {form: verb for verb, form in _FORMS.items()}


def encode_command(command: GatewayCommand) -> bytes:
    """Return the line of a command."""
    fields = command.fields()
    if isinstance(command, RouteCommand | ReleaseCommand):
        fields["state"] = encode_state(command.state)
    return _line({"verb": verb_of(command), **fields})


def verb_of(command: GatewayCommand) -> str:
    """Return the verb of a command, as on the wire."""
    return _VERBS[type(command)]


def decode_command(line: bytes) -> GatewayCommand:
    """Return the command of a line. Raises `ValueError` with what is wrong with the line."""
    document = parse_object(line)
    verb = document.get("verb")
    form = _FORMS.get(verb) if isinstance(verb, str) else None
    if form is None:
        raise ValueError(f"no such verb: {verb!r:.40}")
    command: Any = form(**{field: _READERS[field](document) for field in form.__match_args__})
    return command  # type: ignore[no-any-return]  # one of the forms


def encode_answer(answer: GatewayAnswer | CommandRefused) -> bytes:
    """Return the line of an answer."""
    if isinstance(answer, CommandRefused):
        return _line({"ok": False, "error": answer.error})
    figures = {name: value for name, value in answer.fields().items() if value}
    return _line({"ok": True, **figures})


def decode_answer(line: bytes) -> GatewayAnswer | CommandRefused:
    """Return the answer of a line; a figure that is missing is 0. Raises `ValueError`."""
    document = parse_object(line)
    if document.get("ok") is not True:
        return CommandRefused(str(document.get("error")))
    return GatewayAnswer(
        waiting=_count(document, "waiting"),
        finished=_count(document, "finished"),
        cut=_count(document, "cut"),
        released=_count(document, "released"),
        stats=object_in(document, "stats"),
        requests=object_in(document, "requests"),
    )


def encode_state(state: State) -> dict[str, object]:
    """Return a state as JSON values, as it is sent and stored."""
    return {
        "standings": {name: standing.value for name, standing in state.standings.items()},
        "held": sorted(state.held),
        "target": list(state.target),
        "committed": list(state.committed),
        "paused": state.paused,
        "lent": state.lent,
        "failed": sorted(state.failed),
        "crashed": sorted(state.crashed),
        "retired": sorted(state.retired),
    }


def decode_state(document: object) -> State:
    """Return the state in a document. Raises `ValueError`."""
    if not isinstance(document, Mapping):
        raise ValueError("a state is no object")  # noqa: TRY004 - all faults are one to the caller
    standings = document.get("standings")
    if not isinstance(standings, Mapping):
        raise ValueError("standings is no object")  # noqa: TRY004
    return State(
        standings={_name(n): Standing(s) for n, s in standings.items()},
        held=frozenset(_names(document, "held")),
        target=_names(document, "target"),
        committed=_names(document, "committed"),
        paused=document.get("paused") is True,
        lent=document.get("lent") is True,
        failed=frozenset(_names(document, "failed") if "failed" in document else ()),
        crashed=frozenset(_names(document, "crashed") if "crashed" in document else ()),
        retired=frozenset(_names(document, "retired") if "retired" in document else ()),
    )


def _line(document: Json) -> bytes:
    return encode_json(document).encode() + b"\n"


def _names(document: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = document.get(key)
    if not isinstance(names, list):
        raise ValueError(f"{key} is no list")  # noqa: TRY004
    return tuple(_name(name) for name in names)


def _name(name: object) -> str:
    if not isinstance(name, str) or not is_profile_name(name):
        raise ValueError(f"{name!r:.60} is no profile")
    return name


def _seconds(document: Json) -> float:
    value = document.get("timeout_s")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("timeout_s is no number")  # noqa: TRY004
    if not 0 <= value <= _MAX_DRAIN_S:
        raise ValueError("timeout_s is no time")
    return float(value)


def _request(document: Json) -> str:
    request = document.get("request")
    if not isinstance(request, str) or not is_request_id(request):
        raise ValueError("request is no id")
    return request


def _count(document: Json, key: str) -> int:
    value = document.get(key)
    return value if type(value) is int else 0


_READERS: Final[Mapping[str, Callable[[Json], object]]] = {
    "names": lambda document: _names(document, "names"),
    "request": _request,
    "state": lambda document: decode_state(document.get("state")),
    "timeout_s": _seconds,
}
