"""Meter of requests: count, waiting time and speed, by profile and by key.

Counters are kept by profile and by key, a fixed amount of memory for each and at most `MOST` of
each. During a request next to nothing is done for it: its times are noted. Requests that are over
are counted many at once, which takes half the time of counting them one by one.

Percentiles are of the last minutes, in logarithmic buckets; histograms are of all times since the start.
Eight buckets a doubling: a percentile is within 5 % of the true one. The first bucket ends at
a microsecond, the last one has no end.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf, log2
from time import perf_counter
from typing import Final

from appliance.gateway.relay import REROUTED, RequestProgress
from appliance.gateway.response import is_stream, parse_usage
from appliance.model.gateway import Key

# --- counters -----------------------------------------------------------------------------

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


# --- meter --------------------------------------------------------------------------------

MOST: Final = 256
"""Most profiles, and most keys, that are counted apart; beyond, the one used longest ago is
dropped."""
_SUCCESS: Final = 200
_REDIRECTION: Final = 300
_SERVER_ERROR: Final = 500
_AT_ONCE: Final = 32
"""Number of requests that are counted together; each keeps some kilobytes of its response until
then."""
_LONG_S: Final = 10.0
"""Time after which a stream is counted while it lasts."""
_UNDER_WAY: Final = -1


class MeteredRequest:
    """Times of one request: the meter's `Observation`."""

    __slots__ = (
        "_first_s",
        "_gaps",
        "_gaps_from_s",
        "_last_s",
        "_merged_s",
        "_meter",
        "_owed_since_s",
        "_pieces",
        "_size",
        "_status",
        "_tail",
        "began_s",
        "key",
        "profile",
        "sent_s",
    )

    def __init__(
        self, meter: "Meter", profile: str, key: Key | None, now_s: float, sent_s: float
    ) -> None:
        self._meter = meter
        self.profile = profile
        self.key = key
        self.began_s = now_s
        self.sent_s = sent_s
        """Time when the request was sent to the engine; 0: it waits."""
        self._owed_since_s = 0.0
        """Time since when the engine owes bytes; 0: since `sent_s`; inf: it owes none."""
        self._first_s = self._last_s = self._merged_s = 0.0
        self._size = self._pieces = 0
        self._gaps: array[int] | None = None
        self._gaps_from_s = 0.0
        """Time of the chunk before the first of `_gaps`."""
        self._status = _UNDER_WAY
        self._tail = b""

    def sent(self) -> None:
        self.sent_s = self._meter.clock()

    def owed(self, *, owed: bool) -> None:
        self._owed_since_s = self._meter.clock() if owed else inf

    def chunk(self, size: int) -> None:
        """Note a chunk of the response body, on the hottest path."""
        clock = self._meter.clock
        now_s = clock()
        self._size += size
        if self._gaps is None:
            self._open(now_s)
        else:
            self._gaps[bucket_of(now_s - self._last_s)] += 1
        self._last_s = now_s

    def _open(self, now_s: float) -> None:
        if not self._first_s:
            self._first_s = self._merged_s = now_s
            return
        self._gaps = new_buckets()
        self._gaps_from_s = self._last_s
        self._gaps[bucket_of(now_s - self._last_s)] += 1

    def progress(self) -> RequestProgress:
        """Return the progress; pieces are those whose gaps were counted, and the first one."""
        since_merge = 0 if self._gaps is None else sum(self._gaps)
        return RequestProgress(
            age_s=self._meter.clock() - self.began_s,
            waited_s=self.sent_s - self.began_s if self.sent_s else None,
            pieces=self._pieces + since_merge + (self._first_s > 0),
            size_bytes=self._size,
        )

    def end(self, status: int, tail: bytes, size: int = 0) -> None:
        if self._status == _UNDER_WAY:
            self._size += size
            self._status = status
            self._tail = tail
            if self._meter.end(self) and size:
                # Only other open requests need this sign of progress: later ones are owed nothing yet.
                clock = self._meter.clock
                self._last_s = clock()

    def count(self, mine: Iterable[Counters]) -> None:
        """Add a request that is over, and the usage that its response reports, to counters."""
        status, size, sent_s = self._status, self._size, self.sent_s
        tail = self._tail if size else b""
        tokens, speed, prompt = parse_usage(tail)
        streamed = self._first_s and is_stream(tail)
        if streamed:
            speed = speed or self._speed(tokens)
            self._merge_gaps(mine)
        if self._first_s and _SUCCESS <= status < _REDIRECTION:
            add_whole(mine, self._last_s - self.began_s)
        for counters in mine:
            # A rerouted request that was not sent is observed again, for another profile.
            if status != REROUTED or sent_s:
                counters.requests += 1
            counters.errors += status >= _SERVER_ERROR
            counters.gone += status == 0
            counters.bytes += size
            counters.used_s = self.began_s
            if self._last_s > counters.last_byte_s:  # noqa: PLR1730 - `max` takes three times as long
                counters.last_byte_s = self._last_s
            if sent_s:
                counters.wait.add(sent_s - self.began_s)
            if streamed:
                counters.ttft.add(self._first_s - (sent_s or self.began_s))
                counters.first_token.add(self._first_s - self.began_s)
            if prompt is not None:
                counters.add_prompt(*prompt)
            if tokens:
                counters.add_output(tokens, speed)

    def _speed(self, tokens: int | None) -> float | None:
        """Return the speed of the tokens after the first, which came with the first chunk."""
        spent_s = self._last_s - self._first_s
        return (tokens - 1) / spent_s or None if tokens and spent_s > 0 else None

    def _merge_gaps(self, mine: Iterable[Counters]) -> None:
        if self._gaps is not None:
            for counters in mine:
                counters.gap.merge(self._gaps)
                counters.gap_s += self._last_s - self._gaps_from_s

    def report(self, mine: Iterable[Counters], now_s: float) -> None:
        """Add to counters what a request under way has brought, and since when bytes are owed."""
        owed_since_s = self._owed_since_s or self.sent_s or inf
        for counters in mine:
            counters.last_byte_s = max(counters.last_byte_s, self._last_s)
            if owed_since_s < inf:
                counters.owed_since_s = min(counters.owed_since_s or owed_since_s, owed_since_s)
        if self._gaps is not None and now_s - self._merged_s > _LONG_S:
            self._merge_gaps(mine)
            self._pieces += sum(self._gaps)
            self._gaps, self._merged_s = new_buckets(), now_s
            self._gaps_from_s = self._last_s


class Meter:
    """Meter of all requests: the relay's `Observer`.

    Args:
        clock: Seconds that never go back, to the microsecond.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._profiles: dict[str, Counters] = {}
        self._keys: dict[str, Counters] = {}
        self._open: set[MeteredRequest] = set()
        self._ended: list[MeteredRequest] = []
        """Requests that are over and not counted yet."""
        self._window_end_s = clock() + WINDOW_S

    def begin(self, profile: str, key: Key | None) -> MeteredRequest:
        request = MeteredRequest(self, profile, key, self.clock(), 0.0)
        self._open.add(request)
        return request

    def begin_sent(self, profile: str, key: Key | None) -> MeteredRequest:
        clock = self.clock
        now_s = clock()
        request = MeteredRequest(self, profile, key, now_s, now_s)
        self._open.add(request)
        return request

    def end(self, request: MeteredRequest) -> bool:
        """Count a request that is over, with some later ones; tell whether other requests are open."""
        # Before this request joins them: the time of its last byte is not noted yet.
        if len(self._ended) >= _AT_ONCE:
            self._count(self.clock())
        self._open.discard(request)
        self._ended.append(request)
        return bool(self._open)

    def waiting(self, names: Iterable[str] | None = None) -> int:
        """Return how many requests wait to be sent, for these profiles; None: for any."""
        chosen = None if names is None else set(names)
        return sum(
            not request.sent_s and (chosen is None or request.profile in chosen)
            for request in self._open
        )

    def document(self) -> Mapping[str, object]:
        """Return all counters for JSON. Requests without a key are in none of the keys'.

        Profiles have histograms; their upper bounds are given once, under ``bounds_s``.
        """
        now_s = self.clock()
        self._count(now_s)
        self._report_open(now_s)
        return {
            "profiles": {
                name: {**counters.document(now_s), "histograms": counters.histograms()}
                for name, counters in sorted(self._profiles.items())
            },
            "keys": {n: c.document(now_s) for n, c in sorted(self._keys.items())},
            "bounds_s": BOUNDS_S,
        }

    def _count(self, now_s: float) -> None:
        """Count the requests that are over; begin a new window when it is time for one."""
        before: MeteredRequest | None = None
        mine: tuple[Counters, ...] = ()
        for request in self._ended:
            # Mostly a request is of the same profile and key as the request before.
            if before is None or request.profile != before.profile or request.key is not before.key:
                mine = self._counters_of(request)
            request.count(mine)
            before = request
        self._ended.clear()
        if now_s >= self._window_end_s:
            self._rotate(now_s)

    def _report_open(self, now_s: float) -> None:
        for counters in (*self._profiles.values(), *self._keys.values()):
            counters.in_flight = counters.queued = 0
            counters.owed_since_s = 0.0
        for request in self._open:
            mine = self._counters_of(request)
            request.report(mine, now_s)
            for counters in mine:
                counters.used_s = now_s
                counters.in_flight += request.sent_s > 0
                counters.queued += not request.sent_s

    def _counters_of(self, request: MeteredRequest) -> tuple[Counters, ...]:
        """Return the counters of the request's profile, and of its key."""
        profile = _get_or_add(self._profiles, request.profile)
        if request.key is None:
            return (profile,)
        return profile, _get_or_add(self._keys, request.key.name)

    def _rotate(self, now_s: float) -> None:
        # Twice after a long silence: nothing in either window is recent.
        for _ in range(1 if now_s < self._window_end_s + WINDOW_S else 2):
            for counters in (*self._profiles.values(), *self._keys.values()):
                counters.rotate()
        self._window_end_s = now_s + WINDOW_S


def _get_or_add(kept: dict[str, Counters], name: str) -> Counters:
    counters = kept.get(name)
    if counters is None:
        if len(kept) >= MOST:
            del kept[min(kept, key=lambda one: kept[one].used_s)]
        counters = kept[name] = Counters()
    return counters
