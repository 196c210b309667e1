"""The detector of a lost pass rate."""

import random
from itertools import count

import pytest

from appliance.speed.quality.pass_rate import PassRate, QualityChange

HOUR_S = 3600.0


def run(
    state: PassRate, passes: str, begin_s: float = 0.0, gap_s: float = HOUR_S
) -> list[tuple[int, str]]:
    """Feed passes (1) and faults (0); returns the changes with the number of their runs."""
    found = []
    for number, letter in enumerate(passes):
        change = state.step(begin_s + number * gap_s, passed=letter == "1", fault="broken")
        if change is not None:
            found.append((number, change.value))
    return found


def is_lost(state: PassRate) -> bool:
    return state.lost_unix_s is not None


def test_lost_and_recovered() -> None:
    """A group that only fails is lost at its eighth fault, and recovers with 48 passes in a row."""
    state = PassRate(group="tools")
    assert run(state, "1" * 50 + "0" * 10) == [(57, "lost")]
    assert state.lost_unix_s == 50 * HOUR_S
    assert state.fault == "broken"
    assert run(state, "1" * 60, 100 * HOUR_S) == [(47, "recovered")]
    assert state.lost_unix_s is None


def test_bad_moment() -> None:
    """An hour in which everything fails is no loss, three such hours are."""
    state = PassRate(group="tools")
    assert run(state, "0" * 60, gap_s=60.0) == []
    assert run(state, "1" * 70 + "0", 3600.0, gap_s=60.0) == []
    assert run(PassRate(group="tools"), "0" * 200, gap_s=60.0) == [(121, "lost")]


def test_clock_set() -> None:
    """A clock that is set back or ahead begins another hour, and no loss by itself."""
    state = PassRate(group="tools")
    assert run(state, "0" * 5, 1_000_000.0, gap_s=60.0) == []
    assert run(state, "0" * 5, 0.0, gap_s=60.0) == []
    assert run(state, "0" * 5, 5_000_000.0, gap_s=60.0) == [(1, "lost")]


def test_wants_more() -> None:
    """Further rounds are wanted after a fault until four passes, and on the way to a recovery."""
    state = PassRate(group="tools")
    assert not state.wants_more
    run(state, "0")
    wanted = [state.wants_more, *(run(state, "1") == [] and state.wants_more for _ in range(6))]
    assert wanted == [True] * 5 + [False] * 2
    run(state, "0" * 10)
    assert state.lost_unix_s is not None
    assert not state.wants_more
    run(state, "1" * 4)
    assert state.wants_more


@pytest.mark.parametrize(("share", "limit"), [(0.38, 48), (1.0, 10)])
def test_found_within_a_day(share: float, limit: int) -> None:
    """A share of 38 % of two runs an hour is found within a day in 97 of 100 series."""
    late = 0
    for seed in range(200):
        state, chance = PassRate(group="schema"), random.Random(seed)  # noqa: S311 - a simulation
        for number in range(limit):
            passed = chance.random() >= share
            if state.step(number * HOUR_S / 2, passed=passed) is QualityChange.LOST:
                break
        else:
            late += 1
    assert late <= 6


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_healthy(share: float) -> None:
    """A year of four runs an hour with 2 % of faults is no loss."""
    state, chance = PassRate(group="tools"), random.Random(7)  # noqa: S311 - a simulation
    changes = [
        state.step(number * HOUR_S / 4, passed=chance.random() >= share)
        for number in range(4 * 8766)
    ]
    assert set(changes) == {None}
    assert state.pass_share is not None
    assert state.pass_share >= 0.9


def test_accept() -> None:
    """An accepted level is healthy from then on, and a worse one is lost again."""
    state = PassRate(group="tools")
    assert state.accept() is None
    run(state, "110" * 30)
    assert is_lost(state)
    faults = state.accept()
    assert faults == pytest.approx(1 / 3)
    assert not is_lost(state)
    assert run(state, "110" * 300, 1e6) == []
    assert state.accept() is None
    assert [change for _, change in run(state, "001" * 60, 1e7)] == ["lost"]


def test_accepted_worst() -> None:
    """A level at which hardly anything passes is accepted as one of 60 % of faults."""
    state = PassRate(group="tools")
    assert state.pass_share is None
    run(state, "0" * 60)
    assert state.accept() == 0.6
    numbers = count()
    while state.step(1e6 + next(numbers) * HOUR_S, passed=False) is None:
        assert next(numbers) < 1000
