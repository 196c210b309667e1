"""Raw rows of a bench, one a request, and the figures that are computed from them.

Rows hold times and counts, never a text of a prompt or an answer. Every figure of a bench comes from
its rows. Rates, by the definitions of the published method (docs/how-to/measure-speed.md):

- tok/s of a request: completion tokens as the API counts them, over its wall time
- effective tok/s of a level: all its completion tokens over the wall time of the level
- per-task tok/s: mean of the tok/s of its requests
- contention: 1 - per-task(C) / per-task(1)
- speed-up: wall time of the same tokens one request after another, over that of the level
- concurrency reached: requests that were in flight together, not those that were wanted

Latencies, as other tools summarise them in milliseconds:

- TTFT: from sending the request to its first content
- E2EL: from sending to the last content
- ITL: between one event with content and the next, all events of all requests together
- TPOT: (E2EL - TTFT) / (output tokens - 1), one value a request

Percentiles are interpolated linearly and the deviation is that of the population, as in NumPy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import sqrt
from typing import Final

from appliance.model.measurements import BoxGpus
from appliance.speed.event_stream import EventStreamParser
from appliance.speed.measurement import ObservedStream

_MOST_BYTES: Final = 64 << 20
"""Limit of a response; 8192 tokens of llama.cpp's verbose events take 3 MB."""
_MOST_TEXT: Final = 64 << 10
"""Characters of an answer that are kept to be compared."""


class Part(StrEnum):
    """Part of a bench."""

    SINGLE = "single"
    """One request at a time, the five coding tasks in turn."""
    SWARM = "swarm"
    """Several requests at a time."""
    DEPTH = "depth"
    """One request after a long prompt."""
    ANSWERS = "answers"
    """Greedy requests, whose answers are compared and whose times are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request. Times are in seconds of one monotonic clock, from the beginning of the bench."""

    profile: str
    part: Part
    run: int
    """Number of the run, from 1; 0: warm-up, which no figure counts."""
    concurrency: int
    """Requests that were to be in flight together."""
    prompt: str
    """Name of the task."""
    depth: int = 0
    """Prompt tokens that were aimed at; 0: a task as it is."""
    sent_s: float
    arrivals_s: tuple[float, ...] = ()
    """Arrival of each event with text; empty: none came."""
    ended_s: float
    input_tokens: int = 0
    output_tokens: int = 0
    """As the engine counts them; 0 for a failed request."""
    cached_tokens: int | None = None
    """Prompt tokens that the prefix cache held; None: the engine does not tell."""
    prefill_s: float | None = None
    """By the engine's own timings, as the next; None: it tells none."""
    decode_s: float | None = None
    """Time from the first output token to the last."""
    error: str = ""
    """Reason why the request failed, without anything of its texts; empty: it did not fail."""

    @property
    def wall_s(self) -> float:
        """Return the time from sending the request to the end of its response."""
        return self.ended_s - self.sent_s

    @property
    def ttft_s(self) -> float | None:
        """Return the time from sending to the first content; None: none came."""
        return self.arrivals_s[0] - self.sent_s if self.arrivals_s else None

    @property
    def e2e_s(self) -> float | None:
        """Return the time from sending to the last content; None: none came."""
        return self.arrivals_s[-1] - self.sent_s if self.arrivals_s else None

    @property
    def tpot_s(self) -> float | None:
        """Return the time for each output token after the first; None: fewer than two came."""
        first, last = self.ttft_s, self.e2e_s
        if first is None or last is None or self.output_tokens < 2:  # noqa: PLR2004
            return None
        return (last - first) / (self.output_tokens - 1)

    @property
    def itls_s(self) -> Sequence[float]:
        """Return the times between one event with text and the next."""
        pairs = zip(self.arrivals_s, self.arrivals_s[1:], strict=False)
        return [later - earlier for earlier, later in pairs]

    def after(self, began_s: float) -> "RequestRow":
        """Return the row with its times counted from a time of the same clock."""
        return replace(
            self,
            sent_s=self.sent_s - began_s,
            arrivals_s=tuple(at_s - began_s for at_s in self.arrivals_s),
            ended_s=self.ended_s - began_s,
        )


class ResponseObserver:
    """Observer of one response, from its bytes as they arrive.

    Args:
        request: Row with the place of the request in its bench; times and counts are filled in.
        keep_text: Whether to keep the answer, to compare it with another.
    """

    def __init__(self, request: RequestRow, *, keep_text: bool = False) -> None:
        self._request = request
        self._parser = EventStreamParser(_MOST_BYTES)
        self._stream = ObservedStream(sent_s=0.0)
        self._arrivals: list[float] = []
        self._texts: list[str] | None = [] if keep_text else None
        self._text_left = _MOST_TEXT

    def feed(self, piece: bytes, at_s: float) -> None:
        """Take bytes of the body that arrived at `at_s`."""
        for data in self._parser.feed(piece):
            self._stream.last_s = None
            self._stream.take(data, at_s)
            if self._has_text():
                self._arrivals.append(at_s)
                self._keep(self._stream.text)

    @property
    def text(self) -> str:
        """Return the answer so far; empty where it was not to be kept."""
        return "".join(self._texts or ())

    def row(self, *, sent_s: float, ended_s: float, fault: str = "") -> RequestRow:
        """Return the row of the request.

        Args:
            sent_s: Time at which the request was written.
            ended_s: Time at which the response ended, or was given up.
            fault: Reason why the request failed, as the client of the connection knows it.
        """
        stream = self._stream
        timings = stream.timings
        output = stream.output_tokens
        if output is None and timings is not None:
            output = timings.output_tokens
        error = fault or self._fault(output)
        prompt = 0 if timings is None else timings.prompt_tokens
        cached = stream.cached_tokens
        if cached is None and timings is not None:
            cached = timings.cached_tokens
        return replace(
            self._request,
            sent_s=sent_s,
            arrivals_s=tuple(self._arrivals),
            ended_s=ended_s,
            input_tokens=prompt if stream.prompt_tokens is None else stream.prompt_tokens,
            output_tokens=0 if error else output or 0,
            cached_tokens=cached,
            prefill_s=None if timings is None else timings.prefill_s,
            decode_s=None if timings is None else timings.decode_s,
            error=error,
        )

    def _has_text(self) -> bool:
        """Tell whether the last event had text."""
        return self._stream.last_s is not None

    def _fault(self, output_tokens: int | None) -> str:
        """Return why the response is none to count; empty: it is whole."""
        if self._stream.failed:
            return "error in the stream"
        if self._parser.overflowed:
            return "response too long"
        if not self._stream.ended:
            return "broke off"
        if not output_tokens:
            return "no usage" if output_tokens is None else "no output"
        return "" if self._arrivals else "no text"

    def _keep(self, text: str) -> None:
        if self._texts is None or self._text_left <= 0:
            return
        self._texts.append(text[: self._text_left])
        self._text_left -= len(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedConcurrency:
    """Concurrency that was reached, from the intervals in which requests were in flight."""

    most: int
    mean: float
    """Mean over the wall time of the level."""
    full_share: float
    """Share of the wall time in which at least as many were in flight as were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRates:
    """Rates of all requests of one concurrency; None: no request came to its end."""

    concurrency: int
    """Requests that were asked for at once."""
    reached: ReachedConcurrency
    requests: int
    failed: int
    output_tokens: int
    wall_s: float
    """Sum over the runs of the level."""
    effective_tok_s: float | None
    """Rate of all requests together; None: none came to its end."""
    per_task_tok_s: float | None
    """Mean rate of one request; None: none came to its end."""
    contention: float | None = None
    """Share of a request's speed that it loses to those beside it; None: nothing was measured at concurrency 1."""
    speedup: float | None = None
    """Factor by which the same work is done sooner than one by one; None: nothing was measured at concurrency 1."""


def request_tok_s(row: RequestRow) -> float | None:
    """Return completion tokens over wall time; None: the request failed."""
    if row.error or row.wall_s <= 0:
        return None
    return row.output_tokens / row.wall_s


def contention(per_task_tok_s: float, serial_per_task_tok_s: float) -> float:
    """Return the share of a request's speed that it loses to those beside it."""
    return 1 - per_task_tok_s / serial_per_task_tok_s


def speedup(serial_wall_s: float, swarm_wall_s: float) -> float:
    """Return how many times sooner the same work is done."""
    return serial_wall_s / swarm_wall_s


def reached(rows: Iterable[RequestRow], concurrency: int) -> ReachedConcurrency:
    """Return the concurrency that rows of one run have reached."""
    # At the same moment an end comes before a beginning.
    changes = sorted(
        change for row in rows if row.wall_s > 0 for change in ((row.sent_s, 1), (row.ended_s, -1))
    )
    in_flight = most = 0
    busy_s = full_s = 0.0
    for (at_s, change), (next_s, _) in pairwise(changes):
        in_flight += change
        most = max(most, in_flight)
        busy_s += in_flight * (next_s - at_s)
        full_s += (next_s - at_s) * (in_flight >= concurrency)
    wall_s = changes[-1][0] - changes[0][0] if changes else 0.0
    if wall_s <= 0:
        return ReachedConcurrency(most=most, mean=0.0, full_share=0.0)
    return ReachedConcurrency(most=most, mean=busy_s / wall_s, full_share=full_s / wall_s)


def level_rates(
    rows: Collection[RequestRow], concurrency: int, serial: LevelRates | None = None
) -> LevelRates:
    """Return the rates of one level; runs of it are not in flight together.

    Args:
        rows: Its rows without warm-ups, at least one.
        concurrency: Requests that were asked for at once.
        serial: Rates of the level with concurrency 1; None: not measured, or these rows are it.
    """
    runs = [[row for row in rows if row.run == run] for run in sorted({row.run for row in rows})]
    walls = [max(r.ended_s for r in run) - min(r.sent_s for r in run) for run in runs]
    wall_s = sum(walls)
    tokens = sum(row.output_tokens for row in rows)
    rates = [rate for row in rows if (rate := request_tok_s(row)) is not None]
    effective = tokens / wall_s if rates and wall_s > 0 else None
    per_task = sum(rates) / len(rates) if rates else None
    return LevelRates(
        concurrency=concurrency,
        reached=_joined([reached(run, concurrency) for run in runs], walls),
        requests=len(rows),
        failed=sum(1 for row in rows if row.error),
        output_tokens=tokens,
        wall_s=wall_s,
        effective_tok_s=effective,
        per_task_tok_s=per_task,
        contention=(
            None
            if serial is None or per_task is None or not serial.per_task_tok_s
            else contention(per_task, serial.per_task_tok_s)
        ),
        speedup=(
            None
            if serial is None or effective is None or not serial.effective_tok_s
            else speedup(tokens / serial.effective_tok_s, wall_s)
        ),
    )


def levels(rows: Collection[RequestRow]) -> Sequence[LevelRates]:
    """Return the rates of each concurrency among rows of one part, the lowest first."""
    asked = sorted({row.concurrency for row in rows})
    found: list[LevelRates] = []
    for concurrency in asked:
        serial = found[0] if found and found[0].concurrency == 1 else None
        these = [row for row in rows if row.concurrency == concurrency]
        found.append(level_rates(these, concurrency, serial))
    return found


def prompt_rates(rows: Iterable[RequestRow]) -> dict[str, float | None]:
    """Return the mean tok/s of each prompt, in the order of the rows; None: all of it failed."""
    rates: dict[str, list[float]] = {}
    for row in rows:
        rate = request_tok_s(row)
        rates.setdefault(row.prompt, []).extend([] if rate is None else [rate])
    return {name: sum(some) / len(some) if some else None for name, some in rates.items()}


def mean_rate(rates: Iterable[float | None]) -> float | None:
    """Return the mean of the rates that there are; None: there is none."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None


def energy_j(reading: BoxGpus | None) -> float | None:
    """Return the sum of the GPUs' energy counters; None: there is no GPU, or one of them has none."""
    counters = [] if reading is None else [gpu.evidence.energy_j for gpu in reading.gpus]
    known = [counter for counter in counters if counter is not None]
    return sum(known) if known and len(known) == len(counters) else None


def joules_per_token(
    before_j: float | None, after_j: float | None, output_tokens: int
) -> float | None:
    """Return the energy of each output token, from a counter of all energy before and after.

    Returns:
        None: a reading is missing, the counter went back (the driver was loaded anew), or no token
            came.
    """
    if before_j is None or after_j is None or after_j < before_j or output_tokens <= 0:
        return None
    return (after_j - before_j) / output_tokens


def _joined(runs: Sequence[ReachedConcurrency], walls: Sequence[float]) -> ReachedConcurrency:
    """Return what several runs have reached, each weighted by its wall time."""
    whole_s = sum(walls)
    if whole_s <= 0:
        return ReachedConcurrency(most=max(r.most for r in runs), mean=0.0, full_share=0.0)
    weighted = list(zip(runs, walls, strict=True))
    return ReachedConcurrency(
        most=max(r.most for r in runs),
        mean=sum(r.mean * wall for r, wall in weighted) / whole_s,
        full_share=sum(r.full_share * wall for r, wall in weighted) / whole_s,
    )


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
