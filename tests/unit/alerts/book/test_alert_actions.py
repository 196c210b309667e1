"""Operators' actions: silences, windows, tests; what is refused, what is bounded."""

import pytest

from appliance.alerts.book.alert_book import (
    PlannedWindow,
    add_window,
    fire_test,
    remove_window,
    silence,
    unsilence,
)
from appliance.alerts.book.alert_state import MOST_SILENCES, MOST_WINDOWS
from appliance.model.alerts import BOX, AlertRule, Subject, SubjectKind, TransitionKind
from appliance.model.errors import BadRequestError, NotFoundError
from tests.fakes.alert_rounds import GENESIS, NOON, AlertRounds, bad

FIRED = TransitionKind.FIRED
SILENCED, UNSILENCED = TransitionKind.SILENCED, TransitionKind.UNSILENCED
HOUR = PlannedWindow(name="backup", begin="12:00", minutes=60)


def test_a_silence_ends_by_itself() -> None:
    """An alert that fires in a silence is told when its time is over, and the silence is gone."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "new fan", rounds.now))
    rounds.look(bad(), times=59)
    assert rounds.told == []
    state = rounds.state()
    assert state is not None
    assert state.reason == "silenced: new fan"
    rounds.look(bad(), times=2)
    assert rounds.told == [FIRED]
    assert rounds.book.silences == ()
    ended = rounds.transitions[-2]
    assert (ended.kind, ended.by, ended.reason) == (UNSILENCED, "", "its time is over")


def test_a_silence_is_about_its_subject_alone() -> None:
    """Another profile is told."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "", rounds.now))
    other = Subject(kind=SubjectKind.PROFILE, name="aeon")
    rounds.look(bad(), bad(subject=other), times=3)
    assert [notice.transition.subject for notice in rounds.notices] == [other]


def test_a_silence_can_be_ended() -> None:
    """The user who ends a silence is recorded with each alert that fires."""
    rounds = AlertRounds()
    rounds.look(bad(), times=3)
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "new fan", rounds.now))
    rounds.act(unsilence(rounds.book, GENESIS, "bob", rounds.now))
    recorded = [(each.kind, each.by, each.reason) for each in rounds.transitions[-2:]]
    assert recorded == [(SILENCED, "ana", "new fan"), (UNSILENCED, "bob", "")]
    with pytest.raises(BadRequestError, match="not silenced"):
        unsilence(rounds.book, GENESIS, "bob", rounds.now)


def test_a_second_silence_takes_the_place_of_the_first() -> None:
    """A subject has one silence; its number is new."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "", rounds.now))
    rounds.act(silence(rounds.book, GENESIS, 60, "bob", "", rounds.now))
    assert [(one.id, one.by) for one in rounds.book.silences] == [(2, "bob")]


@pytest.mark.parametrize("for_s", [0, -1, 7 * 86400 + 1, float("nan"), float("inf")])
def test_a_silence_of_another_length_is_refused(for_s: float) -> None:
    """No silence lasts for ever."""
    with pytest.raises(BadRequestError, match="7 days"):
        silence(AlertRounds().book, GENESIS, for_s, "ana", "", NOON)


def test_silences_are_bounded() -> None:
    """The two hundred and first subject is refused, and long texts are cut."""
    book = AlertRounds().book
    for number in range(MOST_SILENCES):
        subject = Subject(kind=SubjectKind.PROFILE, name=str(number))
        book = silence(book, subject, 60, "a" * 1000, "r\n" * 1000, NOON).book
    assert all(len(one.by) + len(one.reason) < 400 for one in book.silences)
    assert "\n" not in book.silences[0].reason
    with pytest.raises(BadRequestError, match="unsilence"):
        silence(book, GENESIS, 60, "ana", "", NOON)


def test_a_silence_does_not_grow_with_a_clock_that_is_set_back() -> None:
    """A clock that goes back by a year makes no silence of a year."""
    rounds = AlertRounds()
    rounds.act(silence(rounds.book, GENESIS, 600, "ana", "", rounds.now))
    rounds.now = NOON.__class__(unix_s=1e9, monotonic_s=2000.0, boot_s=2000.0)
    rounds.look(bad(), every_s=10)
    assert rounds.book.silences[0].until_unix_s == rounds.now.unix_s + 7 * 86400


def test_a_window_holds_what_it_is_about() -> None:
    """A window about the box holds alerts of the box, one about everything all of them."""
    for subjects, told in ((("box",), {GENESIS}), (("genesis",), {BOX}), ((), set())):
        rounds = AlertRounds()
        window = PlannedWindow(name="backup", begin="12:00", minutes=60, subjects=subjects)
        rounds.act(add_window(rounds.book, window))
        rounds.look(bad(), bad(AlertRule.GATEWAY_DOWN, BOX), times=5)
        assert {notice.transition.subject for notice in rounds.notices} == told
        rounds.look(bad(), bad(AlertRule.GATEWAY_DOWN, BOX), times=400)
        assert {notice.transition.subject for notice in rounds.notices} == {GENESIS, BOX}


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (PlannedWindow(name="", begin="12:00", minutes=60), "name"),
        (PlannedWindow(name="a\nb", begin="12:00", minutes=60), "name"),
        (PlannedWindow(name="n" * 65, begin="12:00", minutes=60), "name"),
        (PlannedWindow(name="w", begin="24:00", minutes=60), "time of day"),
        (PlannedWindow(name="w", begin="12:00\n", minutes=60), "time of day"),
        (PlannedWindow(name="w", begin="12:00", minutes=0), "12 hours"),
        (PlannedWindow(name="w", begin="12:00", minutes=721), "12 hours"),
        (PlannedWindow(name="w", begin="12:00", minutes=60, days=("mon", "Tue")), "day"),
        (PlannedWindow(name="w", begin="12:00", minutes=60, subjects=("a",) * 65), "subjects"),
    ],
)
def test_a_window_that_cannot_be_is_refused(window: PlannedWindow, words: str) -> None:
    """The refusal says what is wrong."""
    with pytest.raises(BadRequestError, match=words):
        add_window(AlertRounds().book, window)


def test_windows_are_bounded_and_removed_by_name() -> None:
    """A window of the same name is replaced; the hundred and first is refused."""
    book = AlertRounds().book
    for number in range(MOST_WINDOWS):
        book = add_window(
            book, PlannedWindow(name=f"w{number}", begin="12:00", minutes=60, reason="r" * 999)
        ).book
    assert max(len(one.reason) for one in book.windows) == 300
    with pytest.raises(BadRequestError, match="window rm"):
        add_window(book, HOUR)
    book = add_window(book, PlannedWindow(name="w7", begin="13:00", minutes=5)).book
    book = add_window(remove_window(book, "w3").book, HOUR).book
    assert len(book.windows) == MOST_WINDOWS
    with pytest.raises(NotFoundError, match='no window "w3"'):
        remove_window(book, "w3")


def test_a_test_is_told_and_not_kept() -> None:
    """A test alert has an id of its own, and leaves no state."""
    book = AlertRounds().book
    first, second = (fire_test(book, "ana", NOON) for _ in range(2))
    second = fire_test(first.book, "ana", NOON)
    assert [one.notices[0].transition.alert for one in (first, second)] == ["A1", "A2"]
    assert first.notices[0].transition in first.transitions
    assert second.book.states == {}
