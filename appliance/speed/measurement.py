"""Measurement of one probe: raw times from the best source, and the outcome.

Sources, best first:

- the timings in the engine's response
- the growth of the engine's metrics, if exactly one request ended meanwhile; they are looked for by the
  names of all engines, since the program of a ``command`` may be any of them
- the arrival of the response, with the number of tokens from its usage: events are never counted,
  since one may hold several tokens, or none

Decode time always runs from the first token to the last, and covers one token fewer than came.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import count
from appliance.model.json_reader import decode_json
from appliance.model.measurements import (
    RawTimings,
    TimingSource,
)
from appliance.model.words import ProbeOutcome
from appliance.speed.event_stream import DONE, text_of_choice
from appliance.status.engine_load import first_of, samples

RequestCounters = Mapping[str, float]
"""Counters of an engine at one moment by the field of `Metrics` that names them; those that it lacks are
absent."""
_COUNTED: Final = (
    *("finished", "prefill_s", "decode_s", "cached_tokens"),
    *("drafted_tokens", "accepted_tokens", "verify_steps"),
)
_NAMES: Final[Mapping[str, Sequence[str]]] = {
    field: [name for engine in ENGINES.values() for name in getattr(engine.metrics, field)]
    for field in _COUNTED
}
_WANTED: Final = frozenset(name for names in _NAMES.values() for name in names)


def read_counters(page: str) -> RequestCounters:
    """Return the counters on a page of metrics, each summed over its labels."""
    found = samples(page, _WANTED)
    values = {field: first_of(found, names) for field, names in _NAMES.items()}
    return {field: sum(some) for field, some in values.items() if some}


def finished_between(before: RequestCounters, after: RequestCounters) -> int | None:
    """Return how many requests ended between two readings; None: the engine does not count them.

    An engine may count a request a moment after the end of its response.
    """
    finished = _growth(before, after).get("finished")
    return None if finished is None else round(finished)


def one_request(before: RequestCounters, after: RequestCounters) -> RequestCounters | None:
    """Return the counters of the only request that ended between two readings.

    None: none ended, or more than one, or the engine was restarted meanwhile.
    """
    return _growth(before, after) if finished_between(before, after) == 1 else None


def _growth(before: RequestCounters, after: RequestCounters) -> RequestCounters:
    """Return how far each counter has grown; one with labels appears only with its first request."""
    since = {field: before.get(field, 0.0) for field in after}
    return {field: now - since[field] for field, now in after.items() if now >= since[field]}


MOST_CACHED: Final = 0.05
"""Share of a prompt that the prefix cache may hold: the beginning that a chat template writes
before every prompt."""
_READERS: Final = tuple(dict.fromkeys(engine.probing.timings for engine in ENGINES.values()))
_MOST_CLOCK_STEP_S: Final = 0.25
_MOST_CLOCK_SLEW: Final = 0.01
"""Limits of what NTP does to a clock that is about right, as a step and as a share of the time."""
_FEWEST_TOKENS: Final = 2


@dataclass(slots=True, kw_only=True)
class ObservedStream:
    """Response of one probe, from its events as they arrive; times are monotonic."""

    sent_s: float
    first_s: float | None = None
    """Arrival of the first event with text; None: none yet."""
    last_s: float | None = None
    text: str = ""
    """Text of the last event with text."""
    prompt_tokens: int | None = None
    """From the usage, as the next two; None: not in it."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    timings: RawTimings | None = None
    """By the engine itself; None: not in the response."""
    ended: bool = False
    """Whether the engine has ended the response."""
    failed: bool = False
    """Whether an error event has come."""

    def take(self, data: bytes, at_s: float) -> None:
        """Read the data of one event that arrived at `at_s`; what is no JSON object is ignored."""
        if data == DONE:
            self.ended = True
            return
        try:
            event = decode_json(data)
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        if event.get("error") is not None:
            self.failed = True
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict):
            self._take_choice(choice, at_s)
        if isinstance(event.get("usage"), dict):
            self._take_usage(event["usage"])
        found = (read(event) for read in _READERS)
        self.timings = next((t for t in found if t is not None), self.timings)

    def _take_choice(self, choice: Mapping[str, object], at_s: float) -> None:
        self.ended = self.ended or choice.get("finish_reason") is not None
        if text := text_of_choice(choice):
            self.text = text
            self.first_s = at_s if self.first_s is None else self.first_s
            self.last_s = at_s

    def _take_usage(self, usage: Mapping[str, object]) -> None:
        self.prompt_tokens = count(usage.get("prompt_tokens"))
        self.output_tokens = count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        self.cached_tokens = (
            count(details.get("cached_tokens")) if isinstance(details, dict) else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Outcome of a probe, and its raw times."""

    outcome: ProbeOutcome
    detail: str = ""
    """Short text for people; empty for a valid probe."""
    raw: RawTimings | None = None
    """None: nothing was measured."""


def measure(
    stream: ObservedStream,
    *,
    ended_s: float,
    wanted_tokens: int,
    too_long: bool = False,
    before: RequestCounters | None = None,
    after: RequestCounters | None = None,
    pieces: Sequence[RawTimings] = (),
) -> Measurement:
    """Return what a probe has measured.

    Args:
        stream: Its response.
        ended_s: Time at which the response ended, or was given up.
        wanted_tokens: Number of output tokens that was requested.
        too_long: Whether the response was given up for its time or its size.
        before: Counters of the engine before the request; None: not read.
        after: Counters of the engine after the response.
        pieces: Pieces of the prompt that were sent before it.
    """
    if stream.failed:
        return Measurement(outcome=ProbeOutcome.FAILED, detail="the response ended with an error")
    if too_long:
        return Measurement(
            outcome=ProbeOutcome.TOO_LONG, detail=f"no end within {ended_s - stream.sent_s:.1f} s"
        )
    if not stream.ended:
        return Measurement(outcome=ProbeOutcome.FAILED, detail="the response broke off")
    request = None if before is None or after is None else one_request(before, after)
    raw = _engine_times(stream) or _metrics_times(stream, request) or _stream_times(stream)
    if raw is None:
        return _unmeasured(stream.output_tokens, wanted_tokens)
    ttft_s = None if stream.first_s is None else stream.first_s - stream.sent_s
    raw = replace(raw, ttft_s=ttft_s, wall_s=ended_s - stream.sent_s)
    return _judged(_with_pieces(raw, pieces), wanted_tokens)


def piece_times(stream: ObservedStream, *, ended_s: float) -> RawTimings | None:
    """Return the times of a piece of a prompt from its response; None: the engine's timings lack some.

    Args:
        stream: The response.
        ended_s: Time at which it ended: its only token may have no text.
    """
    raw = _timings(stream)
    if raw is None or raw.cached_tokens is None or not stream.ended:
        return None
    first_s = ended_s if stream.first_s is None else stream.first_s
    return replace(raw, ttft_s=first_s - stream.sent_s)


def _with_pieces(raw: RawTimings, pieces: Sequence[RawTimings]) -> RawTimings:
    """Return the times of a prompt that was sent in pieces, of which `raw` are the last one's.

    What the cache held counts where this probe did not put it there: before the first piece, or
    between two of them.
    """
    if not pieces or raw.prefill_s is None:
        return raw
    requests = (*pieces, raw)
    cached, before = 0, 0
    for request in requests:
        cached += max(0, (request.cached_tokens or 0) - before)
        before = request.prompt_tokens
    pieces_s = sum(piece.ttft_s or 0.0 for piece in pieces)
    return replace(
        raw,
        prompt_tokens=cached + sum(request.evaluated_tokens for request in requests),
        cached_tokens=cached,
        prefill_s=raw.prefill_s + sum(piece.prefill_s or 0.0 for piece in pieces),
        ttft_s=None if raw.ttft_s is None else raw.ttft_s + pieces_s,
        wall_s=raw.wall_s + pieces_s,
    )


def _engine_times(stream: ObservedStream) -> RawTimings | None:
    raw = _timings(stream)
    return raw if raw is not None and raw.decoded_tokens > 0 and raw.decode_s else None


def _timings(stream: ObservedStream) -> RawTimings | None:
    """Return the engine's timings; the usage counts the whole prompt where they count what was evaluated."""
    raw, prompt_tokens = stream.timings, stream.prompt_tokens
    if raw is None or raw.cached_tokens is not None or prompt_tokens is None:
        return raw
    cached = max(0, prompt_tokens - raw.prompt_tokens)
    return replace(raw, prompt_tokens=raw.prompt_tokens + cached, cached_tokens=cached)


def _metrics_times(stream: ObservedStream, request: RequestCounters | None) -> RawTimings | None:
    output = stream.output_tokens or 0
    if request is None or not request.get("decode_s") or output < _FEWEST_TOKENS:
        return None
    counted = {name: round(value) for name, value in request.items() if name.endswith("_tokens")}
    accepted, steps = counted.get("accepted_tokens"), request.get("verify_steps")
    if accepted is None and steps:
        accepted = max(0, output - 1 - round(steps))
    cached = stream.cached_tokens
    return RawTimings(
        source=TimingSource.METRICS,
        prompt_tokens=stream.prompt_tokens or 0,
        cached_tokens=counted.get("cached_tokens") if cached is None else cached,
        prefill_s=request.get("prefill_s"),
        output_tokens=output,
        decoded_tokens=output - 1,
        decode_s=request["decode_s"],
        drafted_tokens=counted.get("drafted_tokens"),
        accepted_tokens=accepted,
    )


def _stream_times(stream: ObservedStream) -> RawTimings | None:
    output, first_s, last_s = stream.output_tokens or 0, stream.first_s, stream.last_s
    if output < _FEWEST_TOKENS or first_s is None or last_s is None or last_s <= first_s:
        return None
    return RawTimings(
        source=TimingSource.STREAM,
        prompt_tokens=stream.prompt_tokens or 0,
        cached_tokens=stream.cached_tokens,
        prefill_s=first_s - stream.sent_s,
        output_tokens=output,
        decoded_tokens=output - 1,
        decode_s=last_s - first_s,
    )


def _unmeasured(output_tokens: int | None, wanted_tokens: int) -> Measurement:
    if output_tokens is None:
        return Measurement(
            outcome=ProbeOutcome.UNMEASURED, detail="the response has neither timings nor usage"
        )
    if output_tokens < wanted_tokens:
        return _ended_early(output_tokens, wanted_tokens)
    return Measurement(
        outcome=ProbeOutcome.UNMEASURED,
        detail="the engine tells no timings, and its text arrived all at once",
    )


def _ended_early(
    output_tokens: int, wanted_tokens: int, raw: RawTimings | None = None
) -> Measurement:
    return Measurement(
        outcome=ProbeOutcome.ENDED_EARLY,
        detail=f"{output_tokens} of {wanted_tokens} tokens",
        raw=raw,
    )


def _judged(raw: RawTimings, wanted_tokens: int) -> Measurement:
    if raw.output_tokens < wanted_tokens:
        return _ended_early(raw.output_tokens, wanted_tokens, raw)
    cached = raw.cached_tokens or 0
    if cached > MOST_CACHED * raw.prompt_tokens:
        return Measurement(
            outcome=ProbeOutcome.CACHED,
            detail=f"the prefix cache held {cached} of {raw.prompt_tokens} prompt tokens",
            raw=raw,
        )
    return Measurement(outcome=ProbeOutcome.VALID, raw=raw)


def clock_moved(*, monotonic_s: float, wall_s: float, boot_s: float) -> bool:
    """Tell whether the box was suspended or its clock set, from one time by three clocks.

    CLOCK_BOOTTIME goes on while the box is suspended, CLOCK_MONOTONIC stands still, and
    CLOCK_REALTIME can be set (clock_gettime(2)).
    """
    limit_s = _MOST_CLOCK_STEP_S + _MOST_CLOCK_SLEW * monotonic_s
    return abs(boot_s - monotonic_s) > limit_s or abs(wall_s - monotonic_s) > limit_s
