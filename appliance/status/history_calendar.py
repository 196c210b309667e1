"""Calendar of a history: its rows by the hours, days, weeks or months of a person's clock.

Without dataclasses and enum, which take a command 10 ms to import.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Literal, NamedTuple

from appliance.status.history import RateSummary, join, median

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
_SPANS_S: Final[Mapping[Unit, float | None]] = {
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
