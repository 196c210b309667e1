"""Plot of a history: rates, the baseline with its band, and losses, a file for one series or both."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from appliance.cli.baseline_lines import UNITS
from appliance.cli.failures import CliError
from appliance.cli.plot import new_chart, write_chart
from appliance.presentation.speed_history import History
from appliance.status.history import RateSummary
from appliance.wire.control import Exit
from appliance.wire.json_values import number_in

_DASHED: Final = {"width": 1, "dasharray": "6, 4"}
_MARGIN: Final = 0.1
"""Share of the highest rate that is left free above it, and of the lowest below it."""


def plot_history(history: History, path: str) -> None:
    """Write the plot of the series that has rows; of both, decode.

    Raises:
        CliError: there are no rows, or the file cannot be written, or pygal is missing.
    """
    series = next((name for name, rows in history.rows.items() if rows), None)
    if series is None:
        raise CliError(f"no valid probe of {history.name} in that time", Exit.FAILED)
    write_chart(path, _chart(history, series))


def _chart(history: History, series: str) -> Any:
    rows = history.rows[series]
    baseline = history.baselines.get(series, {})
    level, band = number_in(baseline, "baseline"), number_in(baseline, "band") or 0.0
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
    history: History, series: str, rows: Sequence[RateSummary]
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
