"""Rates derived from the raw times of a probe."""

import pytest

from appliance.model.measurements import (
    RawTimings,
    TimingSource,
    decode_steps_per_s,
    decode_tok_s,
    prefill_tok_s,
    rate_of,
    tokens_per_step,
)
from appliance.model.words import Series


def raw(
    *,
    decoded_tokens: int = 256,
    decode_s: float | None = 4.0,
    accepted_tokens: int | None = None,
    cached_tokens: int | None = 0,
    prefill_s: float | None = 0.5,
) -> RawTimings:
    """Return the times of a request with 2,000 prompt tokens."""
    return RawTimings(
        source=TimingSource.ENGINE,
        prompt_tokens=2000,
        cached_tokens=cached_tokens,
        prefill_s=prefill_s,
        output_tokens=256,
        decoded_tokens=decoded_tokens,
        decode_s=decode_s,
        accepted_tokens=accepted_tokens,
    )


def test_without_drafts_a_step_makes_one_token() -> None:
    """Steps a second are tokens a second when nothing was drafted, or nothing stood."""
    assert decode_tok_s(raw()) == 64.0
    assert decode_steps_per_s(raw()) == decode_steps_per_s(raw(accepted_tokens=0)) == 64.0


def test_accepted_drafts_make_fewer_steps() -> None:
    """Of 256 tokens with 192 accepted drafts, 64 steps were made: the step rate is not the token rate."""
    drafted = raw(accepted_tokens=192)
    assert tokens_per_step(drafted) == 4.0
    assert decode_steps_per_s(drafted) == 16.0


def test_impossible_counts_of_drafts_are_not_used() -> None:
    """Tokens count as one a step where the engine says that more drafts stood than there are tokens."""
    assert tokens_per_step(raw(accepted_tokens=300)) == 1.0


@pytest.mark.parametrize("decode_s", [None, 0.0, -1.0])
def test_a_decode_that_was_not_timed_has_no_rate(decode_s: float | None) -> None:
    """Missing, zero and negative times are no measurement."""
    assert decode_tok_s(raw(decode_s=decode_s)) is None
    assert decode_steps_per_s(raw(decode_s=decode_s)) is None


def test_no_token_has_no_rate() -> None:
    """A response without tokens has no decode rate."""
    assert decode_tok_s(raw(decoded_tokens=0)) is None


def test_cached_tokens_are_not_evaluated() -> None:
    """The prefill rate counts the tokens that the prefix cache did not hold."""
    assert prefill_tok_s(raw()) == prefill_tok_s(raw(cached_tokens=None)) == 4000.0
    assert prefill_tok_s(raw(cached_tokens=1000)) == 2000.0
    assert prefill_tok_s(raw(cached_tokens=2000)) is None


@pytest.mark.parametrize("prefill_s", [None, 0.0, -1.0])
def test_a_prefill_that_was_not_timed_has_no_rate(prefill_s: float | None) -> None:
    """Missing, zero and negative times are no measurement."""
    assert prefill_tok_s(raw(prefill_s=prefill_s)) is None


def test_each_series_has_its_rate() -> None:
    """The series of decode counts steps, that of prefill prompt tokens."""
    drafted = raw(accepted_tokens=192)
    assert rate_of(Series.DECODE, drafted) == 16.0
    assert rate_of(Series.PREFILL, drafted) == 4000.0
