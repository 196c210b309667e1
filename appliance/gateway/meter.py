"""Observes requests: how many, how long they wait, how fast answers come, for whom.

Figures are kept by profile and by key, a fixed amount for each and for at most `MOST` of each.
While a request is under way next to nothing is done for it: its times are noted, and everything
is counted when it is over, many at once, which costs half of what it does one by one.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from math import inf
from time import perf_counter
from typing import Final

from appliance.domain.gateway import Key
from appliance.gateway.counters import Figures
from appliance.gateway.histograms import WINDOW_S, bucket_of, new_buckets
from appliance.gateway.http.usage_parser import is_stream, output_tokens, tok_s

MOST: Final = 256
"""Profiles, and keys, that are kept apart; beyond, the one that was used longest ago goes."""
_SERVER_ERROR: Final = 500
_MOVED: Final = 307
_AT_ONCE: Final = 32
"""Requests that are counted together; each keeps some kilobytes of its answer until then."""
_LONG_S: Final = 10.0
"""A stream that lasts is counted while it does."""
_UNDER_WAY: Final = -1


class Request:
    """One request under observation: the interface `Measured`."""

    __slots__ = (
        "_due_s",
        "_first_s",
        "_gaps",
        "_last_s",
        "_merged_s",
        "_meter",
        "_retried",
        "_size",
        "_status",
        "_tail",
        "began_s",
        "key",
        "profile",
        "sent_s",
    )

    def __init__(self, meter: "Meter", profile: str, key: Key | None, now_s: float) -> None:
        self._meter = meter
        self.profile = profile
        self.key = key
        self.began_s = now_s
        self.sent_s = 0.0
        """When it went to the engine; 0: it waits."""
        self._due_s = 0.0
        """Since when the engine owes bytes; 0: since it was sent; inf: it owes none."""
        self._first_s = self._last_s = self._merged_s = 0.0
        self._size = self._retried = 0
        self._gaps: array[int] | None = None
        self._status = _UNDER_WAY
        self._tail = b""

    def sent(self) -> None:
        """The request went to the engine; another time when it had to be sent again."""
        if self.sent_s:
            self._retried += 1
        else:
            self.sent_s = self._meter.clock()

    def due(self, *, due: bool) -> None:
        """Whether the engine owes bytes."""
        self._due_s = self._meter.clock() if due else inf

    def chunk(self, size: int) -> None:
        """So many bytes of the answer's body have come. On the hottest path."""
        now_s = self._meter.clock()
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
        self._gaps[bucket_of(now_s - self._last_s)] += 1

    def ended(self, status: int, tail: bytes, size: int = 0) -> None:
        """It is over."""
        if self._status == _UNDER_WAY:
            self._size += size
            self._status = status
            self._tail = tail
            self._meter.over(self, size)

    def note_end(self) -> None:
        """Note that bytes have come with the end."""
        self._last_s = self._meter.clock()

    def count(self, mine: Iterable[Figures]) -> None:
        """Count a request that is over, and what its answer said about itself."""
        status, size, sent_s = self._status, self._size, self.sent_s
        tail = self._tail if size else b""
        tokens, speed = output_tokens(tail), tok_s(tail)
        streamed = self._first_s and is_stream(tail)
        if streamed:
            speed = speed or self._speed(tokens)
            self._merge(mine)
        for figures in mine:
            # One that moved without having been sent is observed again, as another profile's.
            if status != _MOVED or sent_s:
                figures.requests += 1
            figures.errors += status >= _SERVER_ERROR
            figures.gone += status == 0
            figures.retried += self._retried
            figures.bytes += size
            figures.used_s = self.began_s
            if self._last_s > figures.moved_s:  # noqa: PLR1730 - `max` takes three times as long
                figures.moved_s = self._last_s
            if sent_s:
                figures.wait.add(sent_s - self.began_s)
            if streamed:
                figures.ttft.add(self._first_s - (sent_s or self.began_s))
            if tokens:
                figures.output_tokens += tokens
                if speed is not None:
                    figures.decoded(tokens, speed)

    def _speed(self, tokens: int | None) -> float | None:
        """The first chunk brings the first token: the others took as long as the rest."""
        spent_s = self._last_s - self._first_s
        return (tokens - 1) / spent_s or None if tokens and spent_s > 0 else None

    def _merge(self, mine: Iterable[Figures]) -> None:
        if self._gaps is not None:
            for figures in mine:
                figures.gap.merge(self._gaps)

    def report(self, mine: Iterable[Figures], now_s: float) -> None:
        """Count what a long stream has brought so far, and for how long nothing has come."""
        due_s = self._due_s or self.sent_s or inf
        for figures in mine:
            figures.moved_s = max(figures.moved_s, self._last_s)
            if due_s < inf:
                figures.due_s = min(figures.due_s or due_s, due_s)
        if self._gaps is not None and now_s - self._merged_s > _LONG_S:
            self._merge(mine)
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
        self._over: list[Request] = []
        """Not counted yet."""
        self._turn_s = clock() + WINDOW_S

    def began(self, profile: str, key: Key | None) -> Request:
        """A request was routed to a profile."""
        request = Request(self, profile, key, self.clock())
        self._open.add(request)
        return request

    def over(self, request: Request, size: int) -> None:
        """Count a request, soon.

        Args:
            request: It.
            size: Bytes that have come with its end.
        """
        self._open.discard(request)
        if size and self._open:
            # Only for them this is a sign of life: later requests are owed nothing from before.
            request.note_end()
        over = self._over
        over.append(request)
        if len(over) >= _AT_ONCE:
            self._count(self.clock())

    def waiting(self, names: Iterable[str] | None = None) -> int:
        """Requests that wait to be sent, for these profiles; None: for any."""
        chosen = None if names is None else set(names)
        return sum(
            not request.sent_s and (chosen is None or request.profile in chosen)
            for request in self._open
        )

    def document(self) -> Mapping[str, object]:
        """Everything, for JSON. Requests without a key are in none of the keys' figures."""
        now_s = self.clock()
        self._count(now_s)
        self._look(now_s)
        return {
            "profiles": {n: f.document(now_s) for n, f in sorted(self._profiles.items())},
            "keys": {n: f.document(now_s) for n, f in sorted(self._keys.items())},
        }

    def _count(self, now_s: float) -> None:
        """Count what is over, and begin a new window when it is time for one."""
        for request in self._over:
            request.count(self._figures(request))
        self._over.clear()
        if now_s >= self._turn_s:
            self._turn(now_s)

    def _look(self, now_s: float) -> None:
        """See what is under way."""
        for figures in (*self._profiles.values(), *self._keys.values()):
            figures.in_flight = figures.queued = 0
            figures.due_s = 0.0
        for request in self._open:
            mine = self._figures(request)
            request.report(mine, now_s)
            for figures in mine:
                figures.used_s = now_s
                figures.in_flight += request.sent_s > 0
                figures.queued += not request.sent_s

    def _figures(self, request: Request) -> tuple[Figures, ...]:
        """What a request counts for: its profile, and its key."""
        profile = _of(self._profiles, request.profile)
        if request.key is None:
            return (profile,)
        return profile, _of(self._keys, request.key.name)

    def _turn(self, now_s: float) -> None:
        # Twice after a long silence: nothing in there is of the last minutes.
        for _ in range(1 if now_s < self._turn_s + WINDOW_S else 2):
            for figures in (*self._profiles.values(), *self._keys.values()):
                figures.turn()
        self._turn_s = now_s + WINDOW_S


def _of(kept: dict[str, Figures], name: str) -> Figures:
    figures = kept.get(name)
    if figures is None:
        if len(kept) >= MOST:
            del kept[min(kept, key=lambda one: kept[one].used_s)]
        figures = kept[name] = Figures()
    return figures
