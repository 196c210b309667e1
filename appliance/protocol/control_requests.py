"""Codec of the requests on the control socket.

A request is one line of JSON of at most `MAX_REQUEST_BYTES`. Every field is checked on the way in:
whatever a client sends, the result is a request of the types below or `BadRequestError`. A field
that is null or left out has its default, except where a message says that it is missing.

The table of verbs in docs/reference/control-protocol.md is generated from the docstrings of the types.
The module is long, so that a new verb or argument changes one file for its type and both directions.
"""

from __future__ import annotations

from appliance import __version__
from appliance.domain.errors import BadRequestError
from appliance.protocol.control import MARKS, PROTOCOL_MAX, PROTOCOL_MIN
from appliance.protocol.json_values import Json, encode_json, parse_object
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final, Literal

    from appliance.domain.profile_values import Gpus

    Verb = Literal[
        "status",
        "switch",
        "start",
        "stop",
        "restart",
        "hold",
        "run",
        "cancel",
        "attach",
        "mark",
        "key",
        "reload",
    ]
else:
    Verb = str  # for annotations alone

_MAX_SECONDS: Final = 1e9
"""Most seconds in a request, thirty years: more is a mistake, and no clock may overflow."""
_MAX_GPUS: Final = 256
_MAX_OPERATION: Final = 2**63 - 1
"""Highest number of an operation, as far as SQLite counts."""
_MAX_VERSION_CHARACTERS: Final = 20


class StatusRequest(Record):
    """Request for the status document.

    Answer: `result` with `status`.
    """


class SwitchRequest(Record):
    """Request to serve one profile in place of those that conflict with it.

    Answer: an operation.
    """

    name: str
    dry_run: bool = False
    """Whether to tell only what would be done and what prevents it; likewise below."""
    rollback: bool = True
    """Whether to restore what served before when the switch fails."""
    drain_s: float | None = None
    """Seconds for requests in flight; None: each profile's own deadline; 0: do not wait; likewise
    below."""


class OnRequestSwitch(Record):
    """Request to switch because a client asked for a profile; the only request on request.sock."""

    name: str
    on_behalf: str = ""
    """Short text for people that tells whose request it was."""


class StartRequest(Record):
    """Request to start profiles beside those that run.

    Answer: an operation.
    """

    names: tuple[str, ...] = ()
    """Names of profiles; empty: the committed ones."""
    dry_run: bool = False


class StopRequest(Record):
    """Request to stop profiles.

    Answer: an operation.
    """

    names: tuple[str, ...] = ()
    """Names of profiles; empty: all that run."""
    dry_run: bool = False
    drain_s: float | None = None


class RestartRequest(Record):
    """Request to stop profiles and start them again.

    Answer: an operation.
    """

    names: tuple[str, ...] = ()
    """Names of profiles; empty: all that serve."""
    dry_run: bool = False
    drain_s: float | None = None


class HoldRequest(Record):
    """Request to stop every profile and start none.

    Answer: an operation.
    """

    for_s: float | None = None
    """Seconds of the hold; None: until a switch or a start ends it."""
    dry_run: bool = False
    drain_s: float | None = None


class RunRequest(Record):
    """Request to make room for a command, which the client itself sends to the launcher.

    Answer: an operation that lasts as long as the command.
    """

    command: str
    """Name of the program, for people."""
    gpus: Gpus
    """Indexes of GPUs; `"all"`; empty: the CPU."""
    dry_run: bool = False
    drain_s: float | None = None


class CancelRequest(Record):
    """Request to cancel the running operation.

    Answer: the events of that operation to its end, with exit status 0 when it was undone; at once when
    there is none.
    """


class AttachRequest(Record):
    """Request to follow an operation unchanged.

    Answer: the events of the operation; of one that is over its `result`, as long as it is on record.
    """

    operation: int | None = None
    """Number of the operation; None: the running one."""


class MarkRequest(Record):
    """Request to set a profile's mark.

    Answer: `result`.
    """

    name: str
    mark: str
    """One of `live`, `standby` and `retired`."""


class AddKeyRequest(Record):
    """Request to make an inference key.

    Answer: `result` with `key`, the text of the key, this once, and `id`.
    """

    name: str
    may_switch: bool = False
    profiles: tuple[str, ...] | None = None
    """Profiles that the key may use; None: all; an empty list is refused."""


class ListKeysRequest(Record):
    """Request for the list of inference keys, without their secrets.

    Answer: `result` with `keys`: `id`, `name`, `may_switch`, `profiles` and `created_unix_s` of each.
    """


class RemoveKeyRequest(Record):
    """Request to remove inference keys.

    Answer: `result` with `ids`.
    """

    name: str
    """Name or id of a key."""


class ReloadRequest(Record):
    """Request to read the applied profiles again.

    Answer: `result`.
    """


ChangeRequest = (
    SwitchRequest
    | OnRequestSwitch
    | StartRequest
    | StopRequest
    | RestartRequest
    | HoldRequest
    | RunRequest
)
KeyRequest = AddKeyRequest | ListKeysRequest | RemoveKeyRequest
ControlRequest = (
    ChangeRequest
    | KeyRequest
    | StatusRequest
    | CancelRequest
    | AttachRequest
    | MarkRequest
    | ReloadRequest
)

REQUEST_TYPES: Final[tuple[tuple[Verb, str, type[Record]], ...]] = (
    ("status", "", StatusRequest),
    ("switch", "", SwitchRequest),
    ("start", "", StartRequest),
    ("stop", "", StopRequest),
    ("restart", "", RestartRequest),
    ("hold", "", HoldRequest),
    ("run", "", RunRequest),
    ("cancel", "", CancelRequest),
    ("attach", "", AttachRequest),
    ("mark", "", MarkRequest),
    ("key", "add", AddKeyRequest),
    ("key", "ls", ListKeysRequest),
    ("key", "rm", RemoveKeyRequest),
    ("reload", "", ReloadRequest),
)
"""Type of the requests of each verb; of `key` by the argument `action`, empty for others."""
REQUEST_VERBS: Final = tuple({verb: None for verb, _, _ in REQUEST_TYPES})
_FORMS: Final[Mapping[tuple[Verb, str], type[Record]]] = {
    (verb, action): form for verb, action, form in REQUEST_TYPES
}
_NAMES: Final[Mapping[type, tuple[Verb, str]]] = {
    **{form: name for name, form in _FORMS.items()},
    OnRequestSwitch: ("switch", ""),
}


def encode_request(request: ControlRequest) -> bytes:
    """Return the line of a request."""
    verb, action = _NAMES[type(request)]
    document = {
        "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
        "version": __version__,
        "verb": verb,
        "args": {**({"action": action} if action else {}), **request.fields()},
    }
    return encode_json(document).encode() + b"\n"


# --- decoding, in the order of the handshake -----------------------------------------


def parse_request(line: bytes) -> Json:
    """Return the JSON object of a line. Raises `BadRequestError`."""
    try:
        return parse_object(line)
    except ValueError as error:
        raise BadRequestError(f"the request is {error}") from error


def common_protocol(document: Json) -> int:
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
            f"this command is appliance {theirs}, the supervisor {__version__}, and they"
            " share no protocol: sudo systemctl restart appliance-supervisor"
        )
    return common


def verb_of(document: Json) -> tuple[Verb, Json]:
    """Return the verb of a request and its arguments. Raises `BadRequestError`."""
    word = str(document.get("verb"))
    args = document.get("args", {})
    verb = next((verb for verb in REQUEST_VERBS if verb == word), None)
    if verb is None:
        import difflib  # noqa: PLC0415 - 1 ms of every command

        meant = difflib.get_close_matches(word, REQUEST_VERBS, 1)
        hint = f'; did you mean "{meant[0]}"?' if meant else ""
        raise BadRequestError(f"the supervisor does not know this verb{hint}")
    if not isinstance(args, dict):
        raise BadRequestError("args is not an object")
    return verb, args


def decode_request(verb: Verb, args: Json) -> ControlRequest:
    """Return the request that a verb and its arguments make. Raises `BadRequestError`."""
    return _filled(_form(verb, args), args)  # type: ignore[no-any-return]  # one of _FORMS


def decode_on_request(args: Json) -> OnRequestSwitch:
    """Return the request of request.sock. Raises `BadRequestError`."""
    return _filled(OnRequestSwitch, args)  # type: ignore[no-any-return]


def _form(verb: Verb, args: Json) -> type[Record]:
    action = args.get("action") if verb == "key" else ""
    if not isinstance(action, str) or (verb, action) not in _FORMS:
        raise BadRequestError("action is none of add, ls and rm")
    return _FORMS[verb, action]


def _filled(form: type[Record], args: Json) -> Any:
    return form(**{field: _READERS[field](args) for field in form.__match_args__})


# --- fields, each read alike in every request ----------------------------------------


def _name(args: Json) -> str:
    name = args.get("name")
    if not isinstance(name, str):
        raise BadRequestError("name is missing")
    return name


def _command(args: Json) -> str:
    command = args.get("command")
    if not isinstance(command, str) or not command:
        raise BadRequestError("command is missing")
    return command


def _on_behalf(args: Json) -> str:
    behalf = args.get("on_behalf")
    return behalf if isinstance(behalf, str) else ""


def _names(args: Json) -> tuple[str, ...]:
    names = args.get("names") or []
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise BadRequestError("names is not a list of names")
    return tuple(dict.fromkeys(names))


def _profiles(args: Json) -> tuple[str, ...] | None:
    """Return the profiles to which a key is limited; None: all, which only null means."""
    profiles = args.get("profiles")
    if profiles is None:
        return None
    if not isinstance(profiles, list) or not all(isinstance(p, str) for p in profiles):
        raise BadRequestError("profiles is no list of names")
    if not profiles:
        raise BadRequestError("profiles names no profile: leave it out for a key to all of them")
    return tuple(dict.fromkeys(profiles))


def _flag(args: Json, key: str, *, default: bool) -> bool:
    value = args.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequestError(f"{key} is neither true nor false")
    return value


def _seconds(args: Json, key: str) -> float | None:
    value = args.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequestError(f"{key} is not a number of seconds")
    if not 0 <= value < _MAX_SECONDS:
        raise BadRequestError(f"{key} is not a number of seconds")
    return float(value)


def _gpus(args: Json) -> Gpus:
    gpus = args.get("gpus")
    if gpus == "all":
        return "all"
    indexes = range(_MAX_GPUS)
    if not isinstance(gpus, list) or not all(type(n) is int and n in indexes for n in gpus):
        raise BadRequestError('gpus is neither "all" nor a list of indexes')
    return tuple(gpus)


def _operation(args: Json) -> int | None:
    number = args.get("operation")
    if number is None:
        return None
    if type(number) is not int or not 0 <= number <= _MAX_OPERATION:
        raise BadRequestError("operation is not the number of one")
    return number


def _mark(args: Json) -> str:
    mark = args.get("mark")
    if not isinstance(mark, str) or mark not in MARKS:
        raise BadRequestError(f"a mark is one of {', '.join(MARKS)}")
    return mark


_READERS: Final[Mapping[str, Callable[[Json], object]]] = {
    "command": _command,
    "drain_s": lambda args: _seconds(args, "drain_s"),
    "dry_run": lambda args: _flag(args, "dry_run", default=False),
    "for_s": lambda args: _seconds(args, "for_s"),
    "gpus": _gpus,
    "mark": _mark,
    "may_switch": lambda args: args.get("may_switch") is True,
    "name": _name,
    "names": _names,
    "on_behalf": _on_behalf,
    "operation": _operation,
    "profiles": _profiles,
    "rollback": lambda args: _flag(args, "rollback", default=True),
}
