"""Tables of audit.sock, check.sock and notify.sock, on which the health agent asks its helpers.

The auditor alone sees every process's sockets; the checker reaches other machines with no credential; the
notifier alone knows the addresses and secrets of the targets, of which the agent knows the names. No event holds
an address, a secret or a text of a remote server.
"""

from typing import Annotated, Final

import msgspec

from appliance.model.record import Record, Seconds, Whole
from appliance.wire.conversation import CommonEvent, SocketTable
from appliance.wire.json_values import Json


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


class AuditReport(Record):
    """Listening sockets that an audit has found: the details of its result."""

    listeners: tuple[Listener, ...]
    truncated: bool = True
    """Whether there was more than an audit looks at, or reports."""

    def details(self) -> Json:
        """Return the details of a result."""
        return {"listeners": [one.fields() for one in self.listeners], "truncated": self.truncated}


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


class CheckUrlRequest(Record):
    """Request to GET a URL of a ``[[watch]]`` entry once.

    Answer: `result` with `up`, whether the status was 2xx, `status` (null: none came), `ms`, and `detail`, a
    phrase of our own words.
    """

    url: str
    timeout_s: Seconds


class CheckResult(Record):
    """Outcome of one check."""

    up: bool
    """Whether the status was 200 to 299."""
    status: int | None = None
    """HTTP status; None: none came."""
    ms: int = 0
    """Time until the status, or until the check failed."""
    detail: str = ""
    """Phrase about what was wrong, in our own words; never a part of an answer."""


CheckRequest = CheckUrlRequest
CheckEvent = CommonEvent

CHECK: Final[SocketTable[CheckRequest, CheckEvent]] = SocketTable(
    name="check socket",
    server="checker",
    unit="appliance-checker",
    group="appliance-health",
    requests=(("url", "", CheckUrlRequest),),
    events={},
)


class SendRequest(Record):
    """Request to send a message to one target, with a bounded time.

    Answer: `result` with `outcome` (`sent`, `retry` or `refused`), `text`, a phrase for people, and
    `retry_after_s`, which the target asked for; null: it did not.
    """

    target: str
    message: Json
    """Fields of `appliance.model.alerts.Message`."""


class TargetsRequest(Record):
    """Request for the targets.

    Answer: `result` with `targets`, a list of `name`, `kind` (`ntfy` or the apprise schema), `scheduled`
    (whether it keeps and cancels scheduled messages, as far as was tried) and `trouble`, a phrase.
    """


class ScheduleRequest(Record):
    """Request to have a message delivered later, in place of the last one of the same sequence id.

    Answer: as of `send`; `refused` where the target keeps no scheduled messages by sequence id.
    """

    target: str
    message: Json
    delay_s: Seconds


class CancelScheduledRequest(Record):
    """Request to take back the scheduled message of a sequence id.

    Answer: as of `send`.
    """

    target: str
    sequence_id: str


class PingRequest(Record):
    """Request to ping the outside watch (``heartbeat_url``), which tells when pings cease.

    Answer: as of `send`; `refused` where none is configured.
    """


NotifyRequest = (
    SendRequest | TargetsRequest | ScheduleRequest | CancelScheduledRequest | PingRequest
)
NotifyEvent = CommonEvent

NOTIFY: Final[SocketTable[NotifyRequest, NotifyEvent]] = SocketTable(
    name="notify socket",
    server="notifier",
    unit="appliance-notifier",
    group="appliance-health",
    requests=(
        ("send", "", SendRequest),
        ("targets", "", TargetsRequest),
        ("schedule", "", ScheduleRequest),
        ("cancel", "", CancelScheduledRequest),
        ("ping", "", PingRequest),
    ),
    events={},
)
