"""Table of check.sock: what the health agent asks the checker, which reaches other machines with no credential."""

from typing import Final

from appliance.model.record import Record, Seconds
from appliance.wire.conversation.codec import CommonEvent, SocketTable
from appliance.wire.json_values import Json, text_in, whole_in


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


def decode_check(details: Json) -> CheckResult:
    """Return the outcome in the details of a result, which are the outcome's fields.

    Raises:
        ValueError: the details are of another protocol.
    """
    up = details.get("up")
    if not isinstance(up, bool):
        raise ValueError("no outcome of a check")  # noqa: TRY004 - as for any other fault
    return CheckResult(
        up=up,
        status=whole_in(details, "status"),
        ms=whole_in(details, "ms") or 0,
        detail=text_in(details, "detail"),
    )
