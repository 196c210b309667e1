"""The schedule of canaries."""

from dataclasses import replace
from itertools import pairwise

import pytest

from appliance.speed.canary_schedule import (
    CanaryCadence,
    CanarySchedule,
    after_request,
    after_restart,
    after_round,
    is_affordable,
    is_further,
    next_round_s,
)

START = CanarySchedule(name="genesis", started_s=1000.0, budget_at_s=1000.0)


def done(schedule: CanarySchedule, began_s: float, **changes: bool) -> CanarySchedule:
    given = {"interrupted": False, "unfinished": False} | changes
    return after_round(schedule, began_s=began_s, now_s=began_s + 5, answered=6, **given)


def test_first() -> None:
    """The first round waits until the probes have warmed the engine up."""
    assert next_round_s(START, wants_more=True) == 1120.0
    assert not is_further(START, 1120.0)


def test_usual() -> None:
    """Each interval has one round, at the same moment of each."""
    schedule, rounds = START, []
    for _ in range(5):
        rounds.append(next_round_s(schedule, wants_more=False))
        assert not is_further(schedule, rounds[-1])
        schedule = done(schedule, rounds[-1])
    gaps = [after - before for before, after in pairwise(rounds[1:])]
    assert gaps == pytest.approx([3600.0] * 3)
    assert 0 < rounds[1] - rounds[0] <= 3600.0


def test_further() -> None:
    """A further round comes after a quarter of the interval, and is told from a usual one."""
    schedule = done(START, next_round_s(done(START, 1120.0), wants_more=False))
    assert schedule.last_s is not None
    due_s = next_round_s(schedule, wants_more=True)
    assert due_s == schedule.last_s + 900.0
    assert is_further(schedule, due_s)


def test_interrupted() -> None:
    """An interrupted round goes on after 30 s, then after twice the pause, at most an interval."""
    schedule = done(START, 2000.0, interrupted=True, unfinished=True)
    pauses = []
    for _ in range(9):
        due_s = next_round_s(schedule, wants_more=False)
        pauses.append(due_s - 2005.0)
        schedule = after_round(
            schedule, began_s=1999.0, now_s=2005.0, answered=0, interrupted=True, unfinished=True
        )
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]
    assert done(schedule, 9000.0).failed == 0


def test_budget() -> None:
    """Canaries take a quarter of a per cent of the time: a round that uses it up goes on later."""
    spent = after_request(START, began_s=1000.0, now_s=1100.0)
    assert not is_affordable(spent)
    waiting = done(spent, 1000.0, unfinished=True)
    assert next_round_s(waiting, wants_more=False) == pytest.approx(
        1100.0 + 40.0 / 0.0025, rel=0.01
    )
    rested = after_request(spent, began_s=1e6, now_s=1e6)
    assert is_affordable(rested)
    assert rested.budget_s == 60.0
    assert next_round_s(done(rested, 1000.0, unfinished=True), wants_more=False) == 1000.0


def test_restart() -> None:
    """A restart begins with a round of its own, and keeps the budget."""
    spent = done(after_request(START, began_s=1000.0, now_s=1030.0), 1120.0, unfinished=True)
    again = after_restart(spent, 5000.0)
    assert again.budget_s == spent.budget_s
    assert next_round_s(again, wants_more=False) == 5120.0
    assert not again.unfinished


def test_trial() -> None:
    """A trial's speed shortens all times, and lets canaries take more of the time."""
    fast = replace(START, cadence=CanaryCadence(speed=1000.0))
    assert next_round_s(fast, wants_more=False) == 1000.12
    spent = after_request(fast, began_s=1000.0, now_s=1070.0)
    assert is_affordable(after_request(spent, began_s=1080.0, now_s=1080.0))
