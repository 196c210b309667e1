"""Counters of one profile or key, and its times in buckets: a fixed amount of memory.

Percentiles are of the last minutes, in logarithmic buckets; histograms are of all times since the start.
Eight buckets a doubling: a percentile is within 5 % of the true one. The first bucket ends at
a microsecond, the last one has no end.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf, log2
from typing import Final

BUCKETS: Final = 272
"""Number of buckets, up to 2^34 µs, which is five hours."""
_A_DOUBLING: Final = 8
_FIRST_S: Final = 1e-6
_LAST: Final = BUCKETS - 1

WINDOW_S: Final = 300.0
"""Length of a window. Times and speeds are of the last one to two windows, since figures since the
start would hide changes."""

FIRST_TOKEN_BOUNDS_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 30.0, 60.0, 120.0, 300.0),
)
"""Upper bounds of `gen_ai.server.time_to_first_token` (OpenTelemetry's conventions for generative AI),
and on to the longest time for which a request is held."""
GAP_BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.5, 0.75, 1.0, 2.5, 10.0),
)
"""Upper bounds of `gen_ai.server.time_per_output_token`, closer between 10 and 50 ms, and below them:
20 to 100 tokens a second are what most models decode."""
REQUEST_BOUNDS_S: Final = (
    *(0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0),
)
"""Upper bounds of vLLM's `e2e_request_latency_seconds`, and one below them for small models."""

BOUNDS_S: Final[Mapping[str, Sequence[float]]] = {
    "time_to_first_token": FIRST_TOKEN_BOUNDS_S,
    "inter_token_latency": GAP_BOUNDS_S,
    "e2e_request_latency": REQUEST_BOUNDS_S,
}
"""Upper bounds of the histograms since the start, by name."""


def bucket_of(seconds: float) -> int:
    if seconds <= _FIRST_S:
        return 0
    bucket = int(log2(seconds * 1e6) * _A_DOUBLING) + 1
    return bucket if bucket < _LAST else _LAST  # noqa: FURB136 - `min` takes three times as long


def middle_of(bucket: int) -> float:
    """Return the time that represents a bucket, in seconds."""
    return _FIRST_S * 2.0 ** ((bucket - 0.5) / _A_DOUBLING) if bucket else _FIRST_S


def _end_of(bucket: int) -> float:
    """Return the longest time in a bucket, in seconds."""
    return _FIRST_S * 2.0 ** (bucket / _A_DOUBLING) if bucket < _LAST else inf


def new_buckets() -> "array[int]":
    return array("I", bytes(4 * BUCKETS))


class CumulativeHistogram:
    """Times since the start of the process, by upper bound, as Prometheus counts them."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds

    def document(self) -> Mapping[str, object]:
        return histogram_document(self._counts, self._sum_s)


def histogram_document(counts: Sequence[int], sum_s: float) -> Mapping[str, object]:
    """Return a histogram for JSON; its last count is that of the times beyond every bound."""
    return {"counts": list(counts), "sum_s": round(sum_s, 6)}


class Histogram:
    """Times of the last one to two windows, in buckets, and counts of those since the start."""

    def __init__(self) -> None:
        self._now = new_buckets()
        self._before = new_buckets()
        self._past = array("Q", bytes(8 * BUCKETS))
        """Counts of the windows that are forgotten."""

    def add(self, seconds: float) -> None:
        self._now[bucket_of(seconds)] += 1

    def merge(self, buckets: Sequence[int]) -> None:
        now = self._now
        for bucket, count in enumerate(buckets):
            if count:
                now[bucket] += count

    def rotate(self) -> None:
        """Begin a new window; forget the one before the last, except in the counts since the start."""
        past = self._past
        for bucket, count in enumerate(self._before):
            if count:
                past[bucket] += count
        self._before, self._now = self._now, new_buckets()

    def counts(self, bounds_s: Sequence[float]) -> Sequence[int]:
        """Return the counts since the start up to each of the bounds, and beyond them.

        A bucket is counted under the first bound that none of its times exceeds: a time that is less than
        a tenth below a bound may be counted under the next one.
        """
        found = [0] * (len(bounds_s) + 1)
        for bucket, counts in enumerate(zip(self._past, self._before, self._now, strict=True)):
            if count := sum(counts):
                found[bisect_left(bounds_s, _end_of(bucket))] += count
        return found

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
        self.bytes = 0
        self.output_tokens = 0
        self.decoded_tokens = 0
        """Count of the output tokens whose time is known, which is the next one."""
        self.decode_s = 0.0
        self.input_tokens = 0
        """Count of the prompt tokens of all responses that report them."""
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
        self.gap_s = 0.0
        """Sum of the times in `gap` since the start."""
        self.first_token = CumulativeHistogram(FIRST_TOKEN_BOUNDS_S)
        """Times from the beginning of a request, its wait included, to the first piece of its stream."""
        self.whole = CumulativeHistogram(REQUEST_BOUNDS_S)
        """Times from the beginning of a request to the last byte of its response, of successful ones."""
        self._decoded = [0.0, 0.0]
        """Tokens of this window and the one before."""
        self._decode_s = [0.0, 0.0]
        """Seconds that decoding these tokens took."""

    def add_output(self, tokens: int, tok_s: float | None) -> None:
        """Add output tokens, and the time that they took if their speed is known."""
        self.output_tokens += tokens
        if tok_s is not None:
            self.decoded_tokens += tokens
            self.decode_s += tokens / tok_s
            self._decoded[0] += tokens
            self._decode_s[0] += tokens / tok_s

    def add_prompt(self, tokens: int, cached: int | None) -> None:
        self.input_tokens += tokens
        if cached is not None:
            self.prompt_tokens += tokens
            self.cached_tokens += cached

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
            "retried": 0,  # a key that readers were promised: each request is sent once
            "bytes": self.bytes,
            "output_tokens": self.output_tokens,
            "decoded_tokens": self.decoded_tokens,
            "decode_s": round(self.decode_s, 3),
            "input_tokens": self.input_tokens,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "tok_s": round(sum(self._decoded) / decode_s, 2) if decode_s else None,
            "wait_ms": self.wait.percentiles_ms(),
            "ttft_ms": self.ttft.percentiles_ms(),
            "gap_ms": self.gap.percentiles_ms(),
        }

    def histograms(self) -> Mapping[str, object]:
        """Return the times since the start of the process for JSON, by the names in `BOUNDS_S`."""
        return {
            "time_to_first_token": self.first_token.document(),
            "inter_token_latency": histogram_document(self.gap.counts(GAP_BOUNDS_S), self.gap_s),
            "e2e_request_latency": self.whole.document(),
        }


def add_whole(mine: Iterable[Counters], seconds: float) -> None:
    """Add the time of a whole successful response to counters."""
    for counters in mine:
        counters.whole.add(seconds)


def _percentile_ms(counts: Sequence[int], total: int, share: float) -> float:
    seen = accumulate(counts)
    bucket = next(b for b, count in enumerate(seen) if count >= share * total)
    return round(middle_of(bucket) * 1000, 3)
