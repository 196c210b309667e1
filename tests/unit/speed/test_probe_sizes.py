"""Sizes of a profile's probes, and the time limits of their requests."""

import pytest

from appliance.model.measurements import ProbeKind
from appliance.speed.probe_sizes import (
    ProbeCourse,
    ProbeSizes,
    is_much_slower,
    output_tokens,
    prefill_tokens,
    sizes_for,
)

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


SIZES = ProbeSizes(long_tokens=512, piece_tokens=64, answer_tokens=128)


@pytest.mark.parametrize(
    ("decode", "prefill", "piece", "name", "answer"),
    [
        (170.0, 4000.0, None, "prefill", 256),
        (80.0, 2000.0, None, "prefill-1024", 128),
        (60.0, 600.0, 16, "prefill-256/p16", 128),
        (2.0, 20.0, 16, "prefill-128/p16", 16),
        (None, None, None, "prefill-128", 16),
    ],
)
def test_sizes_follow_the_rates(
    decode: float | None, prefill: float | None, piece: int | None, name: str, answer: int
) -> None:
    """A fast engine gets whole prompts and answers, a slow one short ones."""
    sizes = sizes_for(900.0, decode, prefill, piece)
    assert (sizes.long_prompt, sizes.answer_tokens) == (name, answer)


def test_long_prompt_that_is_refused_is_halved() -> None:
    """An engine that fails at the long prompt twice in a row gets half of it, 128 tokens at least."""
    sizes = SIZES
    seen = []
    for _ in range(8):
        sizes = sizes.after_long_prompt(failed=True)
        seen.append(sizes.long_tokens)
    assert seen == [512, 256, 256, 128, 128, 128, 128, 128]


def test_single_failures_change_no_size() -> None:
    """A success between two failures begins the count anew."""
    sizes = SIZES
    for failed in (True, False, True, False):
        sizes = sizes.after_long_prompt(failed=failed)
    assert sizes == SIZES


def test_rate_below_half_is_much_slower() -> None:
    """Half the baseline is the limit; without a baseline no rate is slow."""
    assert is_much_slower(19.0, 40.0)
    assert not is_much_slower(21.0, 40.0)
    assert not is_much_slower(None, 40.0)
    assert not is_much_slower(1.0, None)


def course(decode_tok_s: float | None, prefill_tok_s: float | None) -> ProbeCourse:
    return ProbeCourse(
        kind=ProbeKind.SCHEDULED,
        prompts=("lru-cache", "prefill-512/p64"),
        output_tokens=64,
        decode_tok_s=decode_tok_s,
        prefill_tok_s=prefill_tok_s,
    )


def test_the_long_prompt_has_a_short_answer() -> None:
    """Only coding tasks have answers of the course's length."""
    assert course(1.0, 1.0).answer_tokens("lru-cache") == 64
    assert course(1.0, 1.0).answer_tokens("prefill-512/p64") == 8


@pytest.mark.parametrize(
    ("decode_tok_s", "prefill_tok_s", "limit_s"),
    [
        (None, 100.0, 120.0),
        (100.0, None, 120.0),
        (64.0, 300.0, 30.0 + 20 * 2.0),
        (1e9, 1e9, 30.0),
        (0.1, 100.0, 600.0),
    ],
)
def test_a_prompt_is_given_up_after_many_times_its_usual_time(
    decode_tok_s: float | None, prefill_tok_s: float | None, limit_s: float
) -> None:
    """An engine twenty times slower is still measured; no prompt takes more than ten minutes."""
    found = course(decode_tok_s, prefill_tok_s)
    assert found.limit_s("lru-cache") == pytest.approx(limit_s)
    assert found.limit_s("prefill-512/p64") <= 600.0
