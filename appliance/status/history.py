"""Rates over time, down-sampled: of an hour for keeping, of any span and of each unit of the calendar for showing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Literal, NamedTuple

_SPANS_S: Final = (3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0)
"""Spans in which `fitted` joins rows, from the shortest on."""


class RateSummary(NamedTuple):
    """Rates of one series in one span of time; of one probe alone all three are its rate.

    A named tuple, because thousands are made for one answer: a frozen dataclass takes ten times as
    long. It is a row of health.sock's verb `history` as it stands.
    """

    unix_s: float
    """Time of the probe, or the beginning of the span."""
    probes: int
    """Number of them."""
    low: float
    median: float
    high: float


def median(values: Iterable[float]) -> float:
    """Return the median of at least one value; importing `statistics` for it takes 150 KiB."""
    ranked = sorted(values)
    return (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2


def summarise(unix_s: float, rates: Sequence[float]) -> RateSummary:
    """Return the summary of the rates, at least one, of the span that begins at `unix_s`."""
    return RateSummary(
        unix_s=unix_s, probes=len(rates), low=min(rates), median=median(rates), high=max(rates)
    )


def down_sampled(rows: Iterable[RateSummary], span_s: float) -> tuple[RateSummary, ...]:
    """Join summaries, in the order of time, that lie in the same multiple of `span_s`."""
    spans = groupby(rows, key=lambda row: row.unix_s // span_s)
    return tuple(join(span * span_s, list(members)) for span, members in spans)


def join(unix_s: float, rows: Sequence[RateSummary]) -> RateSummary:
    """Return the summary of the span that begins at `unix_s` and has these rows, at least one.

    Its median is that of their medians, each as often as it stands for rates.
    """
    return RateSummary(
        unix_s=unix_s,
        probes=sum(row.probes for row in rows),
        low=min(row.low for row in rows),
        median=median([row.median for row in rows for _ in range(row.probes)]),
        high=max(row.high for row in rows),
    )


def fitted(rows: Sequence[RateSummary], most: int) -> Sequence[RateSummary]:
    """Return rows, in the order of time, joined in the shortest spans that leave at most `most`.

    The oldest go where even the longest span leaves more.
    """
    joined = rows
    for span_s in _SPANS_S:
        if len(joined) <= most:
            break
        joined = down_sampled(rows, span_s)
    return joined[-most:]


Unit = Literal["hour", "day", "week", "month"]
"""Unit of the calendar that one line covers; its cells are of the next smaller one."""

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0
_QUARTER_MIN: Final = 15


CELLS: Final[Mapping[Unit, int]] = {"hour": 4, "day": 24, "week": 7, "month": 31}
"""Cells of a line: quarters of an hour, hours, and days."""
_LONGEST_S: Final[Mapping[Unit, float]] = {
    "hour": 2 * _DAY_S,
    "day": 62 * _DAY_S,
    "week": 400 * _DAY_S,
}
"""Longest history that has lines of a unit: about sixty of them."""
_CALENDAR_SPANS_S: Final[Mapping[Unit, float | None]] = {
    "hour": None,
    "day": _HOUR_S,
    "week": 6 * _HOUR_S,
    "month": _DAY_S,
}


class CalendarLine(NamedTuple):
    """Rates of one unit."""

    begin: datetime
    """Beginning of the unit by the local clock, without a zone."""
    summary: RateSummary
    cells: Sequence[float | None]
    """Median of each cell; None: no probe."""


def unit_for(length_s: float) -> Unit:
    """Return the unit of the lines for a history of this length."""
    return next((unit for unit, most_s in _LONGEST_S.items() if length_s <= most_s), "month")


def span_of(unit: Unit) -> float | None:
    """Return the seconds that a row may cover for lines of a unit; None: each probe is wanted.

    No cell is shorter, and 2000 rows are more than the longest history of a unit has.
    """
    return _CALENDAR_SPANS_S[unit]


def calendar_lines(
    rows: Iterable[RateSummary], unit: Unit, local: Callable[[float], datetime]
) -> Sequence[CalendarLine]:
    """Return a line for each unit that has rows.

    Args:
        rows: In the order of time.
        unit: Of the lines.
        local: Clock of the person who reads them.
    """
    moments = [(local(row.unix_s), row) for row in rows]
    return [
        _line(begin, unit, list(members))
        for begin, members in groupby(moments, key=lambda one: begin_of(one[0], unit))
    ]


def begin_of(moment: datetime, unit: Unit) -> datetime:
    """Return the beginning of the unit that a moment lies in."""
    match unit:
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "day":
            return moment.replace(hour=0, minute=0, second=0, microsecond=0)
        case "week":
            return begin_of(moment, "day") - timedelta(days=moment.weekday())
        case _:
            return begin_of(moment, "day").replace(day=1)


def _cell(moment: datetime, unit: Unit) -> int:
    match unit:
        case "hour":
            return moment.minute // _QUARTER_MIN
        case "day":
            return moment.hour
        case "week":
            return moment.weekday()
        case _:
            return moment.day - 1


def _line(
    begin: datetime, unit: Unit, moments: Sequence[tuple[datetime, RateSummary]]
) -> CalendarLine:
    cells: list[list[float]] = [[] for _ in range(CELLS[unit])]
    for moment, row in moments:
        cells[_cell(moment, unit)].extend([row.median] * row.probes)
    rows = [row for _, row in moments]
    return CalendarLine(
        begin=begin,
        summary=join(rows[0].unix_s, rows),
        cells=[median(rates) if rates else None for rates in cells],
    )
