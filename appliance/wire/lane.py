"""Codec of lane.sock: probes of the health agent through the gateway, leases of the lane, and what it has found.

NDJSON, one request a connection, then events until the end; a client that disconnects ends its request:

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

from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from appliance.model.json_reader import parse_object
from appliance.model.record import ProfileName, Record
from appliance.wire.json_values import Json, encode_json, text_in
from appliance.wire.typed_json import from_strict_json

MAX_COMMAND_BYTES: Final = 1 << 20
"""Longest command in bytes. A long prompt takes 8 KB, a canary of an operator what it wants."""
MAX_EVENT_BYTES: Final = 128 << 10
"""Longest event in bytes: `PIECE_BYTES`, each escaped as six."""
PIECE_BYTES: Final = 16 << 10
"""Most bytes of a response in one event."""
MAX_TIMEOUT_S: Final = 600.0
TOKEN_HEADER: Final = "X-Appliance-Lease"  # noqa: S105 - a name


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


class LaneProbeCommand(Record, tag_field="verb", tag="probe"):
    """Command: send a request to the engine of a profile, unless anything else goes on."""

    profile: ProfileName
    path: Annotated[str, msgspec.Meta(pattern=r"^/[!-~]{0,1023}\Z")]
    body: Json | None
    """None: a GET."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)]


class LaneLeaseCommand(Record, tag_field="verb", tag="lease"):
    """Command: keep probes away, and if exclusive the clients of these profiles, too."""

    names: Annotated[tuple[ProfileName, ...], msgspec.Meta(min_length=1, max_length=64)]
    exclusive: bool = False


class LaneUnresponsiveCommand(Record, tag_field="verb", tag="unresponsive"):
    """Command: say of these profiles that their engines run and do not answer."""

    names: Annotated[tuple[ProfileName, ...], msgspec.Meta(min_length=1, max_length=64)]


class LaneBusy(Record, tag_field="event", tag="busy"):
    """Event: nothing was sent."""

    why: str


class LaneAdmitted(Record, tag_field="event", tag="admitted"):
    """Event: the request was sent to the engine."""

    sent_s: float


class LaneHead(Record, tag_field="event", tag="head"):
    """Event: the response has begun."""

    status: int


class LaneData(Record, tag_field="event", tag="data"):
    """Event: a piece of the body has arrived."""

    text: str
    at_s: float


class LaneEnd(Record):
    """Event: the response or the lease has ended."""

    outcome: LaneOutcome
    why: str = ""


class LaneLeased(Record, tag_field="event", tag="leased"):
    """Event: the lease has begun."""

    token: str


class LaneTraffic(Record, tag_field="event", tag="traffic"):
    """Event: requests of others have begun; the number since the beginning of the lease."""

    requests: int


LaneCommand = LaneProbeCommand | LaneLeaseCommand | LaneUnresponsiveCommand
LaneEvent = LaneBusy | LaneAdmitted | LaneHead | LaneData | LaneEnd | LaneLeased | LaneTraffic

_COMMAND: Final[Any] = LaneCommand
_EVENT: Final[Any] = LaneBusy | LaneAdmitted | LaneHead | LaneData | LaneLeased | LaneTraffic
_OUTCOMES: Final = frozenset(LaneOutcome)


def encode_lane_command(command: LaneCommand) -> bytes:
    """Return the line of a command. Raises `TypeError`: the body is no JSON."""
    return _line(msgspec.to_builtins(command))


def decode_lane_command(line: bytes) -> LaneCommand:
    """Return the command of a line. Raises `ValueError` with what is wrong with the line."""
    command: LaneCommand = from_strict_json(_COMMAND, parse_object(line))
    return command


def encode_lane_event(event: LaneEvent) -> bytes:
    """Return the line of an event."""
    if isinstance(event, LaneEnd):
        why = {"why": event.why} if event.why else {}
        return _line({"event": event.outcome.value, **why})
    return _line(msgspec.to_builtins(event))


def decode_lane_event(line: bytes) -> LaneEvent:
    """Return the event of a line. Raises `ValueError`."""
    document = parse_object(line)
    name = text_in(document, "event")
    if name in _OUTCOMES:
        return LaneEnd(LaneOutcome(name), text_in(document, "why"))
    event: LaneEvent = from_strict_json(_EVENT, document)
    return event


def _line(document: Json) -> bytes:
    return encode_json(document).encode() + b"\n"
