"""State of the alert book: its form in JSON, its bounds."""

import json
from dataclasses import replace

from msgspec import to_builtins

from appliance.alerts.book import MOST_STATES as MOST
from appliance.alerts.book import AlertState, BookClock, Silence
from appliance.alerts.evaluation import ack
from appliance.alerts.silences import add_window, silence
from appliance.model.alerts import AlertPhase, Finding, Sign, Subject, SubjectKind, TransitionKind
from appliance.wire.alert_requests import PlannedWindow
from appliance.wire.typed_json import from_json
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good


def subject(number: int) -> Subject:
    return Subject(kind=SubjectKind.WATCH, name=f"w{number}")


def test_the_book_survives_as_json() -> None:
    """Every state, silence, window and clock is read back as it was."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.act(ack(rounds.book, "A1", "ana", rounds.now))
    rounds.act(silence(rounds.book, GENESIS, 60, "ana", "fan", rounds.now))
    window = PlannedWindow(name="w", days=("mon",), begin="12:00", minutes=6, subjects=("box",))
    rounds.act(add_window(rounds.book, window))
    rounds.look(bad())
    book = rounds.book
    for kind, values in (
        (AlertState, book.states.values()),
        (Silence, book.silences),
        (PlannedWindow, book.windows),
        (BookClock, [book.clock]),
    ):
        for value in values:
            assert value is not None
            assert from_json(kind, json.loads(json.dumps(to_builtins(value)))) == value


def test_a_state_is_bounded() -> None:
    """Texts of findings are cut, and the looks kept are those that the rule counts."""
    rounds = AlertRounds()
    long = Finding(
        subject=GENESIS,
        rule=bad().rule,
        sign=Sign.BAD,
        fact="f" * 10_000,
        details=("d" * 10_000,) * 100,
        likely="l" * 10_000,
        command="c" * 10_000,
    )
    for _ in range(50):
        rounds.look(long, times=3)
        rounds.look(good(), times=2)
    state = rounds.state()
    assert state is not None
    assert len(json.dumps(to_builtins(state))) < 5000
    assert len(state.signs) <= 5


def test_the_worst_of_two_findings_counts() -> None:
    """Two findings about one subject and rule are one look."""
    rounds = AlertRounds()
    rounds.look(bad(), good(), bad(), times=2)
    state = rounds.state()
    assert state is not None
    assert state.signs == "bb"


def test_states_that_are_well_are_forgotten_when_the_book_is_full() -> None:
    """The oldest of them go, and what fires then has a number that was not used."""
    rounds = AlertRounds()
    for first in (0, MOST // 2):
        many = [bad(subject=subject(number), is_proven=True) for number in range(first, MOST)]
        rounds.look(*many[: MOST // 2])
        rounds.look(*(good(subject=finding.subject) for finding in many[: MOST // 2]), times=2)
    assert len(rounds.book.states) == MOST
    rounds.look(bad(is_proven=True))
    assert len(rounds.book.states) == MOST - MOST // 8 + 1
    assert (subject(0), bad().rule) not in rounds.book.states
    assert (subject(MOST - 1), bad().rule) in rounds.book.states
    state = rounds.state()
    assert state is not None
    assert state.episode == 2


def test_a_book_full_of_alerts_takes_no_other() -> None:
    """An alert that fires is not forgotten for another one."""
    rounds = AlertRounds()
    rounds.look(*(bad(subject=subject(number), is_proven=True) for number in range(MOST)))
    rounds.look(bad(is_proven=True))
    assert len(rounds.book.states) == MOST
    assert rounds.state() is None


def test_a_single_bad_look_leaves_no_state() -> None:
    """A single bad look is forgotten once it is no longer among the looks that count."""
    rounds = AlertRounds()
    rounds.look(bad())
    rounds.look(good(), times=4)
    state = rounds.state()
    assert state is not None
    assert state.phase is AlertPhase.OK
    rounds.look(good())
    assert rounds.book.states == {}


def test_an_evaluation_changes_no_book_but_its_own() -> None:
    """The book that an evaluation begins with can be used again, after a commit that failed."""
    rounds = AlertRounds()
    rounds.look(bad(), times=2)
    before = rounds.book
    copy = replace(before, states=dict(before.states))
    rounds.look(bad(), times=5)
    assert before == copy


def test_a_gap_leaves_what_has_no_looks_as_it_is() -> None:
    """A pause of the agent empties the looks once."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.pass_time(100)
    rounds.look(every_s=1)
    before = rounds.state()
    assert before is not None
    assert before.signs == ""
    rounds.pass_time(100)
    rounds.look(every_s=1)
    assert rounds.state() is before


def test_a_final_look_changes_nothing_of_what_is_well() -> None:
    """The end of a model that was well, or bad for one look, is told to nobody."""
    final = replace(good(), is_final=True, over="was stopped")
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.look_for(3600, good())
    before = rounds.state()
    rounds.look(final)
    assert before is not None
    assert rounds.state() is before
    rounds.look(bad())
    rounds.look(final)
    state = rounds.state()
    assert state is not None
    assert state.signs == ""
    assert rounds.told == [TransitionKind.FIRED, TransitionKind.RESOLVED]


def test_a_gap_lets_what_came_and_goes_end_when_it_was_last_bad() -> None:
    """An alert that flaps, and was bad again before a gap of the agent, has not been well since before that."""
    rounds = AlertRounds()
    for _ in range(6):
        rounds.look(bad(), times=3)
        rounds.look(good(), times=2)
    rounds.look(bad(), times=2)
    pending = rounds.state()
    assert pending is not None
    assert (pending.phase, pending.flapping) == (AlertPhase.PENDING, True)
    rounds.pass_time(100)
    rounds.look(every_s=1)
    state = rounds.state()
    assert state is not None
    assert state.phase is AlertPhase.OK
    assert state.ended_unix_s == pending.since_unix_s
