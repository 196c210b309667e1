"""Screen of a history: a table for each series, by the units of the reader's calendar."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from appliance.cli.baseline_lines import UNITS, level_text
from appliance.cli.event_lines import event_line
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Style, Terminal
from appliance.model.amounts import age
from appliance.presentation.speed_history import History
from appliance.status.history_calendar import CalendarLine, Unit, begin_of, calendar_lines
from appliance.status.speed_row import change_text, rate_text, sparkline
from appliance.wire.health_socket import MeasuredEvent
from appliance.wire.json_values import Json, number_in

_LABELS: Final[Mapping[Unit, str]] = {
    "hour": "%a %d %b %H:00",
    "day": "%a %d %b",
    "week": "week of %d %b",
    "month": "%b %Y",
}
_CELLS: Final[Mapping[Unit, str]] = {
    "hour": "quarters",
    "day": "hours",
    "week": "days",
    "month": "days",
}


def show_history(history: History, unit: Unit, terminal: Terminal, *, now: float) -> None:
    """Print a table for each series that has rows, then events that belong to no series."""
    empty = True
    for series, rows in history.rows.items():
        if rows:
            if not empty:
                terminal.line()
            _show_series(history, series, unit, terminal)
            empty = False
    if empty:
        length = age(now - history.since_unix_s)
        terminal.line(f"no valid probe of {history.name} in the last {length}: appliance status")
    others = [event for event in history.events if event.series not in history.rows]
    if others:
        terminal.line()
    for event in others:
        terminal.line(event_line(event))


def _show_series(history: History, series: str, unit: Unit, terminal: Terminal) -> None:
    baseline = history.baselines.get(series, {})
    heading = f"{series}, {UNITS.get(series, 'tok/s')} · {_baseline_text(baseline)}"
    terminal.line(f"{terminal.paint(history.name, Style.BOLD)} · {heading}")
    level = number_in(baseline, "baseline")
    events = [event for event in history.events if event.series == series]
    found = list(_with_events(calendar_lines(history.rows[series], unit, _local), events, unit))
    cells = [_cells(line, unit, level) for line, _ in found]
    columns = [
        Column(),
        Column("probes", is_right=True, spare=2),
        Column("low", is_right=True, spare=3),
        Column("median", is_right=True),
        Column("high", is_right=True, spare=3),
        Column("change", is_right=True),
        Column(_CELLS[unit], spare=1),
    ]
    table = fitted(columns, cells, terminal)
    if table.heads:
        terminal.line(table.heads)
    for texts, (_, told) in zip(table.rows, found, strict=True):
        for text in texts:
            terminal.line(text)
        for event in told:
            terminal.line(terminal.paint(f"  {event_line(event)}", Style.YELLOW))


def _cells(line: CalendarLine, unit: Unit, level: float | None) -> Sequence[str]:
    rates = line.summary
    return [
        line.begin.strftime(_LABELS[unit]),
        str(rates.probes),
        *(rate_text(rate) for rate in (rates.low, rates.median, rates.high)),
        "" if not level else change_text(rates.median / level - 1),
        sparkline(line.cells, level),
    ]


def _with_events(
    lines: Sequence[CalendarLine], events: Sequence[MeasuredEvent], unit: Unit
) -> Iterable[tuple[CalendarLine, Sequence[MeasuredEvent]]]:
    """Yield each line with the events up to the next; those before the first are with the first."""
    begins = [(begin_of(_local(event.unix_s), unit), event) for event in events]
    for number, line in enumerate(lines):
        last = number + 1 == len(lines)
        told = [event for begin, event in begins if last or begin < lines[number + 1].begin]
        del begins[: len(told)]
        yield line, told


def _baseline_text(baseline: Json) -> str:
    text = level_text(baseline)
    return f"baseline {text}" if number_in(baseline, "baseline") is not None else text


def _local(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s)  # noqa: DTZ006 - the reader's own clock
