"""Rates over time: summaries of hours and of spans."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from appliance.status.history import (
    CELLS,
    RateSummary,
    Unit,
    begin_of,
    calendar_lines,
    down_sampled,
    fitted,
    span_of,
    summarise,
    unit_for,
)


def summary(unix_s: float, low: float, median: float, high: float, probes: int) -> RateSummary:
    return RateSummary(unix_s=unix_s, probes=probes, low=low, median=median, high=high)


def test_a_summary_is_of_the_ranked_rates() -> None:
    """The median of an even number of rates is the mean of the two in the middle."""
    assert summarise(5.0, [4.0, 1.0, 3.0, 2.0]) == summary(5.0, 1.0, 2.5, 4.0, 4)
    assert summarise(5.0, [9.0]) == summary(5.0, 9.0, 9.0, 9.0, 1)


def test_rows_of_a_span_are_joined() -> None:
    """An hour that stands for four probes counts four times in the median."""
    rows = [
        summary(0.0, 10.0, 20.0, 30.0, 4),
        summary(90.0, 40.0, 40.0, 40.0, 1),
        summary(100.0, 7.0, 7.0, 7.0, 1),
    ]
    assert down_sampled(rows, 100.0) == (
        summary(0.0, 10.0, 20.0, 40.0, 5),
        summary(100.0, 7.0, 7.0, 7.0, 1),
    )
    assert down_sampled([], 100.0) == ()


@pytest.mark.parametrize(
    ("most", "expected_s"),
    [(48, 3600.0), (47, 6 * 3600.0), (8, 6 * 3600.0), (7, 86400.0), (2, 86400.0)],
)
def test_rows_are_joined_in_the_shortest_spans_that_fit(most: int, expected_s: float) -> None:
    """Two days of hours stay as they are where 48 rows are allowed, and no row is lost below."""
    hours = [summarise(hour * 3600.0, [1.0]) for hour in range(48)]
    rows = fitted(hours, most)
    assert rows[1].unix_s - rows[0].unix_s == expected_s
    assert sum(row.probes for row in rows) == 48


def test_more_than_the_longest_spans_hold_is_cut() -> None:
    """The newest rows stay."""
    months = tuple(summarise(month * 30 * 86400.0, [1.0]) for month in range(5))
    assert fitted(months, 2) == months[-2:]
    assert fitted(months, 5) == months


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
