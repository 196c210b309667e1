"""Verb `appliance history`: rates over time as a table by the reader's calendar, CSV, JSON or a plot; raw probes."""

import csv
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final

from appliance.cli.arguments import Arguments
from appliance.cli.event_lines import event_line
from appliance.cli.failures import CliError
from appliance.cli.health_questions import details_of, measured_profile, talk
from appliance.cli.plot import new_chart, write_chart
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.cli.verbs.speeds import UNITS, level_text
from appliance.model.amounts import age
from appliance.model.events import MeasuredEvent
from appliance.model.measurements import Probe, RawTimings, rate_of
from appliance.model.speeds import SeriesBaseline
from appliance.model.words import Series
from appliance.presentation.clock_times import utc_second
from appliance.presentation.speed_history import SpeedHistory, history_in
from appliance.status.history import (
    CalendarLine,
    RateSummary,
    Unit,
    begin_of,
    calendar_lines,
    span_of,
    unit_for,
)
from appliance.status.speed_figures import change_text, rate_text, sparkline
from appliance.wire.alert_requests import MOST_RECORDS
from appliance.wire.control import Exit
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import (
    HistoryRequest,
    MeasurementsRequest,
    StoredProbeEvent,
)

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


def run(arguments: Arguments, streams: Streams) -> int:
    """Print or plot the history of one profile."""
    if arguments.json and (arguments.csv or arguments.plot is not None):
        raise CliError("--json is another form: leave --csv and --plot out", Exit.USAGE)
    name, now = measured_profile(arguments), time.time()
    length_s = _DEFAULT_S if arguments.since_s is None else arguments.since_s
    since_unix_s = max(0.0, now - length_s)
    if arguments.raw:
        probes = stored_probes(arguments, name, since_unix_s)
        write_probes(probes, streams.out, as_json=arguments.json)
        return int(Exit.OK)
    unit = unit_for(length_s)
    is_table = not (arguments.json or arguments.csv or arguments.plot is not None)
    span_s = span_of(unit) if is_table else None
    request = HistoryRequest(name, since_unix_s, arguments.series, span_s)
    details = details_of(arguments, request)
    history = history_in(name, since_unix_s, details)
    if arguments.json:
        streams.out.document({"name": name, "since_unix_s": since_unix_s, **details})
    elif arguments.csv:
        _write_csv(history, streams.out)
    elif arguments.plot is not None:
        plot_history(history, arguments.plot)
        streams.err.line(f"plotted: {arguments.plot}")
    else:
        show_history(history, unit, streams.out, now=now)
    return int(Exit.OK)


def show_history(history: SpeedHistory, unit: Unit, terminal: Terminal, *, now: float) -> None:
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


def _show_series(history: SpeedHistory, series: str, unit: Unit, terminal: Terminal) -> None:
    baseline = history.baseline_of(series)
    heading = f"{series}, {UNITS.get(series, 'tok/s')} · {_baseline_text(baseline)}"
    terminal.line(f"{terminal.paint(history.name, Style.BOLD)} · {heading}")
    level = None if baseline is None else baseline.baseline
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


def _baseline_text(baseline: SeriesBaseline | None) -> str:
    text = level_text(baseline)
    return f"baseline {text}" if baseline is not None and baseline.baseline is not None else text


def _local(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s)  # noqa: DTZ006 - the reader's own clock


_DEFAULT_S: Final = 7 * 86400.0
_COLUMNS: Final = ("time", "series", *RateSummary._fields)


def _write_csv(history: SpeedHistory, out: Terminal) -> None:
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_COLUMNS)
    for series, rows in history.rows.items():
        for row in rows:
            table.writerow([utc_second(row.unix_s), series, *row])


_DASHED: Final = {"width": 1, "dasharray": "6, 4"}
_MARGIN: Final = 0.1
"""Share of the highest rate that is left free above it, and of the lowest below it."""


def plot_history(history: SpeedHistory, path: str) -> None:
    """Write the plot of the series that has rows; of both, decode.

    Raises:
        CliError: there are no rows, or the file cannot be written, or pygal is missing.
    """
    series = next((name for name, rows in history.rows.items() if rows), None)
    if series is None:
        raise CliError(f"no valid probe of {history.name} in that time", Exit.FAILED)
    write_chart(path, _chart(history, series))


def _chart(history: SpeedHistory, series: str) -> Any:
    rows = history.rows[series]
    baseline = history.baseline_of(series)
    level = None if baseline is None else baseline.baseline
    band = 0.0 if baseline is None else baseline.band or 0.0
    edges = [] if level is None else [level - band, level + band]
    chart = new_chart(
        "DateTimeLine",
        title=f"{history.name}: {series}",
        y_title=UNITS.get(series, "tok/s"),
        show_dots=False,
        x_label_rotation=25,
        x_value_formatter=lambda moment: moment.strftime("%d %b %H:%M"),
        range=_range([*(row.low for row in rows), *(row.high for row in rows), *edges]),
    )
    chart.add("median", _points(rows), stroke_style={"width": 2})
    if any(row.probes > 1 for row in rows):
        chart.add("lowest", [(_moment(row), row.low) for row in rows], stroke_style=_DASHED)
    first, last = _moment(rows[0]), _moment(rows[-1])
    if level is not None:
        chart.add(f"baseline {level:.1f}", [(first, level), (last, level)])
        for edge in edges:
            chart.add(None, [(first, edge), (last, edge)], stroke_style=_DASHED)
    told = list(_events(history, series, rows))
    if told:
        chart.add("events", told, show_dots=True, dots_size=6, stroke=False)
    return chart


def _points(rows: Sequence[RateSummary]) -> list[tuple[datetime, float]]:
    return [(_moment(row), row.median) for row in rows]


def _events(
    history: SpeedHistory, series: str, rows: Sequence[RateSummary]
) -> Iterable[dict[str, object]]:
    """Yield a point for each event of the series, at the rate of the row before it."""
    for event in history.events:
        if event.series == series:
            before = [row for row in rows if row.unix_s <= event.unix_s] or rows[:1]
            moment = datetime.fromtimestamp(event.unix_s)  # noqa: DTZ006 - the reader's own clock
            yield {"value": (moment, before[-1].median), "label": event.text or event.kind}


def _moment(row: RateSummary) -> datetime:
    return datetime.fromtimestamp(row.unix_s)  # noqa: DTZ006 - the reader's own clock


def _range(rates: Sequence[float]) -> tuple[float, float]:
    return min(rates) * (1 - _MARGIN), max(rates) * (1 + _MARGIN)


_PLAIN: Final = ("began_unix_s", "kind", "prompt", "outcome", "detail")
_RAW: Final = tuple(field.name for field in fields(RawTimings))
_RATES: Final = {Series.DECODE: "decode_steps_per_s", Series.PREFILL: "prefill_tok_s"}
"""Columns of the rates that the raw times give."""


def stored_probes(arguments: Arguments, name: str, since_unix_s: float) -> Sequence[Probe]:
    """Return every stored probe since then, oldest first; the agent answers page by page."""
    pages: list[Sequence[Probe]] = []
    until = None
    while not pages or len(pages[-1]) == MOST_RECORDS:
        request = MeasurementsRequest(name, since_unix_s, MOST_RECORDS, until)
        pages.append(_page(arguments, request))
        until = pages[-1][0].began_unix_s if pages[-1] else None
    return [probe for page in reversed(pages) for probe in page]


def _page(arguments: Arguments, request: MeasurementsRequest) -> Sequence[Probe]:
    found = []
    with talk(arguments, request) as conversation:
        for event in conversation.events():
            if isinstance(event, ErrorEvent):
                raise RequestRefusedError(event)
            if isinstance(event, StoredProbeEvent):
                found.append(event.read())
    return found


def write_probes(probes: Sequence[Probe], out: Terminal, *, as_json: bool) -> None:
    """Write the probes: documents with their evidence, or rows of raw times and rates."""
    if as_json:
        for probe in probes:
            out.document(asdict(probe), indent=None)
        return
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["time", *_PLAIN, *_RAW, *_RATES.values()])
    for probe in probes:
        raw = probe.raw
        times = [None if raw is None else getattr(raw, name) for name in _RAW]
        rates = [None if raw is None else rate_of(series, raw) for series in _RATES]
        plain = [getattr(probe, name) for name in _PLAIN]
        table.writerow([utc_second(probe.began_unix_s), *plain, *times, *rates])
