"""Table of status.sock: what processes that only look at the box ask the supervisor.

The socket is apart from the control socket, so that whoever takes over such a process has no operator's
rights (docs/decisions/030-conversations.md). The protocol's form is in `appliance.protocol.conversation`.
"""

from __future__ import annotations

from appliance.protocol.control_events import StatusEvent
from appliance.protocol.conversation.codec import CommonEvent, SocketTable
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WATCH_EVERY_S: Final = 10.0
"""Usual pause between two documents that tell no change."""
WATCH_AT_MOST_EVERY_S: Final = 0.5
"""Least pause between two documents, whatever changes."""
WATCH_AT_LEAST_EVERY_S: Final = 20.0
"""Longest pause between two documents, on a box with so many profiles that one is dear."""
WATCHER_READS_WITHIN_S: Final = 5.0
"""Time for a client to read a document; after it the connection is closed."""


class DocumentRequest(Record):
    """Request for the status document.

    Answer: `result` with `status`.
    """


class WatchRequest(Record):
    """Request for the status document now, after each change and every few seconds.

    Answer: `status` again and again, until the client leaves; no engine and no GPU is asked for it.
    """


class GpuEvidenceRequest(Record):
    """Request for the state of the GPUs: clocks, power, throttling, PCIe, errors, who holds memory.

    Answer: `result` with the reading's fields.
    """


StatusSocketRequest = DocumentRequest | WatchRequest | GpuEvidenceRequest


StatusSocketEvent = CommonEvent | StatusEvent

STATUS: Final[SocketTable[StatusSocketRequest, StatusSocketEvent]] = SocketTable(
    name="status socket",
    server="supervisor",
    unit="appliance-supervisor",
    group="appliance-status",
    requests=(
        ("status", "", DocumentRequest),
        ("watch", "", WatchRequest),
        ("gpus", "", GpuEvidenceRequest),
    ),
    events={"status": StatusEvent},
    until_left=(WatchRequest,),
)
