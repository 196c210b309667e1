"""Verb `appliance events`: losses, recoveries and other events that follow from measurements."""

import time
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.event_lines import event_line
from appliance.cli.health_questions import talk
from appliance.cli.terminal import Streams
from appliance.domain.errors import UnreachableError
from appliance.protocol.control import Exit
from appliance.protocol.conversation.codec import ErrorEvent, RequestRefusedError
from appliance.protocol.health_socket import MOST_PROBES, MeasuredEvent, MeasurementEventsRequest

_LAST: Final = 20
_PAUSE_S: Final = 1.0
"""Before an agent that went away is asked again."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the last events, oldest first; with --follow also those to come, until Ctrl-C.

    A follower outlives the agent: systemd starts it again, and events have numbers.
    """
    most = _LAST if arguments.lines is None else arguments.lines
    last = _tell(arguments, streams, 0, min(max(most, 1), MOST_PROBES))
    if not last and not arguments.follow:
        streams.err.line("no event has been measured")
    while arguments.follow:
        time.sleep(_PAUSE_S)
        try:
            last = _tell(arguments, streams, last, MOST_PROBES)
        except UnreachableError:
            continue
    return int(Exit.OK)


def _tell(arguments: Arguments, streams: Streams, after: int, most: int) -> int:
    """Print events after a number until the agent ends the answer; return the last number.

    Raises:
        UnreachableError: the agent does not answer at all.
    """
    request = MeasurementEventsRequest(after, arguments.name, most, bool(arguments.follow))
    with talk(arguments, request) as conversation:
        try:
            for event in conversation.events():
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, MeasuredEvent):
                    after = max(after, event.id)
                    line = conversation.last_line if arguments.json else event_line(event)
                    streams.out.line(line)
        except UnreachableError:
            if not arguments.follow:
                raise
    return after
