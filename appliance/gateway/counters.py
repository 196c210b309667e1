"""Counters of one profile or key, and its times in logarithmic buckets: a fixed amount of memory.

Eight buckets a doubling: a percentile is within 5 % of the true one. The first bucket ends at
a microsecond, the last one has no end.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from math import log2
from typing import Final

BUCKETS: Final = 272
"""Number of buckets, up to 2^34 µs, which is five hours."""
_A_DOUBLING: Final = 8
_FIRST_S: Final = 1e-6
_LAST: Final = BUCKETS - 1

WINDOW_S: Final = 300.0
"""Length of a window. Times and speeds are of the last one to two windows, since figures since the
start would hide changes."""


def bucket_of(seconds: float) -> int:
    if seconds <= _FIRST_S:
        return 0
    bucket = int(log2(seconds * 1e6) * _A_DOUBLING) + 1
    return bucket if bucket < _LAST else _LAST  # noqa: FURB136 - `min` takes three times as long


def middle_of(bucket: int) -> float:
    """Return the time that represents a bucket, in seconds."""
    return _FIRST_S * 2.0 ** ((bucket - 0.5) / _A_DOUBLING) if bucket else _FIRST_S


def new_buckets() -> "array[int]":
    return array("I", bytes(4 * BUCKETS))


class Histogram:
    """Times of the last one to two windows, in buckets."""

    def __init__(self) -> None:
        self._now = new_buckets()
        self._before = new_buckets()

    def add(self, seconds: float) -> None:
        self._now[bucket_of(seconds)] += 1

    def merge(self, buckets: Sequence[int]) -> None:
        now = self._now
        for bucket, count in enumerate(buckets):
            if count:
                now[bucket] += count

    def rotate(self) -> None:
        """Begin a new window; forget the one before the last."""
        self._before, self._now = self._now, new_buckets()

    def percentiles_ms(self) -> dict[str, float] | None:
        """Return ``p50`` and ``p99`` in milliseconds; None: nothing was measured recently."""
        counts = [a + b for a, b in zip(self._before, self._now, strict=True)]
        total = sum(counts)
        if not total:
            return None
        return {
            "p50": _percentile_ms(counts, total, 0.5),
            "p99": _percentile_ms(counts, total, 0.99),
        }


class Counters:
    """Counts since the start of the process; times and speeds of the last one to two windows."""

    def __init__(self) -> None:
        self.requests = 0
        """Count of requests that are over."""
        self.in_flight = 0
        self.queued = 0
        self.errors = 0
        self.gone = 0
        """Count of requests whose client closed the connection."""
        self.retried = 0
        self.bytes = 0
        self.output_tokens = 0
        self.decoded_tokens = 0
        """Count of the output tokens whose time is known, which is the next one."""
        self.decode_s = 0.0
        self.prompt_tokens = 0
        """Count of the prompt tokens of responses that report how many of them were cached."""
        self.cached_tokens = 0
        self.used_s = 0.0
        """Time when the last request began."""
        self.last_byte_s = 0.0
        """Time when a byte of a response last came; 0: never."""
        self.owed_since_s = 0.0
        """Time since when the engine owes bytes to the request that has waited longest; 0: to
        none."""
        self.wait = Histogram()
        self.ttft = Histogram()
        self.gap = Histogram()
        self._decoded = [0.0, 0.0]
        """Tokens of this window and the one before."""
        self._decode_s = [0.0, 0.0]
        """Seconds that decoding these tokens took."""

    def add_decoded(self, tokens: int, tok_s: float) -> None:
        self.decoded_tokens += tokens
        self.decode_s += tokens / tok_s
        self._decoded[0] += tokens
        self._decode_s[0] += tokens / tok_s

    def rotate(self) -> None:
        """Begin a new window."""
        for histogram in (self.wait, self.ttft, self.gap):
            histogram.rotate()
        for sums in (self._decoded, self._decode_s):
            sums[:] = [0.0, sums[0]]

    def quiet_s(self, now_s: float) -> float | None:
        """Return for how long the engine has owed bytes and sent none; None: it owes none."""
        if not self.owed_since_s:
            return None
        return round(now_s - max(self.last_byte_s, self.owed_since_s), 1)

    def document(self, now_s: float) -> dict[str, object]:
        """Return the counters for JSON."""
        decode_s = sum(self._decode_s)
        return {
            "requests": self.requests + self.in_flight + self.queued,
            "in_flight": self.in_flight,
            "queued": self.queued,
            "quiet_s": self.quiet_s(now_s),
            "errors": self.errors,
            "gone": self.gone,
            "retried": self.retried,
            "bytes": self.bytes,
            "output_tokens": self.output_tokens,
            "decoded_tokens": self.decoded_tokens,
            "decode_s": round(self.decode_s, 3),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "tok_s": round(sum(self._decoded) / decode_s, 2) if decode_s else None,
            "wait_ms": self.wait.percentiles_ms(),
            "ttft_ms": self.ttft.percentiles_ms(),
            "gap_ms": self.gap.percentiles_ms(),
        }


def _percentile_ms(counts: Sequence[int], total: int, share: float) -> float:
    seen = accumulate(counts)
    bucket = next(b for b, count in enumerate(seen) if count >= share * total)
    return round(middle_of(bucket) * 1000, 3)
