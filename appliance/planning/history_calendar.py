"""Calendar of a history: its rows by the hours, days, weeks or months of a person's clock."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Final

from appliance.planning.history import RateSummary, join, median

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0
_QUARTER_MIN: Final = 15


class Unit(StrEnum):
    """Unit of the calendar that one line covers; its cells are of the next smaller one."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


CELLS: Final[Mapping[Unit, int]] = {Unit.HOUR: 4, Unit.DAY: 24, Unit.WEEK: 7, Unit.MONTH: 31}
"""Cells of a line: quarters of an hour, hours, and days."""
_LONGEST_S: Final[Mapping[Unit, float]] = {
    Unit.HOUR: 2 * _DAY_S,
    Unit.DAY: 62 * _DAY_S,
    Unit.WEEK: 400 * _DAY_S,
}
"""Longest history that has lines of a unit: about sixty of them."""
_SPANS_S: Final[Mapping[Unit, float | None]] = {
    Unit.HOUR: None,
    Unit.DAY: _HOUR_S,
    Unit.WEEK: 6 * _HOUR_S,
    Unit.MONTH: _DAY_S,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarLine:
    """Rates of one unit."""

    begin: datetime
    """Beginning of the unit by the local clock, without a zone."""
    summary: RateSummary
    cells: Sequence[float | None]
    """Median of each cell; None: no probe."""


def unit_for(length_s: float) -> Unit:
    """Return the unit of the lines for a history of this length."""
    return next((unit for unit, most_s in _LONGEST_S.items() if length_s <= most_s), Unit.MONTH)


def span_of(unit: Unit) -> float | None:
    """Return the seconds that a row may cover for lines of a unit; None: each probe is wanted.

    No cell is shorter, and 2000 rows are more than the longest history of a unit has.
    """
    return _SPANS_S[unit]


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
        case Unit.HOUR:
            return moment.replace(minute=0, second=0, microsecond=0)
        case Unit.DAY:
            return moment.replace(hour=0, minute=0, second=0, microsecond=0)
        case Unit.WEEK:
            return begin_of(moment, Unit.DAY) - timedelta(days=moment.weekday())
        case _:
            return begin_of(moment, Unit.DAY).replace(day=1)


def _cell(moment: datetime, unit: Unit) -> int:
    match unit:
        case Unit.HOUR:
            return moment.minute // _QUARTER_MIN
        case Unit.DAY:
            return moment.hour
        case Unit.WEEK:
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
