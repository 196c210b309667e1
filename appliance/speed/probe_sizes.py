"""Sizes of a profile's probes, and the requests and time limits of one of them.

Probes of any model take less than half a per cent of the time. Their sizes stay the same as long as
the profile's baseline does: a long prompt of another size, or in other pieces, would be another prompt
with a baseline of its own.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from appliance.model.measurements import ProbeKind
from appliance.model.words import Series
from appliance.speed.probe_prompts import PREFILL_TOKENS, prefill_name, series_of

BUDGET_SHARE: Final = 0.005
"""Share of all time that probes of a profile may take together."""
OUTPUT_TOKENS: Final = 256
PREFILL_OUTPUT_TOKENS: Final = 8
"""Length of the answer to the long prompt."""
FEWEST_OUTPUT_TOKENS: Final = 16
"""A model that is too slow for so many is probed less often than in every interval."""
_PREFILL_SHARE: Final = 0.3
"""Share of the budget that is for the long prompt."""
_FEWEST_PREFILL_TOKENS: Final = 128


def output_tokens(interval_s: float, decode_tok_s: float | None, *, prefill_s: float = 0.0) -> int:
    """Return how many tokens to generate: a power of two, 256 if the rate allows.

    Args:
        interval_s: Time from one probe to the next.
        decode_tok_s: Rate of the last probes; None: not known.
        prefill_s: Time of the long prompt in the same interval.
    """
    if decode_tok_s is None:
        return FEWEST_OUTPUT_TOKENS
    share_s = BUDGET_SHARE * interval_s - prefill_s
    return _power_of_two(share_s * decode_tok_s, FEWEST_OUTPUT_TOKENS, OUTPUT_TOKENS)


def prefill_tokens(interval_s: float, prefill_tok_s: float | None, *, most: int) -> int:
    """Return the size of the long prompt: a power of two, about 2000 tokens if the rate allows.

    Each size is a prompt of its own with a baseline of its own, so a profile keeps the size with
    which its baseline was accepted: a slower engine must not get a shorter prompt for it.

    Args:
        interval_s: Time from one probe to the next.
        prefill_tok_s: Rate of the last probes; None: not known.
        most: Tokens that fit into the profile's context beside the answer.
    """
    if prefill_tok_s is None:
        return _FEWEST_PREFILL_TOKENS
    tokens = BUDGET_SHARE * _PREFILL_SHARE * interval_s * prefill_tok_s
    return _power_of_two(min(tokens, most), _FEWEST_PREFILL_TOKENS, PREFILL_TOKENS)


def _power_of_two(value: float, least: int, most: int) -> int:
    """Return the largest power of two up to `value`, which changes less often than a rate does."""
    return max(least, min(most, 1 << max(0, int(max(value, 0.0)).bit_length() - 1)))


_SHARE_OF_BUDGET: Final = 0.6
"""Share of the time for probing that scheduled probes take: the rest is saved for the dozen by which the
detector makes sure of a loss, and for answers that take longer then."""
_REFUSALS: Final = 2
_FEWEST_TOKENS: Final = 128
_MUCH_SLOWER: Final = 0.5
"""Share of the baseline below which answers are cut, and the long prompt is left out: a loss that is
so large is seen all the same, and full probes of a slow engine would use up the time for probing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSizes:
    """Sizes of the prompts and answers of one profile."""

    long_tokens: int
    """Size of the long prompt, about."""
    answer_tokens: int
    """Length of the answers to coding tasks."""
    piece_tokens: int | None = None
    """Size of the long prompt's pieces; None: it is sent in one."""
    refused: int = 0
    """Times in a row that the engine has failed at the long prompt, which may not fit its context."""

    @property
    def long_prompt(self) -> str:
        """Return the name of the long prompt."""
        return prefill_name(self.long_tokens, self.piece_tokens)

    def after_long_prompt(self, *, failed: bool) -> "ProbeSizes":
        """Return the sizes after a long prompt, while no baseline depends on them yet."""
        if not failed:
            return replace(self, refused=0)
        if self.refused + 1 < _REFUSALS or self.long_tokens <= _FEWEST_TOKENS:
            return replace(self, refused=self.refused + 1)
        return replace(self, long_tokens=self.long_tokens // 2, refused=0)


def sizes_for(
    interval_s: float,
    decode_tok_s: float | None,
    prefill_tok_s: float | None,
    piece_tokens: int | None,
) -> ProbeSizes:
    """Return the sizes for rates.

    Args:
        interval_s: Time from one probe to the next.
        decode_tok_s: Tokens a second of the last probe; None: not known, as for the next.
        prefill_tok_s: Prompt tokens a second.
        piece_tokens: Size of the pieces of prompts; None: they are sent in one.
    """
    scheduled_s = _SHARE_OF_BUDGET * interval_s
    tokens = prefill_tokens(scheduled_s, prefill_tok_s, most=PREFILL_TOKENS)
    prefill_s = tokens / prefill_tok_s if prefill_tok_s else 0.0
    return ProbeSizes(
        long_tokens=tokens,
        piece_tokens=piece_tokens,
        answer_tokens=output_tokens(scheduled_s, decode_tok_s, prefill_s=prefill_s),
    )


def is_much_slower(tok_s: float | None, baseline_tok_s: float | None) -> bool:
    """Tell whether a rate is less than half of the baseline; False: one of both is not known."""
    return (
        tok_s is not None and baseline_tok_s is not None and tok_s < _MUCH_SLOWER * baseline_tok_s
    )


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
    """Names of the prompts, in order (`speed.probe_schedule.prompts`)."""
    output_tokens: int
    """Length of the answers to coding tasks (`output_tokens`)."""
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
    """Step of a probe that is shown to a person who waits for it."""

    READING = "reading"
    """The prompt is being evaluated."""
    WRITING = "writing"
    """The answer is being generated."""
    ENDED = "ended"
