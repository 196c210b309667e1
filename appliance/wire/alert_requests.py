"""Requests and events of health.sock about alerts, of which `appliance.wire.health_socket` has the table."""

from typing import Annotated, Final

import msgspec

from appliance.model.record import Record, Seconds, Whole

SILENCE_S: Final = 2 * 3600.0
"""Usual length of a silence."""
MOST_RECORDS: Final = 1000
"""Most probes, events, benches or rows of the outbox in an answer."""
MostRecords = Annotated[int, msgspec.Meta(ge=1, le=MOST_RECORDS)]


class AlertsRequest(Record):
    """Request for the alerts that are not over.

    Answer: `result` with `alerts`, `silences` and `windows`, lists, `left_off`, the number of alerts without room in
    it, and `delivery`: figures of the outbox and the heartbeat.
    """


class AlertRequest(Record):
    """Request for one alert.

    Answer: `result` with `alert`, null when it is over; `changes`, an `alert` event's fields each, oldest first;
    and `rows`, those of the outbox.
    """

    alert: str
    """Short id, such as `A17`."""


class AckRequest(Record):
    """Request to end the reminders of an alert; a message about its end still comes.

    Answer: `result`.
    """

    alert: str
    by: str = ""
    """Person that makes the request, for the record; the user of the connection stands beside it."""


class SilenceRequest(Record):
    """Request to send no messages about a subject for a while.

    Answer: `result` with `until_unix_s`.
    """

    name: str
    """Name of a profile or watch, id or UUID of a GPU, `box`, or the id of an alert."""
    for_s: Seconds = SILENCE_S
    """Length, at most 7 days."""
    reason: str = ""
    by: str = ""


class UnsilenceRequest(Record):
    """Request to end the silences of a subject.

    Answer: `result`.
    """

    name: str
    by: str = ""


class TestAlertRequest(Record):
    """Request to send a test alert through the outbox and the notifier, as any alert.

    Answer: `result` with `targets`, by name what became of it, after all have it or half a minute; its exit
    status is 1 unless all have it.
    """

    __test__ = False  # of pytest, which would collect the class

    target: str | None = None
    """Name of a target; null: all of them."""
    by: str = ""


class OutboxRequest(Record):
    """Request for the newest rows of the outbox.

    Answer: `result` with `rows`, newest first, and `delivery` as above.
    """

    most: MostRecords = 20
    """At most 1000."""


class WindowsRequest(Record):
    """Request for the planned windows, recurring spans of local time in which no messages are sent.

    Answer: `result` with `windows`.
    """


class PlannedWindow(Record, frozen=True):
    """Recurring span of local time in which no messages are sent."""

    name: str
    begin: str
    """Local time, as `02:00`."""
    minutes: Whole
    """Length, at most 12 hours."""
    days: tuple[str, ...] = ()
    """Days on which it begins, `mon` to `sun`; empty: every day."""
    subjects: tuple[str, ...] = ()
    """Names of profiles and watches, UUIDs of GPUs, or `box`; empty: everything."""
    reason: str = ""


class AddWindowRequest(PlannedWindow, frozen=True):
    """Request to add a planned window, in place of one of the same name; subjects are named as of `silence`.

    Answer: `result`.
    """

    by: str = ""


class RemoveWindowRequest(Record):
    """Request to remove a planned window.

    Answer: `result`.
    """

    name: str
    by: str = ""


class ActRequest(Record):
    """Request to do what a button of a message is for, once.

    Answer: `result`; a token that was used, has expired or is not known is refused alike.
    """

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=120, pattern=r"^[\x00-\x7f]*$")]
    """Text of the button's address; it is stored nowhere."""


AlertAction = (
    AckRequest | SilenceRequest | UnsilenceRequest | AddWindowRequest | RemoveWindowRequest
)
"""Requests that change the alert book."""
AlertQuestion = (
    AlertsRequest
    | AlertRequest
    | TestAlertRequest
    | OutboxRequest
    | WindowsRequest
    | ActRequest
    | AlertAction
)


ALERT_REQUESTS: Final = (
    ("alerts", "list", AlertsRequest),
    ("alerts", "show", AlertRequest),
    ("alerts", "ack", AckRequest),
    ("alerts", "silence", SilenceRequest),
    ("alerts", "unsilence", UnsilenceRequest),
    ("alerts", "test", TestAlertRequest),
    ("alerts", "outbox", OutboxRequest),
    ("window", "add", AddWindowRequest),
    ("window", "ls", WindowsRequest),
    ("window", "rm", RemoveWindowRequest),
    ("act", "", ActRequest),
)
