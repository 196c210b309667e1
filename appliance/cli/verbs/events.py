"""Verb `appliance events`: alerts, and losses, recoveries and other events that follow from measurements."""

import time
from dataclasses import dataclass
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.event_lines import alert_event_line, event_line
from appliance.cli.health_questions import talk
from appliance.cli.terminal import Streams
from appliance.model.errors import UnreachableError
from appliance.wire.alert_requests import MOST_RECORDS, AlertEvent
from appliance.wire.control import Exit
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import MeasuredEvent, MeasurementEventsRequest

_LAST: Final = 20
_PAUSE_S: Final = 1.0
"""Before an agent that went away is asked again."""


@dataclass(slots=True)
class _Told:
    """Numbers of the last events that were printed; 0: none was."""

    measured: int = 0
    alert: int = 0


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the last events, oldest first; with --follow also those to come, until Ctrl-C.

    A follower outlives the agent: systemd starts it again, and events have numbers.
    """
    most = _LAST if arguments.lines is None else arguments.lines
    told = _Told()
    _tell(arguments, streams, told, min(max(most, 1), MOST_RECORDS))
    if told == _Told() and not arguments.follow:
        streams.err.line("nothing has happened: no alert, and no event was measured")
    while arguments.follow:
        time.sleep(_PAUSE_S)
        try:
            _tell(arguments, streams, told, MOST_RECORDS)
        except UnreachableError:
            continue
    return int(Exit.OK)


def _tell(arguments: Arguments, streams: Streams, told: _Told, most: int) -> None:
    """Print events after those that were told until the agent ends the answer.

    Raises:
        UnreachableError: the agent does not answer at all.
    """
    request = MeasurementEventsRequest(
        told.measured, arguments.name, most, bool(arguments.follow), told.alert
    )
    with talk(arguments, request) as conversation:
        try:
            for event in conversation.events():
                match event:
                    case ErrorEvent():
                        raise RequestRefusedError(event)
                    case MeasuredEvent():
                        told.measured = max(told.measured, event.id)
                        line = event_line(event)
                    case AlertEvent():
                        told.alert = max(told.alert, event.id)
                        line = alert_event_line(event)
                    case _:
                        continue
                if arguments.json:
                    streams.out.verbatim(conversation.last_line)
                else:
                    streams.out.line(line)
        except UnreachableError:
            if not arguments.follow:
                raise
