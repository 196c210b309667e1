"""Latencies of requests as other tools summarise them: TTFT, TPOT, ITL and E2EL in milliseconds.

- TTFT: from sending the request to its first content
- E2EL: from sending to the last content
- ITL: between one event with content and the next, all events of all requests together
- TPOT: (E2EL - TTFT) / (output tokens - 1), one value a request

Percentiles are interpolated linearly and the deviation is that of the population, as in NumPy.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final

from appliance.speed.bench.request_row import RequestRow

PERCENTILES: Final = (50, 95, 99)


def percentile(ranked: Sequence[float], percent: float) -> float:
    """Return a percentile of at least one sorted value."""
    place = (len(ranked) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)


def latencies_ms(rows: Iterable[RequestRow]) -> dict[str, float | None]:
    """Return mean, median, standard deviation and percentiles of each latency; None: no value."""
    served = [row for row in rows if not row.error]
    found: dict[str, float | None] = {}
    for name, values in _values(served).items():
        found |= _summary(name, sorted(1000 * value for value in values))
    return found


def _values(rows: Sequence[RequestRow]) -> Mapping[str, Sequence[float]]:
    each: Mapping[str, Sequence[float | None]] = {
        "ttft": [row.ttft_s for row in rows],
        "tpot": [row.tpot_s for row in rows],
        "itl": [gap for row in rows for gap in row.itls_s],
        "e2el": [row.e2e_s for row in rows],
    }
    return {name: [v for v in values if v is not None] for name, values in each.items()}


def _summary(name: str, ranked: Sequence[float]) -> dict[str, float | None]:
    words = ("mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES))
    if not ranked:
        return {f"{word}_{name}_ms": None for word in words}
    mean = sum(ranked) / len(ranked)
    figures = (
        mean,
        percentile(ranked, 50),
        sqrt(sum((value - mean) ** 2 for value in ranked) / len(ranked)),
        *(percentile(ranked, percent) for percent in PERCENTILES),
    )
    return {f"{word}_{name}_ms": value for word, value in zip(words, figures, strict=True)}
