"""Benign model: what it follows, and its bounds."""

import math

import pytest

from appliance.speed.regression import thresholds
from appliance.speed.regression.benign import BenignModel

DAY = thresholds.DAY_MIN


def test_baseline_of_one_prompt_is_the_median() -> None:
    """One outlier does not move the baseline of one prompt, whose offset is none."""
    model = BenignModel.of_readings({"one": [4.0, 4.01, 4.02, 3.0, 4.01]})
    assert model.baseline == pytest.approx(4.01)
    assert model.prompts == {"one": 0.0}


def test_offset_of_a_prompt_is_bounded() -> None:
    """Of a prompt that is 10 % slower than another, 3 % count as its offset."""
    model = BenignModel.of_readings({"one": [4.0] * 3, "two": [3.8] * 3})
    assert model.prompts == {"one": thresholds.PROMPT_SPAN, "two": -thresholds.PROMPT_SPAN}


def test_one_prompt_with_bad_readings_hardly_moves_the_baseline() -> None:
    """Of five prompts, one that was measured beside other load costs the baseline less than 1 %."""
    good = {name: [4.0, 4.01, 3.99] for name in ("one", "two", "three", "four")}
    model = BenignModel.of_readings({**good, "five": [3.6, 3.7, 3.5]})
    assert model.baseline == pytest.approx(4.0, abs=0.01)
    assert sum(model.prompts.values()) == pytest.approx(0)


def test_level_is_followed_within_its_bound() -> None:
    """A level that stays 3 % lower is absorbed up to 1.5 %."""
    model = BenignModel()
    for count in range(3000):
        minute = 15.0 * count
        model.follow(minute, model.residual(minute, -0.03, "one"), "one")
    assert model.offset == pytest.approx(-thresholds.OFFSET_MOST)
    assert model.prompts == {"one": 0.0}


@pytest.mark.parametrize(("size", "left"), [(0.012, 0.0), (0.05, 0.03)])
def test_daily_cycle_is_followed_within_its_bound(size: float, left: float) -> None:
    """A daily cycle of 1.2 % is learned; of one of 5 %, 2 % are."""
    model = BenignModel()
    residuals = []
    for count in range(96 * 60):
        minute = 15.0 * count
        rate = size * math.cos(2 * math.pi * minute / DAY)
        residuals.append(model.residual(minute, rate, "one"))
        model.follow(minute, residuals[-1], "one")
    assert max(residuals[-96:]) == pytest.approx(left, abs=0.003)


def test_noise_follows_successive_differences() -> None:
    """Noise grows to the spread of readings, and a constant series leads to its least value."""
    model = BenignModel()
    for count in range(500):
        residual = 0.02 if count % 2 else -0.02
        model.follow(0.0, residual, None)
        model.previous = residual
    assert model.noise == thresholds.NOISE_MOST
    for _ in range(500):
        model.follow(0.0, -0.02, None)
        model.previous = -0.02
    assert model.noise == thresholds.NOISE_LEAST
    assert model.prompts == {}


def test_new_prompt_is_learned_from_its_readings() -> None:
    """A prompt that the baseline did not know gets an offset, and the mean of all stays none."""
    model = BenignModel.of_readings({"one": [4.0] * 12})
    for count in range(400):
        for prompt, rate in (("one", 4.0), ("new", 3.98)):
            model.follow(float(count), model.residual(float(count), rate, prompt), prompt)
    assert model.prompts["one"] - model.prompts["new"] == pytest.approx(0.02, abs=0.003)
    assert sum(model.prompts.values()) == pytest.approx(0)


def test_correction_of_the_baseline_is_bounded() -> None:
    """The first day moves the baseline by at most 2.5 %."""
    model = BenignModel(baseline=4.0, offset=0.01)
    model.correct_baseline(0.2)
    assert model.baseline == 4.0 + thresholds.FIRST_DAY_SHIFT
    assert model.offset == 0.0
