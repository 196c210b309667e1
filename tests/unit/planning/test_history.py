"""Rates over time: summaries of hours and of spans."""

from appliance.planning.history import RateSummary, down_sampled, summarise


def summary(unix_s: float, low: float, median: float, high: float, count: int) -> RateSummary:
    return RateSummary(unix_s=unix_s, count=count, low=low, median=median, high=high)


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
