"""Rates over time, down-sampled: of an hour for keeping, of any span for showing."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

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
