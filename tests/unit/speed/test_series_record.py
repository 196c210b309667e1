"""Record of a series: the level of a session beside the one before it."""

import math

import pytest

from appliance.speed.series_record import (
    SETTLED_AFTER_MIN,
    RestartLevel,
)

START = 29_000_000.0
NOISE = 0.01
WIGGLE = (0.004, -0.006, 0.009, -0.002, 0.0, 0.007, -0.008, 0.001)


def session(
    level: RestartLevel, tok_s: float, *, readings: int = 20, begin: float = START
) -> tuple[RestartLevel, list[float]]:
    """Readings of one session every 15 minutes, and the changes that it tells."""
    level, told = level.restarted(begin), []
    for count in range(readings):
        reading = math.log(tok_s) + WIGGLE[count % len(WIGGLE)]
        level, change = level.after(begin + 15 * (count + 1), reading, NOISE)
        if change is not None:
            told.append(change)
    return level, told


@pytest.mark.parametrize(
    ("before", "now"), [(80.3, 83.0), (83.0, 85.8), (83.0, 80.3), (80.3, 85.8), (85.8, 80.3)]
)
def test_real_levels_of_one_model_are_told(before: float, now: float) -> None:
    """Of 80.3, 83 and 85.8 tok/s each change is told once, with its size."""
    level, told = session(RestartLevel(), before)
    assert told == []
    level, told = session(level, now)
    assert told == [pytest.approx(now / before - 1, abs=0.006)]


@pytest.mark.parametrize("now", [80.3, 81.2, 79.4])
def test_small_changes_are_not_told(now: float) -> None:
    """Sessions that differ by a per cent are noise."""
    level, _ = session(RestartLevel(), 80.3)
    assert session(level, now)[1] == []


def test_noisy_series_need_a_larger_change() -> None:
    """With a noise of 3 % a change of 3.4 % is not told."""
    level, _ = session(RestartLevel(), 80.3)
    level = level.restarted(START)
    for count in range(20):
        level, change = level.after(START + 15 * (count + 1), math.log(83.0), 0.03)
        assert change is None


def test_cold_card_is_not_compared() -> None:
    """Readings of the first hour do not count."""
    level, _ = session(RestartLevel(), 80.3)
    level = level.restarted(START)
    for count in range(30):
        minute = START + SETTLED_AFTER_MIN * count / 30
        level, change = level.after(minute, math.log(84.0), NOISE)
        assert (change, level.now) == (None, ())


def test_short_sessions_are_left_out() -> None:
    """A session of a few readings is compared with none, and the one before it stays known."""
    level, _ = session(RestartLevel(), 80.3)
    level, told = session(level, 85.8, readings=4 + 3)
    assert told == []
    assert session(level, 85.8)[1] == [pytest.approx(85.8 / 80.3 - 1, abs=0.006)]
