"""Clock of the alert book: suspends, boots, pauses of the agent, clocks that are set."""

from dataclasses import replace

from appliance.alerts.book import Instant
from appliance.alerts.look_counting import advance
from appliance.model.alerts import BOX, AlertRule, TransitionKind
from tests.fakes.alert_rounds import NOON, AlertRounds, bad, good


def test_looks_before_a_suspend_do_not_count() -> None:
    """A box that resumes has 60 s until bad looks count again, and needs as many as ever."""
    rounds = AlertRounds()
    rounds.look(bad(), times=2)
    rounds.pass_time(3600, suspended=True)
    rounds.look_for(70, bad())
    assert rounds.told == []
    rounds.look_for(30, bad())
    assert rounds.told == [TransitionKind.FIRED]


def test_a_proven_finding_waits_for_the_grace_too() -> None:
    """Right after a resume even a proven finding counts only once the grace is over."""
    rounds = AlertRounds()
    rounds.look(good())
    rounds.pass_time(3600, suspended=True)
    rounds.look_for(50, bad(is_proven=True))
    assert rounds.told == []
    rounds.look_for(20, bad(is_proven=True))
    assert rounds.told == [TransitionKind.FIRED]


def test_an_alert_goes_on_over_a_suspend() -> None:
    """An alert that fires is neither over nor told again because the box was suspended."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.pass_time(1800, suspended=True)
    rounds.look(bad(), times=20)
    assert rounds.told == [TransitionKind.FIRED]
    rounds.look(good(), times=2)
    assert rounds.told == [TransitionKind.FIRED, TransitionKind.RESOLVED]


def test_reminders_that_a_suspend_has_outlasted_are_one() -> None:
    """A box that sleeps for a day reminds once."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.pass_time(30 * 3600, suspended=True)
    rounds.look_for(3600, bad())
    assert rounds.told == [TransitionKind.FIRED, TransitionKind.REMINDED]


def test_a_boot_is_as_a_resume() -> None:
    """After a boot the clocks begin anew: the book goes on with the time of day."""
    last = advance(None, NOON).clock
    now = Instant(unix_s=NOON.unix_s + 200, monotonic_s=30.0, boot_s=30.0)
    step = advance(last, now)
    assert step.has_gap
    assert step.clock.book_s == 200
    assert step.clock.grace_until_s == 260


def test_a_boot_ends_the_alerts_about_what_it_ended() -> None:
    """A model that was down is over, a disk that was full is not yet judged, what was well stays so."""
    rounds = AlertRounds()
    findings = [bad(), bad(AlertRule.DISK, BOX)]
    rounds.look(*findings, bad(AlertRule.GATEWAY_DOWN, BOX), times=3)
    rounds.look(*findings, good(AlertRule.GATEWAY_DOWN, BOX), times=60)
    told = [one.kind for one in rounds.transitions if one.rule is AlertRule.GATEWAY_DOWN]
    assert told == [TransitionKind.FIRED, TransitionKind.RESOLVED]
    before = len(rounds.transitions)
    rounds.now = Instant(unix_s=rounds.now.unix_s + 200, monotonic_s=30.0, boot_s=30.0)
    rounds.look()
    (ended,) = rounds.transitions[before:]
    assert (ended.rule, ended.kind) == (AlertRule.LIVE_DOWN, TransitionKind.RESOLVED)
    assert ended.over == "ended with a boot"


def test_a_boot_with_a_clock_that_is_behind_takes_no_time_back() -> None:
    """A box without a battery boots in the past; the clock of the book stands still for once."""
    last = advance(None, NOON).clock
    step = advance(last, Instant(unix_s=0.0, monotonic_s=30.0, boot_s=30.0))
    assert step.clock.book_s == 0


def test_looks_before_a_pause_of_the_agent_do_not_count() -> None:
    """An agent that was dead for two minutes counts anew, without a grace."""
    rounds = AlertRounds()
    rounds.look(bad(), times=2)
    rounds.pass_time(120)
    rounds.look(bad(), times=2)
    assert rounds.told == []
    rounds.look(bad())
    assert rounds.told == [TransitionKind.FIRED]


def test_a_clock_that_is_set_moves_no_span() -> None:
    """Ten years more on the wall clock are no ten years of firing: no reminder is due."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.now = replace(rounds.now, unix_s=rounds.now.unix_s + 3e8)
    rounds.look(bad(), times=10)
    assert rounds.told == [TransitionKind.FIRED]


def test_the_first_evaluation_has_no_grace() -> None:
    """A new book counts from its first look."""
    step = advance(None, NOON)
    assert not step.has_gap
    assert step.clock.grace_until_s == 0
