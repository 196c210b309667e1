"""Rates over time: summaries of hours and of spans."""

import pytest

from appliance.status.history import RateSummary, down_sampled, fitted, summarise


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
