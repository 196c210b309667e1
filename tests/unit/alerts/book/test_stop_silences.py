"""Silences of profiles that were stopped on purpose."""

import pytest

from appliance.alerts.book.alert_book import AlertBook, silence
from appliance.alerts.book.stop_silences import (
    StopByRequest,
    silence_stopped,
    started,
    unsilence_started,
)
from appliance.model.alerts import Subject, SubjectKind, TransitionKind
from tests.fakes.alert_rounds import GENESIS, NOON, NOON_UNIX_S
from tests.fakes.alert_samples import told, transition

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
