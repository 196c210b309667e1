"""Pieces of a probe's prompt."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.speed.probing.pieces import (
    FEWEST_PIECE_TOKENS,
    MOST_PIECE_S,
    PieceSize,
    PieceTimes,
    continues,
    crowd_text,
    prefixes,
)
from appliance.speed.probing.tasks import CODING_TASKS, prompt_text


def piece(evaluated: int, cached: int = 0, *, prefill_s: float = 0.01) -> PieceTimes:
    return PieceTimes(
        evaluated_tokens=evaluated, cached_tokens=cached, prefill_s=prefill_s, ttft_s=prefill_s
    )


def searched(tok_s: float, overhead_s: float = 0.0) -> tuple[int, float]:
    """Return the size that a search finds for an engine, and the longest piece on the way."""
    size, longest_s = PieceSize(), 0.0
    while not size.settled:
        took_s = overhead_s + size.tokens / tok_s
        longest_s = max(longest_s, took_s)
        size = size.after(piece(size.tokens, prefill_s=took_s))
    assert size.after(piece(1, prefill_s=9.0)) == size
    return size.tokens, longest_s


def test_a_slow_engine_gets_small_pieces() -> None:
    """The size is the largest power of two that takes 20 ms, at least 2 tokens."""
    assert searched(1500.0) == (16, 32 / 1500.0)
    assert searched(300.0) == (4, 16 / 300.0)
    assert searched(140.0)[0] == FEWEST_PIECE_TOKENS
    assert searched(20.0)[0] == FEWEST_PIECE_TOKENS
    assert searched(1100.0, overhead_s=0.01)[0] == 8


def test_a_fast_engine_gets_one_piece() -> None:
    """A GPU that evaluates 2048 tokens in 20 ms gets them at once."""
    assert searched(110_000.0)[0] == 2048
    assert searched(6000.0, overhead_s=0.004)[0] == 64


@given(st.floats(min_value=800.0, max_value=1e6), st.floats(min_value=0.0, max_value=0.01))
def test_the_search_delays_nobody_for_long(tok_s: float, overhead_s: float) -> None:
    """No piece of a search takes more than 30 ms where the first takes less."""
    tokens, longest_s = searched(tok_s, overhead_s)
    assert longest_s <= 0.03
    assert tokens == FEWEST_PIECE_TOKENS or overhead_s + tokens / tok_s <= MOST_PIECE_S


@pytest.mark.parametrize("tokens", [2, 4, 32])
def test_prefixes_grow_by_a_piece_each(tokens: int) -> None:
    """Each is the beginning of the prompt, and adds a piece at most, of whole words where they fit."""
    for name in (*CODING_TASKS, "prefill-512"):
        text = prompt_text(name, "01234567")
        found = ["", *prefixes(text, tokens), text]
        assert len(found) > 3
        for shorter, longer in itertools.pairwise(found):
            assert longer.startswith(shorter)
            added = longer[len(shorter) :]
            assert 0 < len(added) <= 3 * tokens
            is_whole = longer == text or text[len(longer)] in " \n"
            assert is_whole or not (set(added[1:]) & set(" \n"))


def test_a_prompt_that_fits_into_a_piece_has_no_prefixes() -> None:
    """One request is enough, and a text without spaces is cut anywhere."""
    assert prefixes("short", 16) == []
    assert prefixes("x" * 100, 16) == ["x" * 48, "x" * 96]


def test_a_piece_goes_on_where_the_one_before_ended() -> None:
    """An engine uses all but the last word again; one that begins anew is found out."""
    assert continues(piece(200, 0), piece(40, 199))
    assert not continues(piece(200, 0), piece(240, 0))
    assert not continues(piece(40, 193), piece(180, 93))
    assert continues(piece(6), piece(6, 4))
    assert not continues(piece(6), piece(10, 0))


@pytest.mark.parametrize(
    ("share", "cpus", "is_crowded"),
    [
        (None, 2, False),
        (0.2, 2, False),
        (0.3, 2, True),
        (1.0, 1, True),
        (0.12, 8, True),
        (0.09, 64, False),
        (0.11, 64, True),
    ],
)
def test_others_that_may_make_steps_long(share: float | None, cpus: int, is_crowded: bool) -> None:  # noqa: FBT001
    """Half a core counts on a small box, a tenth on a large one, and nothing where it is not known."""
    assert bool(crowd_text(share, cpus)) is is_crowded
