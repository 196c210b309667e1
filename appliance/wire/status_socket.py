"""Table of status.sock: what processes that only look at the box ask the supervisor.

The socket is apart from the control socket, so that whoever takes over such a process has no operator's
rights (docs/decisions/030-conversations.md). The protocol's form is in `appliance.wire.conversation`.
"""

from typing import Annotated, Final

import msgspec

from appliance.model.record import Record
from appliance.wire.control_events import OperationsRequest, StatusEvent
from appliance.wire.conversation import CommonEvent, SocketTable
from appliance.wire.json_values import Json

_MOST_NUMBER: Final = 1 << 53
WATCH_EVERY_S: Final = 10.0
"""Usual pause between two documents that tell no change."""
WATCH_AT_MOST_EVERY_S: Final = 0.5
"""Least pause between two documents, whatever changes."""
WATCH_AT_LEAST_EVERY_S: Final = 20.0
"""Longest pause between two documents, on a box with so many profiles that one is dear."""
MOST_LOG_LINES: Final = 200
MOST_LOG_CHARACTERS: Final = 2000
"""Characters of a line that are told."""
MOST_LOG_BYTES: Final = 256 << 10
"""Size of all lines of an answer: the newest are told."""
PAGE_CHARACTERS: Final = 64 << 10
"""Most characters of a page in one event: escaped, they may take twelve times as many bytes."""
WATCHER_READS_WITHIN_S: Final = 5.0
"""Time for a client to read a document; after it the connection is closed."""


class DocumentRequest(Record):
    """Request for the status document.

    Answer: `result` with `status`.
    """

    for_person: bool = False
    """Whether a person looks, who is likely to look again: engines and gateway are then asked for a minute,
    else once."""


class WatchRequest(Record):
    """Request for the status document now, after each change and every few seconds.

    Answer: `status` again and again, until the client leaves; no engine and no GPU is asked for it.
    """


class GpuEvidenceRequest(Record):
    """Request for the state of the GPUs: clocks, power, throttling, PCIe, errors, who holds memory.

    Answer: `result` with the reading's fields.
    """


class TokenOwnerRequest(Record):
    """Request for the operator whose token it is, for whoever is asked to act by one.

    Answer: `result` with `uid`, `user` and `token`, its name; a token that nobody may act by is refused.
    """

    operator_token: str
    """Text of the token; it is kept nowhere."""

    def __repr__(self) -> str:
        """Return the request without its token."""
        return "TokenOwnerRequest()"


class AnyTokenRequest(Record):
    """Request for whether somebody can act by a token now, for whoever may listen beyond this machine then.

    Answer: `result` with `usable`.
    """


class RecordedOperationRequest(Record):
    """Request for one operation.

    Answer: `result` with `operation`, as of `operations`, also of the one that runs; null when it is not on record.
    """

    operation: Annotated[int, msgspec.Meta(ge=1, le=_MOST_NUMBER)]


class FollowRequest(Record):
    """Request for the events of the operation that runs, and of each that begins later, whole and in order.

    Answer: `operation` again and again, until the client leaves.
    """


class LogTailRequest(Record):
    """Request for the last lines that the engine of one profile has logged.

    Answer: `result` with `lines`, the oldest first, each of at most 2000 characters, together at most
    256 KiB.
    """

    name: str
    """Name of a profile."""
    most: Annotated[int, msgspec.Meta(ge=1, le=MOST_LOG_LINES)] = 100
    """Number of lines, at most 200."""


class ClientRequestsRequest(Record):
    """Request for the requests of clients that are in flight or held, as the gateway lists them.

    Answer: `result` with `requests`, at most 100, the oldest first, and `left_off`, the number of further ones.
    """


class CountersRequest(Record):
    """Request for figures for statistics: counts and histograms since the start of each process.

    Answer: `result` with `gateway`, the gateway's counters as it tells them (null: it does not answer), and
        `operations`, counts of operations by kind and outcome, and durations of the phases of switches.
    """


class EngineMetricsRequest(Record):
    """Request for the metrics that engines publish themselves; each that serves is asked.

    Answer: a `page` again and again, then `result` with `profiles`: by name `complete`, `truncated` after a
        MiB, or `absent`.
    """


StatusSocketRequest = (
    DocumentRequest
    | WatchRequest
    | GpuEvidenceRequest
    | OperationsRequest
    | RecordedOperationRequest
    | FollowRequest
    | LogTailRequest
    | TokenOwnerRequest
    | AnyTokenRequest
    | ClientRequestsRequest
    | CountersRequest
    | EngineMetricsRequest
)


class OperationEvent(Record):
    """Event `operation`: one event of an operation."""

    operation: int
    change: Json
    """Event of the control protocol (`accepted`, `phase` or `result`) with its keys."""


class EnginePageEvent(Record):
    """Event `page`: a part of the page of metrics of one engine."""

    profile: str
    text: str
    """Prometheus's text format, at most 64 Ki characters; a part may end within a line."""


StatusSocketEvent = CommonEvent | StatusEvent | OperationEvent | EnginePageEvent

STATUS: Final[SocketTable[StatusSocketRequest, StatusSocketEvent]] = SocketTable(
    name="status socket",
    server="supervisor",
    unit="appliance-supervisor",
    group="appliance-status",
    requests=(
        ("status", "", DocumentRequest),
        ("watch", "", WatchRequest),
        ("gpus", "", GpuEvidenceRequest),
        ("operations", "", OperationsRequest),
        ("operation", "", RecordedOperationRequest),
        ("follow", "", FollowRequest),
        ("log", "", LogTailRequest),
        ("operator", "", TokenOwnerRequest),
        ("any-token", "", AnyTokenRequest),
        ("requests", "", ClientRequestsRequest),
        ("counters", "", CountersRequest),
        ("engine-metrics", "", EngineMetricsRequest),
    ),
    events={"status": StatusEvent, "operation": OperationEvent, "page": EnginePageEvent},
    until_left=(WatchRequest, FollowRequest, EngineMetricsRequest),
)
