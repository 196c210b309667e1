"""Sizes and durations as they are written for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.amounts import age, duration, size, size_change, size_of_total

GIB = 1 << 30


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (0.04, "0.0 s"),
        (47.94, "47.9 s"),
        (99.94, "99.9 s"),
        (99.96, "1 min 40 s"),
        (125, "2 min 5 s"),
        (180, "3 min"),
        (3600, "1 h"),
        (11_520, "3 h 12 min"),
        (12 * 86_400 + 5, "12 d"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    """A duration has at most two units, and a decimal only below 100 seconds."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (12.9, "12 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (2 * 86_400 - 1, "47 h"),
        (2 * 86_400, "2 d"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    """An age has one unit and is never negative, though clocks are."""
    assert age(seconds) == text


@given(st.floats(min_value=0, max_value=1e9))
def test_duration_never_counts_sixty_of_a_unit(seconds: float) -> None:
    """No duration says 60 s or 60 min: the next unit takes over."""
    assert not {"60"} & set(duration(seconds).split()[::2]) or seconds < 100


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (512 << 20, "512 MiB"),
        (int(18.6 * GIB), "18.6 GiB"),
        (3 << 40, "3.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
        (-3 * GIB, "-3.0 GiB"),
    ],
)
def test_size(count_bytes: int, text: str) -> None:
    """A size is in binary units, with a decimal from a GiB on."""
    assert size(count_bytes) == text


def test_a_part_is_in_the_unit_of_its_total() -> None:
    """A part and its total can be compared at a glance."""
    assert size_of_total(512 << 20, 24 * GIB) == "0.5 of 24.0 GiB"


def test_a_change_is_in_the_unit_of_the_larger() -> None:
    """A rest of 12 GiB is written in GiB, in either direction."""
    assert size_change(12.1 * GIB, 0) == "12.1 → 0.0 GiB"
    assert size_change(5 << 20, 12 * GIB) == "0.0 → 12.0 GiB"
    assert size_change(600 << 20, 1 << 20) == "600 → 1 MiB"
