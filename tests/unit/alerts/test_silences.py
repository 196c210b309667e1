"""Operators' actions: silences, windows, tests; what is refused, what is bounded."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from appliance.alerts.book import MOST_SILENCES, MOST_WINDOWS, AlertBook, AlertPolicy
from appliance.alerts.silences import (
    StopByRequest,
    add_window,
    quiet_until,
    remove_window,
    silence,
    silence_stopped,
    started,
    unsilence,
    unsilence_started,
    windows_at,
)
from appliance.model.alerts import BOX, AlertRule, Subject, SubjectKind, TransitionKind
from appliance.model.errors import BadRequestError, NotFoundError
from appliance.wire.alert_requests import PlannedWindow
from tests.fakes.alert_rounds import GENESIS, NOON, NOON_UNIX_S, AlertRounds, bad
from tests.fakes.alert_samples import told, transition

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
    for subjects, expected in ((("box",), {GENESIS}), (("genesis",), {BOX}), ((), set())):
        rounds = AlertRounds()
        window = PlannedWindow(name="backup", begin="12:00", minutes=60, subjects=subjects)
        rounds.act(add_window(rounds.book, window))
        rounds.look(bad(), bad(AlertRule.GATEWAY_DOWN, BOX), times=5)
        assert {notice.transition.subject for notice in rounds.notices} == expected
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


AEON = Subject(kind=SubjectKind.PROFILE, name="aeon")
HOUR_S = 3600.0


def stop(*names: str, ago_s: float = 0.0) -> StopByRequest:
    return StopByRequest(operation=7, profiles=names, ended_unix_s=NOON_UNIX_S - ago_s)


def test_a_stop_is_silent_for_two_hours() -> None:
    """Each profile of it has a silence from the stop on, with its reason."""
    found = silence_stopped(AlertBook(), stop("genesis", "aeon", ago_s=600), NOON).book.silences
    assert [(each.subject, each.by, each.ends_at_start) for each in found] == [
        (GENESIS, "a stop", True),
        (AEON, "a stop", True),
    ]
    assert {each.until_unix_s for each in found} == {NOON_UNIX_S - 600 + 2 * HOUR_S}
    assert {each.reason for each in found} == {"stopped on purpose"}


def test_an_alert_that_fires_already_is_recorded_as_silenced() -> None:
    """The record has the stop as its cause, and the start as its end."""
    book = told([transition()]).book
    begun = silence_stopped(book, stop("genesis"), NOON)
    assert [(each.kind, each.by) for each in begun.transitions] == [
        (TransitionKind.SILENCED, "a stop")
    ]
    ended = unsilence_started(begun.book, {"genesis"}, NOON)
    assert [each.kind for each in ended.transitions] == [TransitionKind.UNSILENCED]
    assert ended.book.silences == ()


@pytest.mark.parametrize(("ago_s", "count"), [(2 * HOUR_S, 0), (2 * HOUR_S - 1, 1), (-HOUR_S, 1)])
def test_an_old_stop_silences_nothing(ago_s: float, count: int) -> None:
    """One that is said to come, after a clock was set, lasts no longer than the usual."""
    found = silence_stopped(AlertBook(), stop("genesis", ago_s=ago_s), NOON).book.silences
    assert len(found) == count
    assert all(each.until_unix_s <= NOON_UNIX_S + 2 * HOUR_S for each in found)


@pytest.mark.parametrize(("for_s", "ends_at_start"), [(HOUR_S, True), (3 * HOUR_S, False)])
def test_a_longer_silence_of_an_operator_stays(for_s: float, *, ends_at_start: bool) -> None:
    """A shorter one is replaced; neither is ever shortened."""
    book = silence(AlertBook(), GENESIS, for_s, "bob", "move", NOON).book
    (found,) = silence_stopped(book, stop("genesis"), NOON).book.silences
    assert found.ends_at_start is ends_at_start
    assert found.until_unix_s >= NOON_UNIX_S + 2 * HOUR_S


def test_a_start_ends_only_the_silences_of_stops() -> None:
    """Silences of other profiles, and those that operators made, stay."""
    book = silence(AlertBook(), AEON, HOUR_S, "bob", "move", NOON).book
    book = silence_stopped(book, stop("genesis"), NOON).book
    assert started(book, {"aeon"}) == []
    assert started(book, {"genesis", "aeon"}) == [GENESIS]
    assert unsilence_started(book, {"aeon"}, NOON).book == book
    (left,) = unsilence_started(book, {"genesis", "aeon"}, NOON).book.silences
    assert left.subject == AEON


ROME = "Europe/Rome"
"""The clock goes from 2:00 to 3:00 on 28 March 2027, and from 3:00 to 2:00 on 31 October."""


def unix_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def spans_of(window: PlannedWindow, begin: str, hours: int, zone: str = ROME) -> list[str]:
    """Return the UTC times at which a window begins and ends, found by the minute."""
    policy, found, was_in = AlertPolicy(time_zone=zone), [], False
    for minute in range(hours * 60):
        moment = unix_s(begin) + 60 * minute
        is_in = bool(windows_at([window], policy, moment))
        if is_in != was_in:
            found.append(datetime.fromtimestamp(moment, UTC).strftime("%d %H:%M"))
        was_in = is_in
    return found


def window(begin: str, minutes: int, *days: str) -> PlannedWindow:
    return PlannedWindow(name="w", begin=begin, minutes=minutes, days=days)


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (window("12:00", 60), ["29 10:00", "29 11:00", "30 10:00", "30 11:00"]),
        (window("23:30", 60), ["28 22:00", "28 22:30", "29 21:30", "29 22:30", "30 21:30"]),
        (window("23:30", 60, "tue"), ["29 21:30", "29 22:30"]),
        (window("12:00", 60, "mon", "fri"), []),
    ],
)
def test_a_window_recurs_in_local_time(planned: PlannedWindow, found: list[str]) -> None:
    """Tuesday 29 and Wednesday 30 June: each day, over midnight, on the days of its beginning."""
    assert spans_of(planned, "2027-06-28T22:00", 48) == found


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (window("02:30", 60), ["28 01:00", "28 02:30"]),
        (window("02:00", 60), ["28 01:00", "28 02:00"]),
        (window("01:00", 180), ["28 00:00", "28 03:00"]),
        (window("01:30", 60), ["28 00:30", "28 01:30"]),
        (window("03:00", 60), ["28 01:00", "28 02:00"]),
    ],
)
def test_a_window_in_the_hour_that_is_skipped(planned: PlannedWindow, found: list[str]) -> None:
    """A window that begins in the missing hour begins with the change, and lasts its time at least."""
    assert spans_of(planned, "2027-03-27T20:00", 12) == found


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (window("02:30", 60), ["31 00:30", "31 02:30"]),
        (window("02:10", 30), ["31 00:10", "31 01:40"]),
        (window("01:30", 60), ["30 23:30", "31 01:30"]),
        (window("03:00", 60), ["31 02:00", "31 03:00"]),
    ],
)
def test_a_window_in_the_hour_that_comes_twice(planned: PlannedWindow, found: list[str]) -> None:
    """A window in the doubled hour lasts from the first time that the clock shows it to the last."""
    assert spans_of(planned, "2027-10-30T20:00", 12) == found


@pytest.mark.parametrize(
    ("quiet", "moment", "end"),
    [
        (("22:00", "07:00"), "2027-06-29T19:59", None),
        (("22:00", "07:00"), "2027-06-29T20:00", "2027-06-30T05:00"),
        (("22:00", "07:00"), "2027-06-30T04:59", "2027-06-30T05:00"),
        (("22:00", "07:00"), "2027-06-30T05:00", None),
        (("12:00", "13:00"), "2027-06-30T10:30", "2027-06-30T11:00"),
        (("22:00", "07:00"), "2027-03-28T00:30", "2027-03-28T05:00"),
        (("22:00", "07:00"), "2027-10-31T00:30", "2027-10-31T06:00"),
        (("22:00", "02:30"), "2027-03-28T00:59", "2027-03-28T01:00"),
        (("22:00", "02:30"), "2027-03-28T01:00", None),
        (("22:00", "02:30"), "2027-10-31T00:45", "2027-10-31T01:30"),
        (("02:30", "07:00"), "2027-03-28T01:00", "2027-03-28T05:00"),
        (("07:00", "07:00"), "2027-06-30T10:00", "2027-07-01T05:00"),
    ],
)
def test_quiet_hours_end_when_the_clock_shows_it(
    quiet: tuple[str, str], moment: str, end: str | None
) -> None:
    """Quiet hours go by the clock on the wall, on days on which it is changed too."""
    policy = AlertPolicy(time_zone=ROME, quiet_from=quiet[0], quiet_to=quiet[1])
    expected = None if end is None else unix_s(end)
    assert quiet_until(policy, unix_s(moment)) == expected


def test_there_may_be_no_quiet_hours() -> None:
    """Without a beginning or an end there are none."""
    assert quiet_until(AlertPolicy(), 0.0) is None
    assert quiet_until(AlertPolicy(quiet_from="22:00"), 0.0) is None


@pytest.fixture
def box_in_rome(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", ROME)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("box_in_rome")
@pytest.mark.parametrize("zone", ["", "No/Where", "../etc/passwd"])
def test_the_zone_of_the_box_is_used_where_none_is_known(zone: str) -> None:
    """An empty name, or one that this box has no rules for, is the zone of the box."""
    policy = AlertPolicy(time_zone=zone, quiet_from="22:00", quiet_to="02:30")
    assert quiet_until(policy, unix_s("2027-10-31T00:45")) == unix_s("2027-10-31T01:30")
    assert spans_of(window("02:30", 60), "2027-03-27T20:00", 12, zone) == ["28 01:00", "28 02:30"]
