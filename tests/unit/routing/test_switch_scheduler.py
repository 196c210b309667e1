"""Scheduler of switches on request."""

import pytest

from appliance.routing.switch_scheduler import (
    FAILURE_PAUSES_S,
    BoxState,
    CheckAgain,
    SwitchPolicy,
    SwitchTo,
    WaitingProfile,
    failure_pause_s,
    has_failed,
    next_switch,
)

TURNS = SwitchPolicy(residency_s=60, patience_s=100)


def waiting(profile: str, since_s: float) -> WaitingProfile:
    """Return a profile that is waited for."""
    return WaitingProfile(profile=profile, since_s=since_s)


@pytest.mark.parametrize(
    ("now_s", "box", "turn"),
    [
        # Nothing serves: at once.
        (10, BoxState(), SwitchTo(profile="b")),
        # It serves, idle: when the residency is over.
        (10, BoxState(since_s=0), CheckAgain(at_s=60)),
        (60, BoxState(since_s=0), SwitchTo(profile="b")),
        (10, BoxState(since_s=-1000), SwitchTo(profile="b")),
        # It is used: when the first has been patient.
        (60, BoxState(since_s=0, in_flight=1), CheckAgain(at_s=110)),
        (110, BoxState(since_s=0, in_flight=9), SwitchTo(profile="b")),
        (110, BoxState(since_s=90, in_flight=9), CheckAgain(at_s=150)),
        # Somebody else has the box.
        (1000, BoxState(since_s=0, busy=True), None),
        (1000, BoxState(busy=True), None),
        # The last switch failed.
        (1000, BoxState(paused_until_s={"b": 1050}), CheckAgain(at_s=1050)),
        (1050, BoxState(paused_until_s={"b": 1050}), SwitchTo(profile="b")),
        (1000, BoxState(paused_until_s={"c": 1050}), SwitchTo(profile="b")),
    ],
)
def test_a_profile_gets_its_turn(
    now_s: float, box: BoxState, turn: SwitchTo | CheckAgain | None
) -> None:
    """A profile that is waited for since second 10 is switched to when the rules allow it."""
    assert next_switch(now_s, box, [waiting("b", 10)], TURNS) == turn


def test_nobody_waits() -> None:
    """Without a waiting profile there is no switch."""
    assert next_switch(1000, BoxState(since_s=0), [], TURNS) is None


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ([("b", 10), ("c", 20)], "b"),
        ([("b", 20), ("c", 10)], "c"),
        ([("c", 10), ("b", 10)], "b"),
    ],
)
def test_who_has_waited_longest_is_next(line: list[tuple[str, float]], first: str) -> None:
    """Among profiles that have waited equally long the name decides."""
    turn = next_switch(1000, BoxState(since_s=0), [waiting(*entry) for entry in line], TURNS)
    assert turn == SwitchTo(profile=first)


def test_a_profile_that_failed_keeps_nobody_from_his_turn() -> None:
    """After a failure the next profile has its turn; after all have failed, the earliest."""
    line = [waiting("b", 10), waiting("c", 20)]
    one = BoxState(paused_until_s={"b": 1050.0})
    assert next_switch(1000, one, line, TURNS) == SwitchTo(profile="c")
    assert has_failed("b", 1000, one)
    assert not has_failed("c", 1000, one)
    both = BoxState(paused_until_s={"b": 1050.0, "c": 1040.0})
    assert next_switch(1000, both, line, TURNS) == CheckAgain(at_s=1040)


def test_the_pause_after_failures_grows() -> None:
    """A profile that never comes up costs the others ever less; the longest pause repeats."""
    pauses = [failure_pause_s(n) for n in range(1, len(FAILURE_PAUSES_S) + 3)]
    assert pauses[: len(FAILURE_PAUSES_S)] == list(FAILURE_PAUSES_S)
    assert pauses == sorted(pauses)
    assert set(pauses[len(FAILURE_PAUSES_S) :]) == {FAILURE_PAUSES_S[-1]}
