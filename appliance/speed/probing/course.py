"""Course of one probe: what the prober is to ask a profile, and how it goes on."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.model.measurements import ProbeKind
from appliance.model.words import Series
from appliance.speed.probing.size import PREFILL_OUTPUT_TOKENS
from appliance.speed.probing.tasks import PREFILL_TOKENS, series_of

_UNKNOWN_S: Final = 120.0
"""Limit where no rate is known: the first requests after a start may compile kernels, and take up
to 195 times as long as later ones to their first token."""
_LEAST_S: Final = 30.0
_MOST_S: Final = 600.0
_TIMES_SLOWER: Final = 20
"""A probe must still measure an engine that has become so many times slower."""
_MOST_CODING_TOKENS: Final = 300
"""Size of the longest coding task with its template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCourse:
    """Requests of one probe of a profile."""

    kind: ProbeKind
    prompts: tuple[str, ...]
    """Names of the prompts, in order (`speed.probing.schedule.prompts`)."""
    output_tokens: int
    """Length of the answers to coding tasks (`speed.probing.size.output_tokens`)."""
    decode_tok_s: float | None = None
    """Rate of the last probes, as the next; None: not known."""
    prefill_tok_s: float | None = None
    started_unix_s: float | None = None
    """Start of the engine: what the prober learned of it holds as long; None: not known."""

    def answer_tokens(self, prompt: str) -> int:
        """Return the length of the answer to a prompt."""
        decodes = series_of(prompt) is Series.DECODE
        return self.output_tokens if decodes else PREFILL_OUTPUT_TOKENS

    def limit_s(self, prompt: str) -> float:
        """Return the time after which a prompt is given up."""
        if not self.decode_tok_s or not self.prefill_tok_s:
            return _UNKNOWN_S
        decodes = series_of(prompt) is Series.DECODE
        prompt_tokens = _MOST_CODING_TOKENS if decodes else PREFILL_TOKENS
        expected_s = (
            prompt_tokens / self.prefill_tok_s + self.answer_tokens(prompt) / self.decode_tok_s
        )
        return min(_MOST_S, _LEAST_S + _TIMES_SLOWER * expected_s)


class ProbeStep(StrEnum):
    """Step of a probe that is told to a person who waits for it."""

    READING = "reading"
    """The prompt is being evaluated."""
    WRITING = "writing"
    """The answer is being generated."""
    ENDED = "ended"
