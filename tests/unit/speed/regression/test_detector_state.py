"""JSON of a detector's state: its size, and texts that are none."""

import json

import pytest

from appliance.speed.regression.benign import BenignModel
from appliance.speed.regression.detector import Detector
from appliance.speed.regression.detector_state import (
    DetectorPhase,
    DetectorState,
    decode,
    encode,
)
from appliance.speed.regression.sessions import SessionSpread


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
