"""Rates over time, down-sampled: of an hour for keeping, of any span for showing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSummary:
    """Rates of one series in one span of time; of one probe alone all three are its rate."""

    unix_s: float
    """Time of the probe, or the beginning of the span."""
    count: int
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
        unix_s=unix_s, count=len(rates), low=min(rates), median=median(rates), high=max(rates)
    )


def down_sampled(rows: Iterable[RateSummary], span_s: float) -> tuple[RateSummary, ...]:
    """Join summaries, in the order of time, that lie in the same multiple of `span_s`.

    The median of joined ones is that of their medians, each as often as it stands for rates.
    """
    joined = []
    for span, members in groupby(rows, key=lambda row: row.unix_s // span_s):
        group = list(members)
        joined.append(
            RateSummary(
                unix_s=span * span_s,
                count=sum(row.count for row in group),
                low=min(row.low for row in group),
                median=median([row.median for row in group for _ in range(row.count)]),
                high=max(row.high for row in group),
            )
        )
    return tuple(joined)
