"""Raw row of one request of a bench, and the observer that makes it from the response.

Rows hold times and counts, never a text of a prompt or an answer. Every figure of a bench is
computed from its rows, by `rates` and `latencies`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from appliance.speed.probing.event_stream import EventStreamParser
from appliance.speed.probing.measurement import ObservedStream

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLabel:
    """Place of a request in its bench."""

    profile: str
    part: Part
    run: int
    concurrency: int
    prompt: str
    depth: int = 0


class ResponseObserver:
    """Observer of one response, from its bytes as they arrive.

    Args:
        label: Place of the request in its bench.
        keep_text: Whether to keep the answer, to compare it with another.
    """

    def __init__(self, label: RequestLabel, *, keep_text: bool = False) -> None:
        self._label = label
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
        stream, label = self._stream, self._label
        timings = stream.timings
        output = stream.output_tokens
        if output is None and timings is not None:
            output = timings.output_tokens
        error = fault or self._fault(output)
        evaluated = (
            0 if timings is None else timings.evaluated_tokens + (timings.cached_tokens or 0)
        )
        cached = stream.cached_tokens
        if cached is None and timings is not None:
            cached = timings.cached_tokens
        return RequestRow(
            profile=label.profile,
            part=label.part,
            run=label.run,
            concurrency=label.concurrency,
            prompt=label.prompt,
            depth=label.depth,
            sent_s=sent_s,
            arrivals_s=tuple(self._arrivals),
            ended_s=ended_s,
            input_tokens=evaluated if stream.prompt_tokens is None else stream.prompt_tokens,
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
