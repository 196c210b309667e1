"""Sizes of a profile's probes, which stay the same as long as its baseline does.

A long prompt of another size, or in other pieces, would be another prompt with a baseline of its own.
"""

from dataclasses import dataclass, replace
from typing import Final

from appliance.speed.probing.size import output_tokens, prefill_tokens
from appliance.speed.probing.tasks import PREFILL_TOKENS, prefill_name

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
