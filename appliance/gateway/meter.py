"""Observes requests: how many, how long they wait, how fast answers come, for whom.

Figures are kept by profile and by key, a fixed amount for each and for at most `MOST` of each.
Counts are since the start of this process; times and speeds are of the last minutes.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Final

from appliance.domain.gateway import Key
from appliance.gateway.histograms import WINDOW_S, Histogram, bucket_of, new_buckets
from appliance.gateway.tails import told_by

MOST: Final = 256
"""Profiles, and keys, that are kept apart; beyond, the one that was used longest ago goes."""
_SERVER_ERROR: Final = 500
_MOVED: Final = 307
_AT_ONCE: Final = 64
"""Ends of answers that are kept, of some kilobytes each at the most."""
_LONG_S: Final = 10.0
"""A stream that lasts is counted while it does."""


class Figures:
    """What was observed of one profile, or of one key."""

    def __init__(self) -> None:
        self.requests = 0
        self.in_flight = 0
        self.queued = 0
        self.errors = 0
        self.gone = 0
        self.bytes = 0
        self.output_tokens = 0
        self.used_s = 0.0
        self.wait = Histogram()
        self.ttft = Histogram()
        self.gap = Histogram()
        self._decoded = [0.0, 0.0]
        self._decode_s = [0.0, 0.0]

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self.in_flight and not self.queued

    def decoded(self, tokens: int, tok_s: float) -> None:
        """So many tokens came at that speed."""
        self._decoded[0] += tokens
        self._decode_s[0] += tokens / tok_s

    def turn(self) -> None:
        """Begin a new window."""
        for histogram in (self.wait, self.ttft, self.gap):
            histogram.turn()
        for sums in (self._decoded, self._decode_s):
            sums[:] = [0.0, sums[0]]

    def document(self) -> dict[str, object]:
        """For JSON."""
        decode_s = sum(self._decode_s)
        return {
            "requests": self.requests,
            "in_flight": self.in_flight,
            "queued": self.queued,
            "errors": self.errors,
            "gone": self.gone,
            "bytes": self.bytes,
            "output_tokens": self.output_tokens,
            "tok_s": round(sum(self._decoded) / decode_s, 2) if decode_s else None,
            "wait_ms": self.wait.percentiles_ms(),
            "ttft_ms": self.ttft.percentiles_ms(),
            "gap_ms": self.gap.percentiles_ms(),
        }


class Request:
    """One request under observation: the interface `Measured`."""

    __slots__ = (
        "_began_s",
        "_bytes",
        "_clock",
        "_first_s",
        "_for",
        "_gaps",
        "_last_s",
        "_merged_s",
        "_meter",
        "_over",
        "_sent_s",
    )

    def __init__(self, meter: "Meter", figures: tuple[Figures, ...], now_s: float) -> None:
        self._meter = meter
        self._clock = meter.clock
        self._for = figures
        self._began_s = now_s
        self._sent_s = self._first_s = self._last_s = self._merged_s = 0.0
        self._bytes = 0
        self._gaps: array[int] | None = None
        self._over = False

    def sent(self) -> None:
        """The request went to the engine; another time when it had to be sent again."""
        if self._sent_s or self._over:
            return
        self._sent_s = now_s = self._clock()
        for figures in self._for:
            figures.queued -= 1
            figures.in_flight += 1
            figures.wait.add(now_s - self._began_s)

    def chunk(self, size: int) -> None:
        """So many bytes of the answer's body have come. On the hottest path."""
        now_s = self._clock()
        self._bytes += size
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
        self._gaps[bucket_of(now_s - self._last_s)] += 1

    def ended(self, status: int, tail: bytes) -> None:
        """It is over."""
        if self._over:
            return
        self._over = True
        self._meter.forget(self)
        for figures in self._for:
            self._close(figures, status)
        if tail and self._first_s:
            self._meter.keep(self, tail)

    def _close(self, figures: Figures, status: int) -> None:
        if self._sent_s:
            figures.in_flight -= 1
        else:
            figures.queued -= 1
            # It is observed again, as a request for another profile.
            figures.requests -= status == _MOVED
        figures.bytes += self._bytes
        figures.errors += status >= _SERVER_ERROR
        figures.gone += status == 0

    def read(self, tail: bytes) -> None:
        """Count what the answer says about itself."""
        told = told_by(tail)
        speed = told.tok_s
        if told.streamed:
            spent_s = self._last_s - self._first_s
            if speed is None and told.output_tokens and spent_s > 0:
                # The first chunk brings the first token: the others took this long.
                speed = (told.output_tokens - 1) / spent_s or None
            self._merge()
            for figures in self._for:
                figures.ttft.add(self._first_s - (self._sent_s or self._began_s))
        if told.output_tokens:
            for figures in self._for:
                figures.output_tokens += told.output_tokens
                if speed is not None:
                    figures.decoded(told.output_tokens, speed)

    def _merge(self) -> None:
        if self._gaps is not None:
            for figures in self._for:
                figures.gap.merge(self._gaps)

    def report(self, now_s: float) -> None:
        """Count what a long stream has brought so far."""
        if self._gaps is not None and now_s - self._merged_s > _LONG_S:
            self._merge()
            self._gaps, self._merged_s = new_buckets(), now_s


class Meter:
    """Observes everybody: the interface `Observer`.

    Args:
        clock: Seconds that never go back, to the microsecond.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._profiles: dict[str, Figures] = {}
        self._keys: dict[str, Figures] = {}
        self._open: set[Request] = set()
        self._unread: list[tuple[Request, bytes]] = []
        self._turn_s = clock() + WINDOW_S

    def began(self, profile: str, key: Key | None) -> Request:
        """A request was routed to a profile."""
        now_s = self.clock()
        if now_s >= self._turn_s:
            self._turn(now_s)
        mine: tuple[Figures, ...] = (_of(self._profiles, profile, now_s),)
        if key is not None:
            mine = (*mine, _of(self._keys, key.name, now_s))
        for figures in mine:
            figures.requests += 1
            figures.queued += 1
            figures.used_s = now_s
        request = Request(self, mine, now_s)
        self._open.add(request)
        return request

    def forget(self, request: Request) -> None:
        """It is over."""
        self._open.discard(request)

    def keep(self, request: Request, tail: bytes) -> None:
        """Read the end of an answer soon: many at once cost half of what they do one by one."""
        self._unread.append((request, tail))
        if len(self._unread) >= _AT_ONCE:
            self._read()

    def _read(self) -> None:
        for request, tail in self._unread:
            request.read(tail)
        self._unread.clear()

    def waiting(self, names: Iterable[str] | None = None) -> int:
        """Requests that wait to be sent, for these profiles; None: for any."""
        chosen = set(self._profiles if names is None else names)
        return sum(figures.queued for n, figures in self._profiles.items() if n in chosen)

    def document(self) -> Mapping[str, object]:
        """Everything, for JSON. Requests without a key are in none of the keys' figures."""
        now_s = self.clock()
        if now_s >= self._turn_s:
            self._turn(now_s)
        self._read()
        for request in self._open:
            request.report(now_s)
        return {
            "profiles": {name: f.document() for name, f in sorted(self._profiles.items())},
            "keys": {name: f.document() for name, f in sorted(self._keys.items())},
        }

    def _turn(self, now_s: float) -> None:
        self._read()
        # Twice after a long silence: nothing in there is of the last minutes.
        for _ in range(1 if now_s < self._turn_s + WINDOW_S else 2):
            for figures in (*self._profiles.values(), *self._keys.values()):
                figures.turn()
        self._turn_s = now_s + WINDOW_S


def _of(kept: dict[str, Figures], name: str, now_s: float) -> Figures:
    figures = kept.get(name)
    if figures is None:
        if len(kept) >= MOST:
            _drop_one(kept)
        figures = kept[name] = Figures()
        figures.used_s = now_s
    return figures


def _drop_one(kept: dict[str, Figures]) -> None:
    """The one used longest ago; one that is in use is merely no longer shown."""
    oldest = min(kept, key=lambda name: (not kept[name].idle, kept[name].used_s))
    del kept[oldest]
