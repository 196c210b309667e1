"""Sizes of a probe's requests."""

import pytest

from appliance.speed.probing.size import output_tokens, prefill_tokens

INTERVAL_S = 900.0


@pytest.mark.parametrize(
    ("rate", "tokens"),
    [(None, 16), (0.1, 16), (4.0, 16), (15.0, 64), (57.0, 256), (5000.0, 256)],
)
def test_a_slow_model_generates_fewer_tokens(rate: float | None, tokens: int) -> None:
    """The answer takes less than half a per cent of the interval, down to 16 tokens."""
    assert output_tokens(INTERVAL_S, rate) == tokens
    assert rate is None or tokens == 16 or tokens / rate <= 0.005 * INTERVAL_S


def test_the_long_prompt_leaves_less_for_the_answer() -> None:
    """Both together take no more than half a per cent of the interval."""
    assert output_tokens(INTERVAL_S, 57.0, prefill_s=1.3) == 128
    assert output_tokens(INTERVAL_S, 57.0, prefill_s=9.0) == 16


@pytest.mark.parametrize(
    ("rate", "most", "tokens"),
    [
        (None, 4000, 128),
        (287.0, 4000, 256),
        (1600.0, 4000, 2048),
        (1600.0, 700, 512),
        (1.0, 4000, 128),
    ],
)
def test_a_slow_model_gets_a_shorter_prompt(rate: float | None, most: int, tokens: int) -> None:
    """The long prompt takes 30 % of the budget, and fits into the context."""
    assert prefill_tokens(INTERVAL_S, rate, most=most) == tokens
