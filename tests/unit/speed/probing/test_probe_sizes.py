"""Sizes of a profile's probes."""

import pytest

from appliance.speed.probing.probe_sizes import ProbeSizes, is_much_slower, sizes_for

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
