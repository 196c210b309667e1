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
ends with its connection: a supervisor that dies, or rolls back, cuts no request.

The state is kept in this form in the gateway's own file, too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, TypedDict

import msgspec

from appliance.model.gateway import State
from appliance.model.json_reader import parse_object
from appliance.model.names import REQUEST_ID
from appliance.model.record import ProfileName, Record
from appliance.wire.json_values import Json, encode_json
from appliance.wire.typed_json import from_strict_json

MAX_COMMAND_BYTES: Final = 256 << 10
"""Longest command in bytes: the state of all profiles, less than 100 bytes each."""
MAX_ANSWER_BYTES: Final = 4 << 20
_ALWAYS: Final = ("standings", "held", "target", "committed")
"""Fields that the state of every release has."""


class RouteCommand(Record, tag_field="verb", tag="route"):
    """Command: route by this state from now on."""

    state: State


class HoldCommand(Record, tag_field="verb", tag="hold"):
    """Command: hold new requests for these profiles."""

    names: tuple[ProfileName, ...]


class DrainCommand(Record, tag_field="verb", tag="drain"):
    """Command: let the requests in flight of these profiles finish, then cut the rest."""

    names: tuple[ProfileName, ...]
    timeout_s: Annotated[float, msgspec.Meta(ge=0, le=86400)]


class ReleaseCommand(Record, tag_field="verb", tag="release"):
    """Command: route by this state, and release held requests."""

    state: State


class StatsCommand(Record, tag_field="verb", tag="stats"):
    """Command: return the gateway's figures."""


class RequestsCommand(Record, tag_field="verb", tag="requests"):
    """Command: return the requests in flight and held."""


class CutCommand(Record, tag_field="verb", tag="cut"):
    """Command: end one request with an error for its client."""

    request: Annotated[str, msgspec.Meta(pattern=REQUEST_ID)]
    """Id of the request in an earlier answer."""


class ReloadCommand(Record, tag_field="verb", tag="reload"):
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
_COMMAND: Final[Any] = GatewayCommand


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


def encode_command(command: GatewayCommand) -> bytes:
    """Return the line of a command."""
    return _line(msgspec.to_builtins(command, order="deterministic"))


def verb_of(command: GatewayCommand) -> str:
    """Return the verb of a command, as on the wire."""
    return str(command.__struct_config__.tag)


def decode_command(line: bytes) -> GatewayCommand:
    """Return the command of a line. Raises `ValueError` with what is wrong with the line."""
    document = parse_object(line)
    if "state" in document:
        _check_state(document["state"])
    command: GatewayCommand = from_strict_json(_COMMAND, document)
    return command


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
    return from_strict_json(GatewayAnswer, document)


def encode_state(state: State) -> dict[str, Any]:
    """Return a state as JSON values, as it is sent and stored."""
    document: dict[str, Any] = msgspec.to_builtins(state, order="deterministic")
    return document


def decode_state(document: object) -> State:
    """Return the state in a document. Raises `ValueError`."""
    _check_state(document)
    return from_strict_json(State, document)


def _check_state(document: object) -> None:
    """Raise `ValueError` for a document that lacks what every release has sent."""
    if not isinstance(document, Mapping):
        raise ValueError("a state is no object")  # noqa: TRY004 - all faults are one to the caller
    for key in _ALWAYS:
        if key not in document:
            raise ValueError(f"the state has no {key}")


def _line(document: Json) -> bytes:
    return encode_json(document).encode() + b"\n"
