"""Meter of requests: count, waiting time and speed, by profile and by key.

Counters are kept by profile and by key, a fixed amount of memory for each and at most `MOST` of
each. During a request next to nothing is done for it: its times are noted. Requests that are over
are counted many at once, which takes half the time of counting them one by one.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from math import inf
from time import perf_counter
from typing import Final

from appliance.gateway.counters import (
    BOUNDS_S,
    WINDOW_S,
    Counters,
    add_whole,
    bucket_of,
    new_buckets,
)
from appliance.gateway.http.usage_parser import is_stream, parse_usage
from appliance.gateway.relay.protocols import REROUTED, RequestProgress
from appliance.model.gateway import Key

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

        Profiles have histograms; their upper bounds are told once, under ``bounds_s``.
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
