"""Delivery: flapping, quiet hours, grouping, standby, what is told late and what never."""

from dataclasses import replace
from datetime import UTC, datetime

from appliance.alerts.book import AlertPolicy
from appliance.alerts.evaluation import ack
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.silences import add_window, silence
from appliance.model.alerts import AlertRule, Severity, Subject, SubjectKind, TransitionKind
from appliance.model.words import Mark
from appliance.wire.alert_requests import PlannedWindow
from tests.fakes.alert_rounds import GENESIS, NOON, AlertRounds, bad, good, unknown

FIRED, RESOLVED = TransitionKind.FIRED, TransitionKind.RESOLVED
FLAPPING, CHANGED = TransitionKind.FLAPPING, TransitionKind.CHANGED
SLOW = AlertRule.SLOW
NIGHT = AlertPolicy(time_zone="UTC", quiet_from="22:00", quiet_to="07:00")


def at_night(hour: int = 23) -> AlertRounds:
    begun = datetime.fromtimestamp(NOON.unix_s, UTC).replace(hour=hour)
    return AlertRounds(policy=NIGHT, now=replace(NOON, unix_s=begun.timestamp()))


def flap(rounds: AlertRounds, times: int, rule: AlertRule = SLOW) -> None:
    """Fire and recover a number of times, a minute each."""
    for _ in range(times):
        rounds.look_for(60, bad(rule))
        rounds.look_for(60, good(rule))


def test_flapping_is_told_once_and_its_end_too() -> None:
    """The fourth change within 30 min is told as flapping, and then nothing until it is stable."""
    rounds = AlertRounds()
    flap(rounds, 10)
    assert rounds.told == [FIRED, RESOLVED, FIRED, FLAPPING]
    rounds.look_for(1600, good(SLOW))
    assert len(rounds.told) == 4
    rounds.look_for(300, good(SLOW))
    assert rounds.told[4:] == [RESOLVED]
    alerts = [notice.transition.alert for notice in rounds.notices]
    assert alerts == ["A1", "A1", "A2", "A2", "A2"]
    flap(rounds, 1)
    assert rounds.told[5:] == [FIRED, RESOLVED]


def test_flapping_that_ends_in_a_fire_is_not_told_again() -> None:
    """After a message that an alert flaps none tells that it fires; a critical one reminds."""
    rounds = AlertRounds()
    flap(rounds, 2, AlertRule.SWITCH_FAILED)
    rounds.look_for(3000, bad(AlertRule.SWITCH_FAILED))
    assert rounds.told == [FIRED, RESOLVED, FIRED, FLAPPING]
    rounds.look_for(1200, bad(AlertRule.SWITCH_FAILED))
    assert rounds.told[4:] == [TransitionKind.REMINDED]
    rounds.look_for(20, good(AlertRule.SWITCH_FAILED))
    assert rounds.told[5:] == [RESOLVED]


def test_changes_while_it_flaps_are_recorded() -> None:
    """Every fire and recovery is recorded, also those of which nobody is told."""
    rounds = AlertRounds()
    flap(rounds, 4)
    assert [kind for kind, _ in rounds.recorded] == [
        *(FIRED, RESOLVED, FIRED, RESOLVED, FLAPPING),
        *(FIRED, RESOLVED) * 2,
    ]
    assert {each.reason for each in rounds.transitions if not each.delivered} == {"flapping"}


def test_flapping_that_is_held_is_not_told_when_it_is_over() -> None:
    """A model that comes and goes in a silence is told to nobody once it is well."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 1200, "ana", "", rounds.now))
    flap(rounds, 4)
    rounds.look_for(7200, good(SLOW))
    assert rounds.told == []


def test_flapping_that_is_held_is_told_when_it_fires_again() -> None:
    """A model that still comes and goes after a silence is told as flapping."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "", rounds.now))
    flap(rounds, 6)
    assert rounds.told == [FLAPPING]


def test_flapping_may_begin_with_a_fire() -> None:
    """The fourth change may be a fire: one message, of a new alert."""
    rounds = AlertRounds()
    flap(rounds, 1)
    rounds.look_for(1500, good(SLOW))
    flap(rounds, 1)
    rounds.look_for(60, bad(SLOW))
    assert rounds.told[:4] == [FIRED, RESOLVED, FIRED, FLAPPING]
    rounds = AlertRounds(tables=replace(AlertRounds().tables, flapping_changes=3))
    flap(rounds, 1)
    rounds.look_for(60, bad(SLOW))
    assert rounds.told == [FIRED, RESOLVED, FLAPPING]
    assert rounds.notices[2].transition.alert == "A2"


def test_flapping_that_ends_before_it_fires_is_over() -> None:
    """A state that is bad once at the end of its flapping is no alert."""
    rounds = AlertRounds()
    for _ in range(4):
        rounds.look_for(60, bad())
        rounds.look_for(60, good())
    rounds.look_for(1740, good())
    rounds.look(bad(), times=2)
    assert rounds.told[-2:] == [FLAPPING, RESOLVED]


def test_a_warning_waits_for_the_end_of_quiet_hours() -> None:
    """Warnings that still fire in the morning go in one digest, 15 s after the end of quiet hours."""
    rounds = at_night()
    rounds.look_for(3600, bad(SLOW), bad(AlertRule.DRIFT))
    assert rounds.told == []
    assert {each.reason for each in rounds.transitions} == {"quiet hours"}
    rounds.look_for(9 * 3600, bad(SLOW), bad(AlertRule.DRIFT))
    morning_unix_s = datetime(2027, 1, 16, 7, 0, 15, tzinfo=UTC).timestamp()
    assert [notice.transition.rule for notice in rounds.notices] == [SLOW, AlertRule.DRIFT]
    assert {notice.not_before_unix_s for notice in rounds.notices} == {morning_unix_s}
    assert all(notice.is_digest for notice in rounds.notices)


def test_a_warning_that_is_over_by_the_morning_makes_nothing() -> None:
    """A fire and its end within the quiet hours are recorded, and told to nobody."""
    rounds = at_night()
    rounds.look_for(3600, bad(SLOW))
    rounds.look_for(9 * 3600, good(SLOW))
    assert rounds.told == []
    assert rounds.recorded == [(FIRED, False), (RESOLVED, False)]


def test_the_end_of_a_warning_that_was_told_waits_too() -> None:
    """A recovery at night goes in the digest of the morning."""
    rounds = at_night(hour=21)
    rounds.look_for(600, bad(SLOW))
    assert rounds.told == [FIRED]
    rounds.look_for(7200, bad(SLOW))
    rounds.look_for(60, good(SLOW))
    assert rounds.told == [FIRED, RESOLVED]
    notice = rounds.notices[1]
    assert notice.is_digest
    assert notice.not_before_unix_s == datetime(2027, 1, 16, 7, 0, 15, tzinfo=UTC).timestamp()


def test_critical_alerts_pass_the_quiet_hours() -> None:
    """A critical fire, its reminder and its end are told at night; so is a warning that turns critical."""
    rounds = at_night()
    rounds.look_for(3700, bad())
    rounds.look(good(), times=2)
    assert rounds.told == [FIRED, TransitionKind.REMINDED, RESOLVED]
    assert not any(notice.is_digest for notice in rounds.notices)
    rounds = at_night()
    rounds.look(bad(SLOW), times=5)
    rounds.look(bad(SLOW, severity=Severity.CRITICAL))
    assert rounds.told == [FIRED]
    assert not rounds.notices[0].is_digest


def test_a_told_warning_that_turns_critical_at_night_is_told() -> None:
    """The rise of a warning that was told in the evening passes the quiet hours."""
    rounds = at_night(hour=21)
    rounds.look(bad(SLOW))
    rounds.look_for(7200, bad(SLOW))
    rounds.look(bad(SLOW, severity=Severity.CRITICAL))
    assert rounds.told == [FIRED, CHANGED]
    assert not rounds.notices[1].is_digest


def test_fires_of_one_rule_within_10_s_have_one_group() -> None:
    """Watches that fail together go in one message; another rule goes alone."""
    rounds = AlertRounds()
    watches = [Subject(kind=SubjectKind.WATCH, name=name) for name in ("a", "b", "c", "d")]
    down = [bad(AlertRule.WATCH_DOWN, each, is_proven=True) for each in watches]
    rounds.look(*down[:2], bad(AlertRule.EXPOSED))
    rounds.look(*down[:3], every_s=3)
    rounds.look(*down, every_s=8)
    times = [notice.not_before_unix_s - NOON.unix_s for notice in rounds.notices]
    assert times == [20, 20, 20, 20, 31]
    groups = [notice.group for notice in rounds.notices]
    assert groups[0] == groups[1] == groups[3] == "critical:watch-down:1800014420"
    assert len(set(groups)) == 3


def test_an_alert_of_no_urgency_pages_nobody() -> None:
    """An alert whose severity is info is recorded and not told."""
    rounds = AlertRounds()
    rounds.look(bad(severity=Severity.INFO), times=10)
    assert rounds.told == []
    assert rounds.recorded == [(FIRED, False)]
    rounds.look(bad(severity=Severity.WARNING))
    assert rounds.recorded[1:] == [(FIRED, True)]


def test_a_rise_that_is_held_is_recorded_and_told_later() -> None:
    """A rise of severity in a silence is told at its end."""
    rounds = AlertRounds()
    rounds.look(bad(severity=Severity.WARNING), times=3)
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "", rounds.now))
    rounds.look(bad(severity=Severity.CRITICAL), times=10)
    assert rounds.told == [FIRED]
    assert rounds.recorded[-1] == (CHANGED, False)
    rounds.look_for(600, bad())
    assert rounds.told == [FIRED, CHANGED]


def test_a_model_that_becomes_live_is_told() -> None:
    """A standby model that is down is told as soon as it is marked live."""
    rounds = AlertRounds()
    rounds.mark(Mark.STANDBY)
    rounds.look(bad(), times=10)
    state = rounds.state()
    assert state is not None
    assert state.reason == "standby"
    rounds.mark(Mark.LIVE)
    rounds.look(bad())
    assert rounds.told == [FIRED]


def test_the_end_of_what_was_told_is_told_whatever_holds() -> None:
    """A recovery in a silence, a window or on standby is told, since the fire was."""
    for hold in ("silence", "window", "standby", "ack"):
        rounds = AlertRounds()
        rounds.look(bad(), times=3)
        if hold == "silence":
            rounds.act(silence(rounds.book, GENESIS, 7200, "ana", "", rounds.now))
        elif hold == "window":
            rounds.act(add_window(rounds.book, PlannedWindow(name="w", begin="12:00", minutes=60)))
        elif hold == "standby":
            rounds.mark(Mark.STANDBY)
        else:
            rounds.act(ack(rounds.book, "A1", "ana", rounds.now))
        rounds.look(bad(), times=10)
        rounds.look(good(), times=3)
        assert rounds.told == [FIRED, RESOLVED]


def test_nobody_is_told_of_what_recovers() -> None:
    """A silence that ends between the first good look and the second tells nothing."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 65, "ana", "", rounds.now))
    rounds.look(bad(), times=5)
    rounds.look(good())
    rounds.look(unknown(), times=5)
    rounds.look(good())
    assert rounds.told == []
    rounds.look(bad(), times=3)
    assert rounds.told == [FIRED]


def test_subjects_that_are_removed_are_forgotten() -> None:
    """A profile that is removed while it is down ends as cancelled; its numbers are not used again."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.circumstances = AlertCircumstances(existing=frozenset())
    rounds.look(bad(AlertRule.GPU_LOST, Subject(kind=SubjectKind.GPU, name="GPU-1")), bad())
    assert rounds.recorded[-2:] == [(TransitionKind.CANCELLED, False), (FIRED, True)]
    assert rounds.transitions[-2].reason == "removed"
    assert rounds.cancelled == ["A1"]
    assert rounds.state() is None
    rounds.circumstances = AlertCircumstances(existing=frozenset({GENESIS}))
    rounds.look(bad(), times=3)
    assert rounds.transitions[-1].episode == 2


def test_a_retired_model_that_is_well_has_its_messages_taken_back() -> None:
    """Unsent messages of an alert that is over go too when the model is retired, once."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.look(good(), times=2)
    rounds.mark(Mark.RETIRED)
    rounds.look(good(), times=5)
    assert rounds.cancelled == ["A1"]
    assert rounds.told == [FIRED, RESOLVED]


def test_a_pending_state_of_a_retired_model_goes() -> None:
    """A bad look of a model that is then retired leaves nothing."""
    rounds = AlertRounds()
    rounds.look(bad())
    rounds.mark(Mark.RETIRED)
    rounds.look(bad())
    assert rounds.book.states == {}


def test_an_ack_of_flapping_ends_with_it() -> None:
    """An alert that is acked while it comes and goes is quiet to its end, and the next one is told."""
    rounds = AlertRounds()
    flap(rounds, 2)
    rounds.act(ack(rounds.book, "A2", "ana", rounds.now))
    rounds.look_for(2000, good(SLOW))
    assert rounds.told[3:] == [FLAPPING, RESOLVED]
    rounds.look(bad(SLOW))
    assert rounds.told[5:] == [FIRED]


def test_the_recovery_that_makes_an_alert_flap_ends_its_ack() -> None:
    """An alert that was acked as a single one is told as flapping."""
    rounds = AlertRounds()
    flap(rounds, 1)
    rounds.look_for(60, bad(SLOW))
    rounds.act(ack(rounds.book, "A2", "ana", rounds.now))
    rounds.look_for(60, good(SLOW))
    rounds.look_for(60, bad(SLOW))
    assert rounds.told == [FIRED, RESOLVED, FIRED, FLAPPING]
    state = rounds.state(SLOW)
    assert state is not None
    assert state.acked_by == ""
