"""Readings of each rule: how old they may be, how many looks it takes to fire, and what ends it."""

from collections.abc import Mapping
from dataclasses import replace
from math import isinf
from typing import Final

import pytest

from appliance.alerts.book.alert_rules import ALERT_TERMS, EndedBy, JudgedReading, Since
from appliance.alerts.watchdog_rules.snapshot import BoxLook, ReadingKind
from appliance.alerts.watchdog_rules.watchdog import findings
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Sign, TransitionKind
from appliance.model.observed import ActiveState
from tests.fakes.alert_rounds import AlertRounds
from tests.fakes.looks import STARTED_S, box_look, later, profile_look, unit_look
from tests.unit.alerts.watchdog_rules.test_watchdog import INCIDENTS, JUDGED, OPERATION

OWN: Final = frozenset({ReadingKind.ANSWER, ReadingKind.PROBE, ReadingKind.CANARIES})
"""Readings of one profile."""
OF_ENGINES: Final = [rule for rule in JUDGED if EndedBy.STOP in ALERT_TERMS[rule].ends]
ENDED_BY_BOOT: Final = [rule for rule in JUDGED if EndedBy.BOOT in ALERT_TERMS[rule].ends]
EVIDENCE: Final = [(rule, one) for rule in JUDGED for one in ALERT_TERMS[rule].judged_by]
TERMS: Final[Mapping[AlertRule, tuple[float | None, int]]] = {
    AlertRule.LIVE_DOWN: (60, 3),
    AlertRule.NO_PROGRESS: (30, 2),
    AlertRule.CRASH_LOOP: (30, 1),
    AlertRule.CPU_FALLBACK: (60, 2),
    AlertRule.SLOW: (None, 1),
    AlertRule.QUALITY: (None, 1),
    AlertRule.NO_PROBE: (30, 1),
    AlertRule.PATCH: (30, 2),
    AlertRule.DRIFT: (60, 2),
    AlertRule.SWITCH_FAILED: (30, 1),
    AlertRule.SWITCH_STUCK: (30, 1),
    AlertRule.EXPOSED: (45, 1),
    AlertRule.FILTER_OFF: (30, 2),
    AlertRule.FOREIGN_HOLDER: (60, 1),
    AlertRule.UNATTRIBUTED: (60, 1),
    AlertRule.GPU_LOST: (60, 1),
    AlertRule.GPU_ERROR: (60, 1),
    AlertRule.GPU_RECOVERY: (60, 1),
    AlertRule.ECC: (60, 1),
    AlertRule.THROTTLE: (60, 1),
    AlertRule.PCIE: (60, 1),
    AlertRule.DRIVER: (60, 2),
    AlertRule.DISK: (30, 1),
    AlertRule.SUPERVISOR_DOWN: (30, 3),
    AlertRule.GATEWAY_DOWN: (30, 3),
    AlertRule.WATCH_DOWN: (None, 3),
}
"""Age of the reading that decides, in seconds (None: its own schedule bounds it), and bad looks to fire."""


def read_at(look: BoxLook, reading: ReadingKind, at_s: float) -> BoxLook:
    """Return a look one of whose readings was made at a time."""
    if reading is ReadingKind.WATCH:
        return replace(look, watches=tuple(replace(one, read_s=at_s) for one in look.watches))
    if reading not in OWN:
        return replace(look, read_s={**look.read_s, reading: at_s})
    return with_profiles(look, read_s={reading: at_s})


def with_profiles(look: BoxLook, **changes: object) -> BoxLook:
    """Return a look each of whose profiles has these changes."""
    profiles = {name: replace(one, **changes) for name, one in look.profiles.items()}  # type: ignore[arg-type]
    return replace(look, profiles=profiles)


def signs(rule: AlertRule, *looks: BoxLook) -> set[Sign]:
    """Return the signs of a rule at the last of some looks."""
    memory, found = WatchdogMemory(), set()
    for look in looks:
        judged, memory = findings(look, memory)
        found = {one.sign for one in judged if one.rule is rule}
    return found


def looked_at(rule: AlertRule, looks: list[BoxLook]) -> AlertRounds:
    """Return the alert book after looks, each 10 s after the one before; only one rule is judged."""
    rounds, memory = AlertRounds(), WatchdogMemory()
    for look in looks:
        judged, memory = findings(look, memory)
        rounds.look(*(one for one in judged if one.rule is rule))
    return rounds


def incident(rule: AlertRule) -> tuple[list[BoxLook], BoxLook]:
    """Return the looks before an incident, and the look that finds it."""
    *before, last = INCIDENTS[rule]
    return list(before), last


def test_every_rule_says_how_old_and_how_often() -> None:
    """Age and looks of each rule stand here once more, so that a new rule is thought about."""
    assert set(TERMS) == set(JUDGED)
    found = {}
    for rule in JUDGED:
        terms = ALERT_TERMS[rule]
        oldest_s = terms.judged_by[0].oldest_s
        found[rule] = (None if isinf(oldest_s) else oldest_s, terms.bad_looks)
    assert found == TERMS


@pytest.mark.parametrize(("rule", "evidence"), EVIDENCE, ids=str)
def test_no_rule_judges_by_an_old_reading(rule: AlertRule, evidence: JudgedReading) -> None:
    """A reading that is too old tells neither good nor bad; one that is as old as it may be does."""
    if isinf(evidence.oldest_s):
        return
    before, last = incident(rule)
    young = read_at(last, evidence.reading, last.monotonic_s - evidence.oldest_s)
    old = read_at(last, evidence.reading, last.monotonic_s - evidence.oldest_s - 1)
    assert Sign.BAD in signs(rule, *before, young)
    assert signs(rule, *before, old) == {Sign.UNKNOWN}


@pytest.mark.parametrize(("rule", "evidence"), EVIDENCE, ids=str)
def test_no_rule_judges_an_engine_by_what_was_read_before_its_start(
    rule: AlertRule, evidence: JudgedReading
) -> None:
    """A reading of an earlier process, or of the time of an operation, tells neither good nor bad."""
    before, last = incident(rule)
    read_s = last.monotonic_s - 1
    earlier = read_at(last, evidence.reading, read_s)
    if evidence.since is Since.EVER:
        return
    begun, same = earlier, read_at(last, evidence.reading, last.monotonic_s)
    if evidence.since is Since.START:
        begun = with_profiles(earlier, began_s=read_s + 0.5)
        same = with_profiles(earlier, began_s=read_s - 0.5)
    else:
        before = [*before, later(box_look(operation=OPERATION), -0.5)]
    assert signs(rule, *before, begun) == {Sign.UNKNOWN}
    assert Sign.BAD in signs(rule, *before, same)


@pytest.mark.parametrize("rule", [rule for rule in JUDGED if ALERT_TERMS[rule].bad_looks > 1])
def test_one_reading_is_one_look(rule: AlertRule) -> None:
    """A rule that takes several looks does not fire by one reading that is looked at several times."""
    _, last = incident(rule)
    reading = ALERT_TERMS[rule].judged_by[0].reading
    apart = [later(last, 10.0 * n) for n in range(4)]
    same = [read_at(look, reading, STARTED_S) for look in apart[:3]]
    assert looked_at(rule, same).told == []
    fresh = [read_at(look, reading, look.monotonic_s) for look in apart]
    assert looked_at(rule, fresh).told == [TransitionKind.FIRED]


@pytest.mark.parametrize("rule", OF_ENGINES)
def test_an_alert_about_an_engine_ends_with_its_stop(rule: AlertRule) -> None:
    """One look at the stopped unit ends it, also one that flaps; whoever was told hears of it once."""
    before, last = incident(rule)
    bad = [*before, *(later(last, 10.0 * n) for n in range(1, 6))]
    good = [later(box_look(), 60 + 10.0 * n) for n in range(100)]
    stopped = profile_look(
        desired=False, unit=unit_look("u", active=ActiveState.INACTIVE, main_pid=0), answers=None
    )
    end = later(box_look(stopped, listeners=()), 2000.0)
    for looks in ([*bad, end], [*bad, *good, *bad, *good, *bad, end]):
        rounds = looked_at(rule, looks)
        assert rounds.told[-1] is TransitionKind.RESOLVED
        assert rounds.transitions[-1].over == "was stopped"
        (state,) = rounds.book.states.values()
        assert not state.is_open


@pytest.mark.parametrize("rule", JUDGED)
def test_a_boot_ends_what_it_has_ended(rule: AlertRule) -> None:
    """A boot ends alerts about processes and moments; messages about the others wait to be judged."""
    before, last = incident(rule)
    rounds = looked_at(rule, [*before, *(later(last, 10.0 * n) for n in range(1, 62))])
    assert rounds.told[0] is TransitionKind.FIRED
    rounds.now = replace(rounds.now, boot_id="2", monotonic_s=9e6, boot_s=9e6)
    assert rounds.book.clock is not None
    rounds.book = replace(rounds.book, clock=replace(rounds.book.clock, boot_id="1"))
    evaluation = rounds.look()
    (state,) = evaluation.book.states.values()
    if rule in ENDED_BY_BOOT:
        assert rounds.told[-1] is TransitionKind.RESOLVED
        assert (state.is_open, evaluation.postponed) == (False, ())
    else:
        assert (state.is_open, evaluation.postponed) == (True, (state.alert,))
        assert evaluation.postponed_unix_s == rounds.now.unix_s + 120.0


@pytest.mark.parametrize("rule", [AlertRule.NO_PROGRESS, AlertRule.LIVE_DOWN, AlertRule.CRASH_LOOP])
def test_an_engine_is_judged_also_where_no_gpu_is_read(rule: AlertRule) -> None:
    """A box without GPUs looks for them every ten minutes, and a driver that hangs tells nothing at all."""
    before, last = incident(rule)
    read_s = last.monotonic_s - 600.0
    assert Sign.BAD in signs(rule, *before, read_at(last, ReadingKind.GPUS, read_s))
