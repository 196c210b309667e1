"""State of the detector: spread of sessions, benign model, and its JSON."""

import json
import math

import pytest

from appliance.speed import thresholds
from appliance.speed.detector import Detector
from appliance.speed.detector_state import (
    BenignModel,
    DetectorPhase,
    DetectorState,
    SessionSpread,
    decode,
    encode,
)


def session(
    spread: SessionSpread, level: float, *, readings: int = 200, healthy: bool = True
) -> None:
    for _ in range(readings):
        spread.follow(level)
    spread.end(healthy=healthy)


def test_scale_begins_at_one() -> None:
    """Without sessions, and with those of an ordinary box, thresholds are as they are."""
    spread = SessionSpread()
    assert spread.scale == 1.0
    for level in (0.005, -0.008, 0.001, -0.004):
        session(spread, level)
    assert spread.scale == 1.0


def test_wider_sessions_widen_the_thresholds() -> None:
    """Sessions that differ by 2 % widen the thresholds, at most twice."""
    spread = SessionSpread()
    for level in (0.02, -0.02) * 6:
        session(spread, level)
    assert spread.scale == pytest.approx(1.66, abs=0.02)
    for level in (0.06, -0.09) * 10:
        session(spread, level)
    assert spread.scale == thresholds.SESSION_SCALE_MOST
    assert len(spread.levels) == thresholds.SESSIONS_KEPT


@pytest.mark.parametrize(("readings", "healthy"), [(95, True), (200, False), (0, True)])
def test_short_or_bad_session_does_not_count(readings: int, *, healthy: bool) -> None:
    """A session of less than a day, or one that ended with a loss, does not count."""
    spread = SessionSpread()
    session(spread, 0.05, readings=readings, healthy=healthy)
    assert spread.levels == []
    assert spread.readings == 0


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


def fullest() -> DetectorState:
    """Return a state with every list as long as it gets, and numbers of full length."""
    long = 1 / 3
    state = DetectorState(
        phase=DetectorPhase.RECOVERING,
        shortfall=long,
        credit=long,
        drop=long,
        recent=[-0.03333] * 8,
        readings=[-0.33333] * 40,
        benign=BenignModel(
            baseline=long,
            offset=-long,
            cosine=-long,
            sine=-long,
            noise=long,
            previous=-0.03333,
            prompts={f"task-{number}": -long for number in range(5)},
        ),
        sessions=SessionSpread(readings=96, level=-long, levels=[-0.01234] * 12),
    )
    for name in DetectorState.__slots__:
        if name.endswith("_min"):
            setattr(state, name, 29_000_000 + long)
    return state


def test_fullest_state_is_short() -> None:
    """The longest state has at most 1.5 kB, and comes back as it was."""
    text = encode(fullest())
    assert len(text) <= 1500
    assert decode(text) == fullest()


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(encode(DetectorState())), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        "[" * 100_000,
        changed(version=2),
        changed(more=1),
        changed(phase="gone"),
        changed(wake_min="soon"),
        changed(wake_min=float("nan")),
        changed(patience=None),
        changed(patience=True),
        changed(slow=1),
        changed(day_readings=-1),
        changed(day_readings=1.5),
        changed(day_sum=10**400),
        changed(recent=[None]),
        changed(recent={}),
        changed(learning=[]),
        changed(learning={"one": 1.0}),
        changed(benign=None),
        changed(benign={}),
        changed(sessions=[]),
    ],
)
def test_text_that_is_no_state_is_refused(text: str) -> None:
    """A text that is damaged, or of another version, is refused with ValueError."""
    with pytest.raises(
        ValueError, match=r"detector state|not JSON|nested too deeply|is not a valid|int string"
    ):
        Detector.decoded(text)


def test_offset_of_prompts_must_be_numbers() -> None:
    """A damaged map of prompts is refused."""
    document = json.loads(encode(fullest()))
    document["benign"]["prompts"] = {"one": "fast"}
    with pytest.raises(ValueError, match="prompts"):
        decode(json.dumps(document))
