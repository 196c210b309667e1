"""Requests that engines had when they died."""

import pytest

from appliance.model.gateway import Standing, State
from appliance.routing.crash_record import KEPT_S, LOST_S, CrashRecord

SERVES = State(standings={"a": Standing.SERVING, "b": Standing.SERVING})
CRASHED = State(standings={"a": Standing.STARTING, "b": Standing.SERVING}, crashed=frozenset({"a"}))
FAILED = State(standings={"b": Standing.SERVING}, failed=frozenset({"a"}))
RESTARTED = State(standings={"b": Standing.SERVING})


def die(
    record: CrashRecord, now_s: float, *digests: int, after: State = CRASHED, late: bool = False
) -> None:
    """The engine of a dies with requests, which are lost before or after the news; another serves then."""
    if not late:
        for digest in digests:
            record.lost("a", digest, now_s)
    record.follow(SERVES, after, now_s)
    if late:
        for digest in digests:
            record.lost("a", digest, now_s)
    record.follow(after, SERVES, now_s)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", [CRASHED, FAILED])
def test_a_request_in_flight_at_two_deaths_is_refused(after: State, *, late: bool) -> None:
    """The second death counts, for the profile alone, and for half an hour."""
    record = CrashRecord()
    die(record, 10.0, 1, 1, after=after, late=late)
    assert not record.refuses("a", 1, 10.0)
    die(record, 20.0, 1, 2, after=after, late=late)
    assert record.refuses("a", 1, 20.0)
    assert not record.refuses("a", 2, 20.0)
    assert not record.refuses("b", 1, 20.0)
    assert record.refuses("a", 1, 20.0 + KEPT_S)
    assert not record.refuses("a", 1, 20.1 + KEPT_S)
    record.follow(SERVES, SERVES, 20.1 + KEPT_S)
    assert not record.suspects


def test_what_is_no_death_counts_nothing() -> None:
    """Neither a loss without news, nor one long before them, nor a stop, nor a restart by hand."""
    record = CrashRecord()
    for now_s in (10.0, 100.0, 200.0):
        record.lost("a", 1, now_s)
        die(record, now_s + LOST_S + 0.1)
        record.lost("a", 2, now_s + 20)
        record.follow(SERVES, RESTARTED, now_s + 20)
        record.follow(RESTARTED, SERVES, now_s + 21)
    assert not record.refuses("a", 1, 300.0)
    assert not record.refuses("a", 2, 300.0)


def test_one_death_is_counted_once() -> None:
    """A start that fails after a death is no second death of the requests that were lost before."""
    record = CrashRecord()
    record.lost("a", 1, 10.0)
    for _ in range(3):
        record.follow(SERVES, CRASHED, 10.0)
        record.follow(CRASHED, RESTARTED, 10.0)
    assert not record.refuses("a", 1, 10.0)


def test_an_answered_request_is_forgotten() -> None:
    """A request that was there by chance begins anew."""
    record = CrashRecord()
    die(record, 10.0, 1)
    record.answered("a", 1)
    die(record, 20.0, 1)
    assert not record.refuses("a", 1, 20.0)


def test_few_requests_are_kept() -> None:
    """However many are lost; the newest stay."""
    record = CrashRecord()
    for late in (False, True):
        die(record, 10.0, *range(10_000), late=late)
        assert len(record.suspects) == 256
    for _ in range(2):
        die(record, 20.0, *range(10_000))
    assert len(record.suspects) == 256
    assert record.refuses("a", 9_999, 20.0)
    assert not record.refuses("a", 0, 20.0)
