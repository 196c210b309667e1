"""Table of notify.sock: what the health agent asks the notifier, which alone reaches other machines.

The notifier knows the targets' addresses and secrets; the agent knows their names. No event holds an
address, a secret or a text of a remote server.
"""

from typing import Final

from appliance.model.record import Record, Seconds
from appliance.wire.conversation.codec import CommonEvent, SocketTable
from appliance.wire.json_values import Json


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
