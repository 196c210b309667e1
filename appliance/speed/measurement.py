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
from dataclasses import dataclass, fields, replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import count
from appliance.model.json_reader import decode_json
from appliance.model.measurements import ProbeOutcome, RawTimings, TimingSource
from appliance.speed.event_stream import DONE, text_of_choice
from appliance.speed.probe_prompts import PieceTimes
from appliance.status.metrics_page import first_of, samples


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounters:
    """Counters of an engine at one moment, named as in `Metrics`; None: the engine has none."""

    finished: float | None
    prefill_s: float | None
    decode_s: float | None
    cached_tokens: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    verify_steps: float | None


_FIELDS: Final = tuple(field.name for field in fields(RequestCounters))
_NAMES: Final[Mapping[str, Sequence[str]]] = {
    field: [name for engine in ENGINES.values() for name in getattr(engine.metrics, field)]
    for field in _FIELDS
}
_WANTED: Final = frozenset(name for names in _NAMES.values() for name in names)


def read_counters(page: str) -> RequestCounters:
    """Return the counters on a page of metrics, each summed over its labels."""
    found = samples(page, _WANTED)
    values = {field: first_of(found, names) for field, names in _NAMES.items()}
    return RequestCounters(**{field: sum(v) if v else None for field, v in values.items()})


def finished_between(before: RequestCounters, after: RequestCounters) -> int | None:
    """Return how many requests ended between two readings; None: the engine does not count them.

    An engine may count a request a moment after the end of its response.
    """
    change = _change(before.finished, after.finished)
    return None if change is None else round(change)


def one_request(before: RequestCounters, after: RequestCounters) -> RequestCounters | None:
    """Return the counters of the only request that ended between two readings.

    None: none ended, or more than one, or the engine was restarted meanwhile.
    """
    if finished_between(before, after) != 1:
        return None
    changes = {f: _change(getattr(before, f), getattr(after, f)) for f in _FIELDS}
    return RequestCounters(**changes)


def _change(before: float | None, after: float | None) -> float | None:
    """Return the growth of a counter; one with labels appears only with its first request."""
    if after is None or after < (before or 0.0):
        return None
    return after - (before or 0.0)


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
    """From the usage, as the next two; None: not told."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    timings: RawTimings | None = None
    """Timings in the response itself; None: it has none."""
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
    pieces: Sequence[PieceTimes] = (),
) -> Measurement:
    """Return what a probe has measured.

    Args:
        stream: Its response.
        ended_s: Time at which the response ended, or was given up.
        wanted_tokens: Number of output tokens that was asked for.
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


def piece_times(stream: ObservedStream, *, ended_s: float) -> PieceTimes | None:
    """Return the times of a piece of a prompt from its response; None: the engine told none.

    Args:
        stream: The response.
        ended_s: Time at which it ended: its only token may have no text.
    """
    raw = None if stream.timings is None else _with_usage(stream.timings, stream)
    if raw is None or raw.cached_tokens is None or raw.prefill_s is None or not stream.ended:
        return None
    return PieceTimes(
        evaluated_tokens=raw.prompt_tokens - raw.cached_tokens,
        cached_tokens=raw.cached_tokens,
        prefill_s=raw.prefill_s,
        ttft_s=(ended_s if stream.first_s is None else stream.first_s) - stream.sent_s,
    )


def _with_pieces(raw: RawTimings, pieces: Sequence[PieceTimes]) -> RawTimings:
    """Return the times of a prompt that was sent in pieces, of which `raw` are the last one's.

    What the cache held counts where this probe did not put it there: before the first piece, or
    between two of them.
    """
    if not pieces or raw.prefill_s is None:
        return raw
    cached, before = 0, 0
    for held, prompt in (*((p.cached_tokens, p.prompt_tokens) for p in pieces), _last_piece(raw)):
        cached, before = cached + max(0, held - before), prompt
    evaluated = before - (raw.cached_tokens or 0) + sum(p.evaluated_tokens for p in pieces)
    pieces_s = sum(piece.ttft_s for piece in pieces)
    return replace(
        raw,
        prompt_tokens=evaluated + cached,
        cached_tokens=cached,
        prefill_s=raw.prefill_s + sum(piece.prefill_s for piece in pieces),
        ttft_s=None if raw.ttft_s is None else raw.ttft_s + pieces_s,
        wall_s=raw.wall_s + pieces_s,
    )


def _last_piece(raw: RawTimings) -> tuple[int, int]:
    """Return the cached tokens of the last request, and its whole prompt's."""
    return raw.cached_tokens or 0, raw.prompt_tokens


def _engine_times(stream: ObservedStream) -> RawTimings | None:
    timings = stream.timings
    if timings is None or timings.output_tokens < _FEWEST_TOKENS or not timings.decode_s:
        return None
    return _with_usage(timings, stream)


def _with_usage(timings: RawTimings, stream: ObservedStream) -> RawTimings:
    """Return an engine's timings; the usage counts the whole prompt where they count what was evaluated."""
    if timings.cached_tokens is not None or stream.prompt_tokens is None:
        return timings
    cached = max(0, stream.prompt_tokens - timings.prompt_tokens)
    return replace(timings, prompt_tokens=timings.prompt_tokens + cached, cached_tokens=cached)


def _metrics_times(stream: ObservedStream, request: RequestCounters | None) -> RawTimings | None:
    output = stream.output_tokens or 0
    if request is None or not request.decode_s or output < _FEWEST_TOKENS:
        return None
    accepted = _whole(request.accepted_tokens)
    if accepted is None and request.verify_steps:
        accepted = max(0, output - 1 - round(request.verify_steps))
    told = stream.cached_tokens
    return RawTimings(
        source=TimingSource.METRICS,
        prompt_tokens=stream.prompt_tokens or 0,
        cached_tokens=_whole(request.cached_tokens) if told is None else told,
        prefill_s=request.prefill_s,
        output_tokens=output,
        decoded_tokens=output - 1,
        decode_s=request.decode_s,
        drafted_tokens=_whole(request.drafted_tokens),
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


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
