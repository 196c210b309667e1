"""Conclusion of a request, in sentences and as an exit status."""

from __future__ import annotations

import time

from appliance.cli.terminal import Streams
from appliance.model.amounts import duration
from appliance.model.wording import joined
from appliance.wire.control import Exit
from appliance.wire.control_events import ClosingEvent, EndedEvent
from appliance.wire.conversation import EXIT_STATUSES, ErrorEvent
from appliance.wire.json_values import number_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_TIMED: Final = frozenset({"switch", "start", "restart"})


def exit_status(event: ClosingEvent) -> int:
    """Return the exit status of the command after a closing event."""
    return EXIT_STATUSES[event.kind] if isinstance(event, ErrorEvent) else event.exit


def conclude(event: ClosingEvent, streams: Streams) -> int:
    """Print how a request ended and return the exit status."""
    status = exit_status(event)
    ended = event if isinstance(event, EndedEvent) else None
    message = event.message or ("" if isinstance(event, ErrorEvent) else event.outcome)
    if status == Exit.OK:
        hints = "" if ended is None else f"{_in_time(ended)}{_until(ended)}"
        streams.out.line(f"{message}{hints}")
        return status
    streams.err.line(message)
    if ended is not None:
        for line in ended.log:
            streams.err.line(f"    {line}")
        if ended.restored:
            verb = "serves" if len(ended.restored) == 1 else "serve"
            streams.err.line(f"restored: {joined(ended.restored)} {verb} again")
    return status


def _until(event: EndedEvent) -> str:
    """Return when a hold ends by itself, by this machine's clock; empty: it has no end."""
    ends = number_in(event.hold or {}, "until_unix_s")
    if ends is None:
        return ""
    today = time.strftime("%x") == time.strftime("%x", time.localtime(ends))
    when = time.strftime("%H:%M" if today else "%a %d %b %H:%M", time.localtime(ends))
    return f"; the hold ends by itself at {when}"


def _in_time(event: EndedEvent) -> str:
    """Return how long it took until a profile served; empty if quick, or if the command waited."""
    timed = event.kind in _TIMED and event.outcome == "done"
    return f" in {duration(event.ms / 1000)}" if event.ms and timed and event.target else ""
