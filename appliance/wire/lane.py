"""Codec of lane.sock: probes of the health agent through the gateway, leases of the lane, and what it has found.

NDJSON, one request a connection, then events until the end; who leaves ends what was asked for:

==========================================================  ====================================
``{"verb": "probe", "profile", "path", "body",``            one request to the engine of a profile
``"timeout_s"}``                                            that serves; ``body`` null is a GET
``{"verb": "lease", "names": […], "exclusive"}``            no probe, as long as the connection
                                                            lasts; exclusive: requests of clients
                                                            for these profiles wait as well
``{"verb": "unresponsive", "names": […]}``                  the list of models says so of these
                                                            profiles, as long as the connection
                                                            lasts; there is no event
==========================================================  ====================================

==========================================================  ====================================
``{"event": "busy", "why"}``                                nothing went to the engine; the last
``{"event": "admitted", "sent_s"}``                         the request went to the engine
``{"event": "head", "status"}``                             of the response
``{"event": "data", "text", "at_s"}``                       piece of its body, as it arrived
``{"event": "end"}``                                        the response is complete; the last
``{"event": "yielded", "why"}``                             a request of a client, or an operation,
                                                            has taken its place; the last
``{"event": "failed", "why"}``                              the last
``{"event": "too-long", "why"}``                            longer than the bound of its time or
                                                            size; the last
``{"event": "leased", "token"}``                            value of the header `TOKEN_HEADER`, by
                                                            which the holder's own requests are known
``{"event": "traffic", "requests"}``                        requests of others since the lease began
==========================================================  ====================================

A lease ends with ``yielded`` when an operation begins, or with ``failed``. Times are seconds of
CLOCK_MONOTONIC, which all processes of the machine share.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from appliance.model.json_reader import parse_object
from appliance.model.names import is_profile_name
from appliance.model.record import Record
from appliance.wire.json_values import Json, encode_json, number_in, text_in

MAX_COMMAND_BYTES: Final = 1 << 20
"""Longest command in bytes. A long prompt takes 8 KB, a canary of an operator what it wants."""
MAX_EVENT_BYTES: Final = 128 << 10
"""Longest event in bytes: `PIECE_BYTES`, each escaped as six."""
PIECE_BYTES: Final = 16 << 10
"""Most bytes of a response in one event."""
MAX_TIMEOUT_S: Final = 600.0
TOKEN_HEADER: Final = "X-Appliance-Lease"  # noqa: S105 - a name
_MOST_NAMES: Final = 64
_PATH: Final = re.compile(r"/[!-~]{0,1023}")


class LaneOutcome(StrEnum):
    """End of a response or a lease; the value is the name of its event."""

    ENDED = "end"
    """The response is complete."""
    YIELDED = "yielded"
    """A request of a client, or an operation, has taken its place."""
    FAILED = "failed"
    """The engine or the gateway broke off."""
    TOO_LONG = "too-long"
    """The response exceeded the bound of its time or size."""


class LaneProbeCommand(Record):
    """Command: send a request to the engine of a profile, unless anything else goes on."""

    profile: str
    path: str
    body: Json | None
    """None: a GET."""
    timeout_s: float


class LaneLeaseCommand(Record):
    """Command: keep probes away, and if exclusive the clients of these profiles, too."""

    names: tuple[str, ...]
    exclusive: bool


class LaneUnresponsiveCommand(Record):
    """Command: say of these profiles that their engines run and do not answer."""

    names: tuple[str, ...]


class LaneBusy(Record):
    """Event: nothing was sent."""

    why: str


class LaneAdmitted(Record):
    """Event: the request was sent to the engine."""

    sent_s: float


class LaneHead(Record):
    """Event: the response has begun."""

    status: int


class LaneData(Record):
    """Event: a piece of the body has arrived."""

    text: str
    at_s: float


class LaneEnd(Record):
    """Event: the response or the lease has ended."""

    outcome: LaneOutcome
    why: str = ""


class LaneLeased(Record):
    """Event: the lease has begun."""

    token: str


class LaneTraffic(Record):
    """Event: requests of others have begun; the number since the beginning of the lease."""

    requests: int


LaneCommand = LaneProbeCommand | LaneLeaseCommand | LaneUnresponsiveCommand
LaneEvent = LaneBusy | LaneAdmitted | LaneHead | LaneData | LaneEnd | LaneLeased | LaneTraffic

_NAMES: Final[Mapping[type, str]] = {
    LaneProbeCommand: "probe",
    LaneLeaseCommand: "lease",
    LaneUnresponsiveCommand: "unresponsive",
    LaneBusy: "busy",
    LaneAdmitted: "admitted",
    LaneHead: "head",
    LaneData: "data",
    LaneLeased: "leased",
    LaneTraffic: "traffic",
}


def encode_lane_command(command: LaneCommand) -> bytes:
    """Return the line of a command. Raises `TypeError`: the body is no JSON."""
    return _line({"verb": _NAMES[type(command)], **command.fields()})


def decode_lane_command(line: bytes) -> LaneCommand:
    """Return the command of a line. Raises `ValueError` with what is wrong with the line."""
    document = parse_object(line)
    match document.get("verb"):
        case "probe":
            return LaneProbeCommand(
                profile=_name(document.get("profile")),
                path=_path(document.get("path")),
                body=_body(document.get("body")),
                timeout_s=_timeout_s(document),
            )
        case "lease":
            return LaneLeaseCommand(
                names=_names(document.get("names")), exclusive=document.get("exclusive") is True
            )
        case "unresponsive":
            return LaneUnresponsiveCommand(names=_names(document.get("names")))
        case verb:
            raise ValueError(f"no such verb: {verb!r:.40}")


def encode_lane_event(event: LaneEvent) -> bytes:
    """Return the line of an event."""
    if isinstance(event, LaneEnd):
        why = {"why": event.why} if event.why else {}
        return _line({"event": event.outcome.value, **why})
    return _line({"event": _NAMES[type(event)], **event.fields()})


def decode_lane_event(line: bytes) -> LaneEvent:
    """Return the event of a line. Raises `ValueError`."""
    document = parse_object(line)
    name = text_in(document, "event")
    read = _EVENTS.get(name)
    if read is not None:
        return read(document)
    # Raises ValueError for a name that is no outcome.
    return LaneEnd(LaneOutcome(name), text_in(document, "why"))


def _line(document: Json) -> bytes:
    return encode_json(document).encode() + b"\n"


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_profile_name(value):
        raise ValueError(f"{value!r:.60} is no profile")
    return value


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_NAMES:
        raise ValueError("names is no list of profiles")
    return tuple(map(_name, value))


def _path(value: object) -> str:
    if not isinstance(value, str) or _PATH.fullmatch(value) is None:
        raise ValueError("path is no path")
    return value


def _body(value: object) -> Json | None:
    if value is not None and not isinstance(value, dict):
        raise ValueError("body is no object")
    return value


def _timeout_s(document: Json) -> float:
    seconds = _number(document, "timeout_s")
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise ValueError("timeout_s is no time")
    return seconds


def _number(document: Json, key: str) -> float:
    number = number_in(document, key)
    if number is None:
        raise ValueError(f"{key} is no number")
    return number


def _count(document: Json, key: str) -> int:
    value = document.get(key)
    if type(value) is not int:
        raise ValueError(f"{key} is no count")
    return value


_EVENTS: Final[Mapping[str, Callable[[Json], LaneEvent]]] = {
    "busy": lambda document: LaneBusy(text_in(document, "why")),
    "admitted": lambda document: LaneAdmitted(_number(document, "sent_s")),
    "head": lambda document: LaneHead(_count(document, "status")),
    "data": lambda document: LaneData(text_in(document, "text"), _number(document, "at_s")),
    "leased": lambda document: LaneLeased(text_in(document, "token")),
    "traffic": lambda document: LaneTraffic(_count(document, "requests")),
}
