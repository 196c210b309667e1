"""Rows of a history by hours, days, weeks and months of the reader's clock."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from appliance.status.history import summarise
from appliance.status.history_calendar import (
    CELLS,
    Unit,
    begin_of,
    calendar_lines,
    span_of,
    unit_for,
)

HOUR_S = 3600.0
DAY_S = 86400.0
BEGIN = datetime(2026, 11, 17, 22, 0, tzinfo=UTC)


def local(unix_s: float) -> datetime:
    """Return the clock of a place two hours east of Greenwich."""
    return datetime.fromtimestamp(unix_s, timezone(timedelta(hours=2))).replace(tzinfo=None)


def test_lines_are_days_of_the_local_clock() -> None:
    """A line begins at the reader's midnight, and an hour without probes has no rate."""
    rows = [summarise(BEGIN.timestamp() + n * HOUR_S, [40.0 + n]) for n in range(26) if n != 2]
    first, second = calendar_lines(rows, "day", local)
    assert (first.begin, second.begin) == (datetime(2026, 11, 18), datetime(2026, 11, 19))  # noqa: DTZ001
    assert (first.summary.probes, first.summary.low, first.summary.high) == (23, 40.0, 63.0)
    assert first.cells[:4] == [40.0, 41.0, None, 43.0]
    assert second.cells[:3] == [64.0, 65.0, None]


def test_a_row_counts_for_its_probes() -> None:
    """The median of a cell and of a line is that of the probes which the rows stand for."""
    at_s = BEGIN.timestamp()
    rows = [summarise(at_s, [10.0, 10.0, 10.0]), summarise(at_s + 60, [90.0])]
    (line,) = calendar_lines(rows, "hour", local)
    assert (line.summary.median, list(line.cells)) == (10.0, [10.0, None, None, None])


@pytest.mark.parametrize(
    ("unit", "begin", "cell"),
    [
        ("hour", datetime(2026, 11, 19, 15), 2),  # noqa: DTZ001
        ("day", datetime(2026, 11, 19), 15),  # noqa: DTZ001
        ("week", datetime(2026, 11, 16), 3),  # noqa: DTZ001
        ("month", datetime(2026, 11, 1), 18),  # noqa: DTZ001
    ],
)
def test_a_moment_lies_in_its_unit_and_cell(unit: Unit, begin: datetime, cell: int) -> None:
    """Thursday the 19th at 15:40 is the fourth day of its week and the 19th of its month."""
    moment = datetime(2026, 11, 19, 15, 40, 7, 5)  # noqa: DTZ001
    assert begin_of(moment, unit) == begin
    (line,) = calendar_lines([summarise(0.0, [1.0])], unit, lambda _: moment)
    assert line.begin == begin
    assert [number for number, rate in enumerate(line.cells) if rate is not None] == [cell]
    assert len(line.cells) == CELLS[unit]


def test_the_unit_follows_from_the_length() -> None:
    """No history has more than about sixty lines, up to five years."""
    assert unit_for(36 * HOUR_S) == "hour"
    assert unit_for(7 * DAY_S) == "day"
    assert unit_for(90 * DAY_S) == "week"
    assert unit_for(3650 * DAY_S) == "month"


@pytest.mark.parametrize(("unit", "days"), [("day", 62), ("week", 400), ("month", 1900)])
def test_rows_of_a_unit_fit_into_an_answer(unit: Unit, days: int) -> None:
    """The agent need not join them in longer spans than a cell has."""
    span_s = span_of(unit)
    assert span_s is not None
    assert days * DAY_S / span_s <= 2000
    assert span_of("hour") is None
