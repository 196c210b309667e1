"""Verbs `appliance events` and `appliance operations`: what happened to models, and what was done with them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.box import applied_of, places_of
from appliance.cli.event_lines import alert_event_line, event_line
from appliance.cli.health_questions import talk
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.model.amounts import duration
from appliance.model.errors import UnreachableError
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.status import RecordedOperation
from appliance.model.wording import requester_name
from appliance.presentation.box_texts import PHASE_LABELS, operation_text
from appliance.presentation.clock_times import local_minute
from appliance.wire.alert_requests import MOST_RECORDS
from appliance.wire.client import ask
from appliance.wire.control import Exit
from appliance.wire.control_events import MOST_OPERATIONS, OperationsRequest, operations_in
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import MeasurementEventsRequest

_LAST: Final = 20
_PAUSE_S: Final = 1.0
"""Pause before a health agent that went away is connected to again."""


def run_events(arguments: Arguments, streams: Streams) -> int:
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


def run_operations(arguments: Arguments, streams: Streams) -> int:
    """Print the last operations, newest first."""
    places = places_of(arguments)
    wanted = _LAST_OPERATIONS if arguments.lines is None else min(arguments.lines, MOST_OPERATIONS)
    # Of one profile the whole record is looked through.
    most = MOST_OPERATIONS if arguments.name is not None else max(wanted, 1)
    details = ask(CONTROL, places.control_socket, OperationsRequest(most)).details
    record = operations_in(details)
    running = record.running
    shown = running if running is not None and _is_of(running, arguments.name) else None
    rows = [row for row in record.operations if _is_of(row, arguments.name)]
    if arguments.name is not None and not rows and shown is None:
        applied_of(places, arguments.name)  # One that is gone may have a record.
    if arguments.json:
        streams.out.document({"running": shown, "operations": rows[:wanted]})
    else:
        _show(([] if shown is None else [shown]) + rows[:wanted], streams)
    return int(Exit.OK)


@dataclass(slots=True)
class _Told:
    """Numbers of the last events that were printed; 0: none was."""

    measured: int = 0
    alert: int = 0


def _tell(arguments: Arguments, streams: Streams, told: _Told, most: int) -> None:
    """Print events after those that were printed, until the agent ends the answer.

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


_LAST_OPERATIONS: Final = 20
_ROLL_BACK: Final = "roll-back "
_WORTH_SAYING_MS: Final = 100.0
"""Duration below which a phase is not named."""
_STYLES: Final = {
    "done": Style.GREEN,
    "failed": Style.RED,
    "rolled-back": Style.YELLOW,
    "refused": Style.YELLOW,
}


def _is_of(row: RecordedOperation, name: str | None) -> bool:
    return name is None or name in {*row.target, *row.profiles}


def _show(rows: Sequence[RecordedOperation], streams: Streams) -> None:
    if not rows:
        streams.err.line("no operation is on record")
    for row in rows:
        for line in operation_record_lines(row, streams.out):
            streams.out.line(line)


def operation_record_lines(row: RecordedOperation, terminal: Terminal) -> Iterable[str]:
    """Return the lines on one operation: head, what was said where it was not done, phases."""
    is_running = row.state == "running"
    outcome = f"{row.phase or ''}, runs" if is_running else row.outcome or ""
    when = local_minute(row.began_unix_s)
    head = f"{row.id}  {when}  {requester_name(row.requested_by)}"
    end = terminal.paint(outcome, _STYLES.get(outcome, Style.PLAIN))
    took = f"{'for' if is_running else 'in'} {duration(row.ms / 1000)}"
    yield f"{head}: {operation_text(row)}: {end} {took}"
    if outcome != "done" and row.message:
        yield from (f"    {line}" for line in row.message.splitlines())
    if phases := " · ".join(_phases(row.phases_ms)):
        yield terminal.paint(f"    {phases}", Style.DIM)


def _phases(spent_ms: Mapping[str, float]) -> Iterable[str]:
    for name, ms in spent_ms.items():
        phase = name.removeprefix(_ROLL_BACK)
        back = "back: " if phase != name else ""
        if ms >= _WORTH_SAYING_MS:
            yield f"{back}{PHASE_LABELS.get(phase, phase)} {duration(ms / 1000)}"
