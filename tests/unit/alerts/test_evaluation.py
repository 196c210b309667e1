"""Alert state machine: phases, episodes, what targets are told."""

import pytest

from appliance.alerts.evaluation import ack
from appliance.model.alerts import AlertPhase, AlertRule, Severity, TransitionKind
from appliance.model.errors import NotFoundError
from appliance.model.words import Mark
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good, unknown

FIRED, RESOLVED = TransitionKind.FIRED, TransitionKind.RESOLVED
CHANGED, REMINDED = TransitionKind.CHANGED, TransitionKind.REMINDED


def test_a_model_that_is_down_is_told_once_and_so_is_its_return() -> None:
    """Three bad looks of five fire, two good ones resolve, and nothing else is told."""
    rounds = AlertRounds()
    rounds.look(bad(), times=2)
    assert rounds.told == []
    rounds.look(bad(), times=30)
    assert rounds.told == [FIRED]
    rounds.look(good())
    assert rounds.told == [FIRED]
    rounds.look(good(), times=5)
    assert rounds.told == [FIRED, RESOLVED]
    first, second = (notice.transition for notice in rounds.notices)
    assert (first.alert, first.episode) == (second.alert, second.episode) == ("A1", 1)
    assert first.severity is Severity.CRITICAL


def test_bad_and_good_looks_in_turn_fire() -> None:
    """A model that answers every other look fires by the third bad one of five."""
    rounds = AlertRounds()
    for sign in (bad, good, bad, good, bad):
        assert rounds.told == []
        rounds.look(sign())
    assert rounds.told == [FIRED]


def test_unknown_leaves_the_state() -> None:
    """An unknown look is neither good nor bad, however often it comes."""
    rounds = AlertRounds()
    rounds.look(bad(), times=2)
    before = rounds.state()
    rounds.look(unknown(), times=100)
    assert rounds.state() == before
    rounds.look(bad())
    assert rounds.told == [FIRED]


def test_a_finding_that_is_proven_fires_at_once() -> None:
    """A proven finding needs no second look, whatever the rule's terms are."""
    rounds = AlertRounds()
    rounds.look(bad(is_proven=True))
    assert rounds.told == [FIRED]


def test_each_episode_has_a_number_and_an_id_of_its_own() -> None:
    """The second fire of a rule is another alert than the first."""
    rounds = AlertRounds()
    for _ in range(2):
        rounds.look(bad(), times=3)
        rounds.look_for(3600, good())
    fires = [each for each in rounds.transitions if each.kind is FIRED]
    assert [(each.alert, each.episode) for each in fires] == [("A1", 1), ("A2", 2)]


def test_looks_that_are_close_count_once() -> None:
    """Ten bad looks within 5 s are one, so that a burst of changes fires nothing."""
    rounds = AlertRounds()
    rounds.look(bad(), times=10, every_s=0.5)
    assert rounds.told == []


def test_a_severity_that_rises_is_told_and_ends_the_ack() -> None:
    """A warning that turns critical is told again, even if it was acked, and the severity stays."""
    rounds = AlertRounds()
    rounds.look(bad(severity=Severity.WARNING), times=3)
    rounds.act(ack(rounds.book, "A1", "ana", rounds.now))
    rounds.look(bad(severity=Severity.CRITICAL))
    assert rounds.told == [FIRED, CHANGED]
    rounds.look(bad(severity=Severity.WARNING), times=3)
    rounds.look(bad(severity=Severity.CRITICAL), times=3)
    assert rounds.told == [FIRED, CHANGED]
    state = rounds.state()
    assert state is not None
    assert (state.severity, state.acked_by) == (Severity.CRITICAL, "")


def test_an_ack_ends_reminders_and_by_itself_on_recovery() -> None:
    """An acked alert is not told again; the next episode begins without the ack."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.act(ack(rounds.book, "A1", "ana", rounds.now))
    rounds.act(ack(rounds.book, "A1", "bob", rounds.now))
    rounds.look_for(20 * 3600, bad())
    rounds.look(good(), times=2)
    assert rounds.told == [FIRED, RESOLVED]
    assert [each.by for each in rounds.transitions if each.kind is TransitionKind.ACKED] == ["ana"]
    rounds.look(bad(), times=3)
    assert rounds.told == [FIRED, RESOLVED, FIRED]


def test_only_an_alert_that_fires_is_acked() -> None:
    """An unknown or resolved alert is refused with the command that lists alerts."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.look(good(), times=2)
    for alert in ("A1", "A7"):
        with pytest.raises(NotFoundError, match="appliance alerts"):
            ack(rounds.book, alert, "ana", rounds.now)


def test_reminders_come_after_1_h_4_h_12_h_and_each_12_h() -> None:
    """A critical alert that nobody acks is told again at these times, a warning never."""
    rounds = AlertRounds()
    warning = AlertRule.SLOW
    rounds.look(bad(is_proven=True), bad(warning))
    begun_unix_s = rounds.now.unix_s
    rounds.look_for(37 * 3600, bad(), bad(warning))
    reminders = [each for each in rounds.transitions if each.kind is REMINDED]
    assert {each.rule for each in reminders} == {AlertRule.LIVE_DOWN}
    hours = [(each.unix_s - begun_unix_s) / 3600 for each in reminders]
    assert hours == [1, 4, 12, 24, 36]


@pytest.mark.parametrize(("mark", "told"), [(Mark.STANDBY, []), (Mark.RETIRED, [])])
def test_nobody_is_told_of_a_model_that_nobody_uses(mark: Mark, told: list[object]) -> None:
    """A standby model is recorded and a retired one is not; neither is told."""
    rounds = AlertRounds()
    rounds.mark(mark)
    rounds.look(bad(), times=50)
    rounds.look(good(), times=2)
    assert rounds.told == told
    assert bool(rounds.transitions) == (mark is Mark.STANDBY)


def test_retiring_cancels_an_alert_and_its_messages() -> None:
    """An alert that fires ends with the mark: recorded as cancelled, told to nobody, messages taken back."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.mark(Mark.RETIRED)
    rounds.look(bad(), times=10)
    rounds.look(good(), times=10)
    assert rounds.told == [FIRED]
    assert rounds.cancelled == ["A1"]
    assert rounds.recorded[-1] == (TransitionKind.CANCELLED, False)
    rounds.mark(Mark.LIVE)
    rounds.look(bad(), times=3)
    state = rounds.state()
    assert state is not None
    assert (state.phase, state.alert, state.episode) == (AlertPhase.FIRING, "A2", 2)
    assert state.subject == GENESIS
