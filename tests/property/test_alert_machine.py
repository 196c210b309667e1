"""Alerts under all that may happen, in any order: safety and liveness of what is told."""

from random import Random
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from appliance.model.alerts import Sign
from appliance.model.words import Mark
from tests.property.alert_life import KEYS, NAMES, AlertLife

SEQUENCES: Final = 2000
PARTS: Final = 4
STEPS: Final = 20
SIGNS: Final = (Sign.BAD, Sign.BAD, Sign.GOOD, Sign.UNKNOWN)
PAUSES_S: Final = (20.0, 90.0, 1800.0, 3600.0, 20_000.0, 90_000.0)
SILENCES_S: Final = (30.0, 600.0, 7200.0, 604_800.0)
MARKS: Final = (Mark.LIVE, Mark.LIVE, Mark.STANDBY, Mark.RETIRED)


class Alerts(RuleBasedStateMachine):
    """Life of which hypothesis finds the shortest sequence that breaks a promise."""

    def __init__(self) -> None:
        super().__init__()
        self.life = AlertLife()

    @rule(signs=st.tuples(*[st.sampled_from(SIGNS)] * len(KEYS)), times=st.integers(1, 25))
    def look(self, signs: tuple[Sign, ...], times: int) -> None:
        self.life.look(dict(zip(KEYS, signs, strict=True)), times)

    @rule(seconds=st.sampled_from(PAUSES_S), suspended=st.booleans())
    def pause(self, seconds: float, *, suspended: bool) -> None:
        self.life.pause(seconds, suspended=suspended)

    @rule(name=st.sampled_from(NAMES), mark=st.sampled_from(MARKS))
    def mark(self, name: str, mark: Mark) -> None:
        self.life.mark(name, mark)

    @rule(name=st.sampled_from(NAMES), for_s=st.sampled_from(SILENCES_S))
    def silence(self, name: str, for_s: float) -> None:
        self.life.silence(name, for_s)

    @rule(name=st.sampled_from(NAMES))
    def unsilence(self, name: str) -> None:
        self.life.unsilence(name)

    @rule(number=st.integers(1, 3))
    def ack(self, number: int) -> None:
        self.life.ack(number)

    @rule(name=st.sampled_from(NAMES))
    def add_window(self, name: str) -> None:
        self.life.add_window(name)

    @rule(name=st.sampled_from(NAMES))
    def begin_operation(self, name: str) -> None:
        self.life.begin_operation(name)

    @rule()
    def end_operation(self) -> None:
        self.life.end_operation()

    def teardown(self) -> None:
        self.life.rest()


def live(seed: int) -> AlertLife:
    """Live through a random sequence; half of its steps are looks."""
    random, life = Random(seed), AlertLife()  # noqa: S311 - no secret
    for _ in range(STEPS):
        name = random.choice(NAMES)
        match random.randrange(16):
            case 0:
                life.pause(random.choice(PAUSES_S), suspended=random.random() < 0.5)
            case 1:
                life.mark(name, random.choice(MARKS))
            case 2:
                life.silence(name, random.choice(SILENCES_S))
            case 3:
                life.unsilence(name)
            case 4:
                life.ack(random.randint(1, 3))
            case 5:
                life.add_window(name)
            case 6:
                life.begin_operation(name)
            case 7:
                life.end_operation()
            case _:
                signs = {key: random.choice(SIGNS) for key in KEYS}
                life.look(signs, random.choice((1, 2, 3, 5, 16)))
    life.rest()
    return life


def sequences() -> int:
    """Return how many sequences the profile of hypothesis asks for."""
    return SEQUENCES * settings().max_examples // 100


def test_no_sequence_breaks_a_promise() -> None:
    """Targets are told once, of what is true, and of all of it, in whatever order things happen."""
    run_state_machine_as_test(Alerts, settings=settings(stateful_step_count=30))


@pytest.mark.parametrize("part", range(PARTS))
def test_random_sequences_keep_the_promises(part: int) -> None:
    """Random sequences keep every promise: two thousand in full, see `tests/conftest.py`."""
    lives = [live(seed) for seed in range(part, sequences(), PARTS)]
    assert sum(len(life.told) for life in lives) > len(lives)
