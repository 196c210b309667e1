"""Table of audit.sock: what the health agent asks the auditor, which alone sees every process's sockets."""

from __future__ import annotations

from appliance.protocol.conversation.codec import CommonEvent, SocketTable
from appliance.protocol.json_values import text_in, whole_in
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.protocol.json_values import Json


class ListenersRequest(Record):
    """Request for the listening TCP sockets of backends, and of some other processes.

    Answer: `result` with `listeners`, each with `address`, `port`, `pid`, `process`, `unit` and
    `is_reachable`; and `truncated`, whether there were more than are told.
    """

    pids: tuple[int, ...] = ()
    """Further processes, such as those that hold memory of a GPU."""


class FoundListener(Record):
    """Listening TCP socket, as the auditor tells it."""

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


def encode_listeners(found: tuple[FoundListener, ...], *, truncated: bool) -> Json:
    """Return the details of a result."""
    return {"listeners": [one.fields() for one in found], "truncated": truncated}


def decode_listeners(details: Json) -> tuple[tuple[FoundListener, ...], bool]:
    """Return the listeners of a result, and whether there were more.

    Raises:
        ValueError: the details are of another protocol.
    """
    told = details.get("listeners")
    if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
        raise ValueError("no list of listeners")
    return tuple(map(_listener, told)), details.get("truncated") is not False


def _listener(told: Json) -> FoundListener:
    return FoundListener(
        address=text_in(told, "address"),
        port=whole_in(told, "port") or 0,
        pid=whole_in(told, "pid") or 0,
        process=text_in(told, "process"),
        unit=text_in(told, "unit"),
        is_reachable=told.get("is_reachable") is not False,
    )
