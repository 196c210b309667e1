"""Table of audit.sock: what the health agent asks the auditor, which alone sees every process's sockets."""

from typing import Annotated, Final

import msgspec

from appliance.model.record import Record, Whole
from appliance.wire.conversation.codec import CommonEvent, SocketTable
from appliance.wire.json_values import Json
from appliance.wire.typed_json import from_json


class ListenersRequest(Record):
    """Request for the listening TCP sockets of backends, and of some other processes.

    Answer: `result` with `listeners`, each with `address`, `port`, `pid`, `process`, `unit` and
    `is_reachable`; and `truncated`, whether there were more than are told.
    """

    pids: Annotated[tuple[Whole, ...], msgspec.Meta(max_length=4096)] = ()
    """Further processes, such as those that hold memory of a GPU."""


class Listener(Record):
    """Listening TCP socket, from the kernel's tables."""

    address: str
    """Numeric, without the port."""
    port: int
    pid: int
    process: str
    """Name of the program."""
    unit: str = ""
    """Unit of the process; empty: none."""
    is_reachable: bool = True
    """Whether it is in the network namespace of the box and bound beyond loopback."""


AuditRequest = ListenersRequest
AuditEvent = CommonEvent

AUDIT: Final[SocketTable[AuditRequest, AuditEvent]] = SocketTable(
    name="audit socket",
    server="auditor",
    unit="appliance-auditor",
    group="appliance-health",
    requests=(("listeners", "", ListenersRequest),),
    events={},
)


def encode_listeners(found: tuple[Listener, ...], *, truncated: bool) -> Json:
    """Return the details of a result."""
    return {"listeners": [one.fields() for one in found], "truncated": truncated}


def decode_listeners(details: Json) -> tuple[tuple[Listener, ...], bool]:
    """Return the listeners of a result, and whether there were more.

    Raises:
        ValueError: the details are of another protocol.
    """
    found = from_json(tuple[Listener, ...], details.get("listeners"))
    return found, details.get("truncated") is not False
