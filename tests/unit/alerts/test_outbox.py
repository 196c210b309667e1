"""Outbox rows: who is told, how an attempt ends, when a row is given up."""

import pytest

from appliance.alerts.outbox import (
    DEAD_AFTER_S,
    OutboxRow,
    after,
    back_off_s,
    begun,
    rows_of,
    settled,
)
from appliance.model.alerts import (
    Notice,
    OutboxState,
    SendOutcome,
    SendResult,
    Severity,
    TransitionKind,
)
from tests.fakes.alert_samples import NOW, transition


def queued(**more: float) -> OutboxRow:
    told = transition()
    return OutboxRow(id=1, key="k", target="phone", transition=told, created_unix_s=NOW, **more)  # type: ignore[arg-type]


def result(outcome: SendOutcome, text: str = "no route") -> SendResult:
    return SendResult(outcome=outcome, text=text)


def test_a_notice_makes_a_row_for_each_target_that_wants_it() -> None:
    """A target has the severities from its lowest one up; without one it has all."""
    lowest = {"pager": Severity.CRITICAL, "phone": Severity.WARNING}
    for severity, told in (
        (Severity.CRITICAL, ["pager", "phone", "log"]),
        (Severity.WARNING, ["phone", "log"]),
        (Severity.INFO, ["log"]),
    ):
        notice = Notice(transition=transition(severity=severity), not_before_unix_s=NOW + 10)
        rows = rows_of(notice, ["pager", "phone", "log"], lowest=lowest, now_unix_s=NOW)
        assert [row.target for row in rows] == told
        assert {row.due_unix_s for row in rows} == {NOW + 10}


def test_keys_differ_by_episode_kind_target_and_the_time_of_repeated_kinds() -> None:
    """The same transition has the same key, so that a row is never stored twice."""
    transitions = [
        transition(),
        transition(unix_s=NOW + 1),
        transition(TransitionKind.RESOLVED),
        transition(TransitionKind.REMINDED),
        transition(TransitionKind.REMINDED, unix_s=NOW + 3600),
        transition(episode=2),
    ]
    keys = [
        rows_of(Notice(transition=one), ["phone"], lowest={}, now_unix_s=NOW)[0].key
        for one in transitions
    ]
    assert keys[0] == keys[1] == "profile:genesis:live-down:1:fired:phone"
    assert len(set(keys)) == 5


@pytest.mark.parametrize(
    ("attempts", "low", "high"), [(1, 5, 6), (2, 15, 18), (5, 900, 1080), (99, 900, 1080)]
)
def test_attempts_back_off(attempts: int, low: float, high: float) -> None:
    """Times grow to a quarter of an hour, with up to a fifth more at random."""
    assert back_off_s(attempts, 0.0) == low
    assert back_off_s(attempts, 1.0) == pytest.approx(high)


def test_an_attempt_ends_as_the_notifier_says() -> None:
    """A failed one is tried again, a refused one is given up, unless it was one of several."""
    row = begun(queued(), now_unix_s=NOW)
    assert (row.state, row.attempts, row.tried_unix_s) == (OutboxState.SENDING, 1, NOW)

    def end(outcome: SendOutcome, text: str = "no route", *, is_joined: bool = False) -> OutboxRow:
        answer = result(outcome, text)
        told = settled(row, answer, is_joined=is_joined, now_unix_s=NOW + 1, jitter=0.0)
        return after(row, told, now_unix_s=NOW + 1)

    sent = end(SendOutcome.SENT, "")
    assert (sent.state, sent.settled_unix_s) == (OutboxState.SENT, NOW + 1)
    retried = end(SendOutcome.RETRY)
    assert (retried.state, retried.text) == (OutboxState.QUEUED, "no route")
    assert (retried.retry_unix_s, retried.settled_unix_s) == (NOW + 6, None)
    assert end(SendOutcome.REFUSED, "").text == "refused"
    assert end(SendOutcome.REFUSED).state is OutboxState.DEAD
    assert end(SendOutcome.REFUSED, is_joined=True).state is OutboxState.QUEUED


def test_a_row_is_given_up_after_seven_days_by_a_failed_attempt() -> None:
    """A clock that was years ahead or behind costs no row that can be sent."""
    row = begun(queued(not_before_unix_s=NOW + 100), now_unix_s=NOW)
    last = NOW + 100 + DEAD_AFTER_S
    for outcome, at, state in (
        (SendOutcome.RETRY, last, OutboxState.QUEUED),
        (SendOutcome.RETRY, last + 1, OutboxState.DEAD),
        (SendOutcome.SENT, last + 1e9, OutboxState.SENT),
    ):
        answer = result(outcome)
        end = settled(row, answer, is_joined=False, now_unix_s=at, jitter=0.0)
        assert end.state is state
    end = settled(row, result(SendOutcome.RETRY), is_joined=False, now_unix_s=1e12, jitter=0.0)
    assert end.text == "given up: no route"
