"""Times in logarithmic buckets: a fixed amount of memory, whatever is measured.

Eight buckets a doubling: a percentile is within 5 % of the true one. The first bucket ends at
a microsecond, the last one has no end.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from math import log2
from typing import Final

BUCKETS: Final = 272
"""Up to 2^34 µs, which is five hours."""
_A_DOUBLING: Final = 8
_FIRST_S: Final = 1e-6
_LAST: Final = BUCKETS - 1

WINDOW_S: Final = 300.0
"""Figures are of the last one to two windows: a percentile since the start would show nothing."""


def bucket_of(seconds: float) -> int:
    """The bucket of a time."""
    if seconds <= _FIRST_S:
        return 0
    bucket = int(log2(seconds * 1e6) * _A_DOUBLING) + 1
    return min(bucket, _LAST)


def middle_of(bucket: int) -> float:
    """The time that a bucket stands for, in seconds."""
    return _FIRST_S * 2.0 ** ((bucket - 0.5) / _A_DOUBLING) if bucket else _FIRST_S


def new_buckets() -> "array[int]":
    """Empty buckets."""
    return array("I", bytes(4 * BUCKETS))


class Histogram:
    """How times were spread over the last minutes."""

    def __init__(self) -> None:
        self._now = new_buckets()
        self._before = new_buckets()

    def add(self, seconds: float) -> None:
        """Count one time."""
        self._now[bucket_of(seconds)] += 1

    def merge(self, buckets: Sequence[int]) -> None:
        """Count many."""
        now = self._now
        for bucket, count in enumerate(buckets):
            if count:
                now[bucket] += count

    def turn(self) -> None:
        """Begin a new window; the one before the last is forgotten."""
        self._before, self._now = self._now, new_buckets()

    def percentiles_ms(self) -> dict[str, float] | None:
        """``p50`` and ``p99`` in milliseconds; None: nothing was measured lately."""
        counts = [a + b for a, b in zip(self._before, self._now, strict=True)]
        total = sum(counts)
        if not total:
            return None
        return {
            "p50": _percentile_ms(counts, total, 0.5),
            "p99": _percentile_ms(counts, total, 0.99),
        }


def _percentile_ms(counts: Sequence[int], total: int, share: float) -> float:
    seen = accumulate(counts)
    bucket = next(b for b, count in enumerate(seen) if count >= share * total)
    return round(middle_of(bucket) * 1000, 3)
