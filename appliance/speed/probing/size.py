"""Sizes of a probe's requests, so that probes of any model take less than half a per cent of time."""

from typing import Final

from appliance.speed.probing.tasks import PREFILL_TOKENS

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
