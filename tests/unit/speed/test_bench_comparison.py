"""Comparison of two profiles in turns."""

from math import exp, log

import pytest

from appliance.speed.bench_comparison import (
    Agreement,
    RatioInterval,
    Winner,
    agreement,
    block_pairs,
    comparison_verdict,
    pair_log_ratio,
    ratio_interval,
    turns,
)

SAME = Agreement(between=1.0, own=1.0)
FASTER = RatioInterval(ratio=1.2, low=1.1, high=1.3, pairs=4)


def test_blocks_are_in_turns() -> None:
    """Each second sweep has the other order, and each sweep gives a pair with the first profile."""
    assert turns(2, 1) == [0, 1, 1, 0]
    assert turns(2, 2) == [0, 1, 1, 0, 1, 0, 0, 1]
    assert turns(3, 1) == [0, 1, 2, 2, 1, 0]
    assert turns(1, 2) == [0]
    assert block_pairs(turns(2, 1), 1) == [(0, 1), (3, 2)]
    assert block_pairs(turns(3, 1), 2) == [(0, 2), (5, 3)]


def test_blocks_that_are_missing_make_no_pair() -> None:
    """A bench that was cut short has the pairs that were complete."""
    assert block_pairs([0, 1, 1], 1) == [(0, 1)]


def test_pair_is_the_mean_over_its_prompts() -> None:
    """Prompts that one of the blocks has no rate of are left out."""
    first = {"x": 10.0, "y": 20.0, "z": None, "w": 5.0}
    second = {"x": 11.0, "y": 24.0, "z": 9.0, "w": None}
    found = pair_log_ratio(first, second)
    assert found == pytest.approx((log(1.1) + log(1.2)) / 2)
    assert pair_log_ratio({"z": None}, second) is None


def test_interval_is_students() -> None:
    """Four pairs with a mean log ratio of 0.1 and a deviation of 0.02 have t = 3.182."""
    deviation = 0.02
    ratios = [0.1 - deviation, 0.1 + deviation, 0.1 - deviation, 0.1 + deviation]
    found = ratio_interval(ratios)
    assert found is not None
    sample_deviation = (4 / 3) ** 0.5 * deviation
    half = 3.182 * sample_deviation / 2
    assert found.ratio == pytest.approx(exp(0.1))
    assert found.low == pytest.approx(exp(0.1 - half))
    assert found.high == pytest.approx(exp(0.1 + half))
    assert found.pairs == 4


def test_few_and_many_pairs() -> None:
    """No pair gives nothing, one no interval, and many one that is as narrow as it may be."""
    assert ratio_interval([]) is None
    one = ratio_interval([0.1])
    assert one == RatioInterval(ratio=exp(0.1), low=None, high=None, pairs=1)
    many = ratio_interval([0.0, 0.2] * 20)
    assert many is not None
    assert many.low is not None
    assert many.low > 1.06


def test_agreement_is_measured_against_repetition() -> None:
    """Answers of each profile are compared with the other's and with its own of other blocks."""
    a, b = {"x": "1", "y": "2"}, {"x": "1", "y": "3"}
    assert agreement([a, a], [b, b]) == Agreement(between=0.5, own=1.0)
    other = {"x": "1", "y": "9"}
    assert agreement([a, other], [b, b]) == Agreement(between=0.5, own=0.5)


def test_empty_answers_agree_with_nothing() -> None:
    """An engine that answers with nothing does not repeat itself either."""
    empty = {"x": ""}
    assert agreement([empty], [empty]) == Agreement(between=0.0, own=None)
    assert agreement([{}], [{}]) == Agreement(between=None, own=None)


@pytest.mark.parametrize(
    ("interval", "alike", "winner", "word"),
    [
        (FASTER, SAME, Winner.SECOND, "b is faster and answers the same"),
        (
            RatioInterval(ratio=0.8, low=0.7, high=0.9, pairs=4),
            SAME,
            Winner.FIRST,
            "a is faster and",
        ),
        (
            FASTER,
            Agreement(between=0.8, own=1.0),
            Winner.NEITHER,
            "b is faster, but only 80% of the answers are the same, where each repeats 100%",
        ),
        (FASTER, Agreement(between=0.5, own=0.55), Winner.SECOND, "b is faster"),
        (FASTER, Agreement(between=0.8, own=None), Winner.NEITHER, "only 80% of the answers"),
        (FASTER, Agreement(between=None, own=None), Winner.NEITHER, "no answers were compared"),
        (
            RatioInterval(ratio=1.2, low=0.9, high=1.5, pairs=4),
            SAME,
            Winner.NEITHER,
            "includes no difference",
        ),
        (
            RatioInterval(ratio=1.2, low=None, high=None, pairs=1),
            SAME,
            Winner.NEITHER,
            "more --runs",
        ),
        (None, SAME, Winner.NEITHER, "nothing was measured"),
    ],
)
def test_verdict(
    interval: RatioInterval | None, alike: Agreement, winner: Winner, word: str
) -> None:
    """A profile wins if it is faster beyond doubt and not wrong."""
    found = comparison_verdict(("a", "b"), interval, alike)
    assert found.winner is winner
    assert word in found.why


def test_agreement_that_was_not_measured_does_not_hold() -> None:
    """Without answers nothing shows that two profiles agree."""
    assert not Agreement(between=None, own=1.0).holds
