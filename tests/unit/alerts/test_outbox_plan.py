"""Plan for the outbox of a target: order, collapse, digests, summaries, who waits for whom."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from appliance.alerts.outbox import OutboxRow, TargetHealth, row_key
from appliance.alerts.outbox_plan import (
    DeliveryForm,
    OutboxPlan,
    collapse,
    plan_deliveries,
)
from appliance.model.alerts import (
    AlertRule,
    OutboxState,
    SendOutcome,
    SendResult,
    Severity,
    TransitionKind,
)
from tests.fakes.alert_samples import AEON, GENESIS, NOW, profile_subject, transition

FIRED, RESOLVED = TransitionKind.FIRED, TransitionKind.RESOLVED
REMINDED, CHANGED = TransitionKind.REMINDED, TransitionKind.CHANGED
FLAPPING = TransitionKind.FLAPPING
WELL = TargetHealth()
HOUR_S = 3600.0


def row(number: int, kind: TransitionKind = FIRED, **more: object) -> OutboxRow:
    """A queued row that was made just now, unless `at` says when."""
    of_row = {"not_before_unix_s", "is_digest", "attempts", "tried_unix_s", "retry_unix_s"}
    at = float(str(more.pop("at", NOW)))
    own = {name: more.pop(name) for name in of_row & more.keys()}
    told = transition(kind, unix_s=at, **more)  # type: ignore[arg-type]
    return OutboxRow(
        id=number,
        key=f"{row_key(told, 'phone')}:{number}",
        target="phone",
        transition=told,
        created_unix_s=at,
        **own,  # type: ignore[arg-type]
    )


def tried(one: OutboxRow, attempts: int = 1, *, ago_s: float = 1.0) -> OutboxRow:
    """The row after failed attempts, the last of them a moment ago."""
    return replace(
        one, attempts=attempts, tried_unix_s=NOW - ago_s, retry_unix_s=NOW - ago_s + HOUR_S
    )


def planned(
    *rows: OutboxRow,
    health: TargetHealth = WELL,
    now: float = NOW + 1,
    last_sent: float | None = NOW,
) -> OutboxPlan:
    return plan_deliveries(rows, health, now_unix_s=now, last_sent_unix_s=last_sent)


def sent(plan: OutboxPlan) -> Sequence[tuple[str, Sequence[int]]]:
    """The forms and rows of the deliveries, in order."""
    return [(d.form.value, [one.id for one in d.rows]) for d in plan.deliveries]


def singles(plan: OutboxPlan) -> Sequence[int]:
    assert all(delivery.form is DeliveryForm.SINGLE for delivery in plan.deliveries)
    return [delivery.rows[0].id for delivery in plan.deliveries]


def failed(health: TargetHealth, *rows: OutboxRow, at: float = NOW, **more: float) -> TargetHealth:
    retry = SendResult(outcome=SendOutcome.RETRY, **more)  # type: ignore[arg-type]
    return health.after(retry, rows, is_joined=False, now_unix_s=at, jitter=0.0)


def took(health: TargetHealth, *rows: OutboxRow, at: float = NOW) -> TargetHealth:
    result = SendResult(outcome=SendOutcome.SENT)
    return health.after(result, rows, is_joined=False, now_unix_s=at, jitter=0.0)


# --- collapse ------------------------------------------------------------------------


def test_a_firing_that_was_never_late_and_its_end_are_not_told() -> None:
    """An alert that ends within its grouping is dropped, with the reminder between."""
    rows = [row(1), row(2, REMINDED), row(3, RESOLVED, at=NOW + 5)]
    dropped, kept = collapse(rows)
    assert (set(dropped), kept) == ({1, 2, 3}, [])


def test_the_end_of_a_firing_that_was_late_or_tried_is_told_once() -> None:
    """People learn of what they should have been told long ago; a tried row may have come through."""
    late = [row(1), row(2, RESOLVED, at=NOW + 61)]
    attempted = [tried(row(1)), row(2, RESOLVED)]
    for rows in (late, attempted):
        dropped, kept = collapse(rows)
        assert dropped == {1: "over before it could be sent"}
        assert kept == rows[1:]


def test_the_end_of_a_firing_that_was_told_is_told() -> None:
    """A reminder that waits is dropped."""
    dropped, kept = collapse([row(2, REMINDED), row(3, RESOLVED)])
    assert (set(dropped), [one.id for one in kept]) == ({2}, [3])


def test_reminders_collapse_to_the_newest_or_into_the_firing() -> None:
    """A message is made when it is sent: the firing says all that a reminder does."""
    dropped, kept = collapse([row(2, REMINDED), row(3, REMINDED)])
    assert (set(dropped), [one.id for one in kept]) == ({2}, [3])
    dropped, kept = collapse([row(1), row(2, REMINDED), row(3, REMINDED)])
    assert (set(dropped), [one.id for one in kept]) == ({2, 3}, [1])


def test_a_severity_that_rose_takes_the_place_of_the_firing() -> None:
    """A message that the alert comes and goes does, too; what follows it says no more."""
    for kind in (CHANGED, FLAPPING):
        dropped, kept = collapse([row(1), row(2, kind), row(3, REMINDED)])
        assert (set(dropped), [one.id for one in kept]) == ({1, 3}, [2])


def test_episodes_and_rules_collapse_apart() -> None:
    """An end drops only the firing of its own episode."""
    rows = [
        row(1),
        row(2, rule=AlertRule.SLOW),
        row(3, RESOLVED),
        row(4, episode=2),
    ]
    dropped, kept = collapse(rows)
    assert (set(dropped), [one.id for one in kept]) == ({1, 3}, [2, 4])


def test_an_alert_that_came_and_went_in_quiet_hours_is_in_the_digest() -> None:
    """The end waits with the firing, though that alone was held."""
    night: dict[str, Any] = {"not_before_unix_s": NOW + HOUR_S, "is_digest": True}
    rows = [
        row(1, **night),
        row(2, REMINDED, **night),
        row(3, RESOLVED, at=NOW + 600),
        row(4, subject=AEON, **night),
    ]
    plan = planned(*rows, now=NOW + 700)
    assert (set(plan.dropped), sent(plan), plan.next_unix_s) == ({2}, [], NOW + HOUR_S)
    plan = planned(*rows, now=NOW + HOUR_S)
    assert sent(plan) == [("digest", [1, 3, 4])]
    assert plan.deliveries[0].joined_id == "digest-1"


# --- order ---------------------------------------------------------------------------


def test_the_most_severe_goes_first_and_a_subject_keeps_its_order() -> None:
    """A critical alert does not overtake an earlier warning of its own subject."""
    warning = Severity.WARNING
    rows = [
        row(1, severity=warning, rule=AlertRule.SLOW),
        row(2, subject=AEON, severity=warning),
        row(3, subject=profile_subject("x")),
        row(4),
    ]
    assert singles(planned(*rows)) == [3, 1, 4, 2]


def test_a_row_that_waits_for_its_next_attempt_holds_its_subject() -> None:
    """Rows of other subjects go on; the next plan is made when it may be tried again."""
    rows = [tried(row(1)), row(2, rule=AlertRule.SLOW), row(3, subject=AEON)]
    assert singles(planned(*rows)) == [3]
    plan = planned(*rows[:2])
    assert (sent(plan), plan.next_unix_s) == ([], NOW - 1 + HOUR_S)


def test_a_row_that_fails_while_others_get_through_holds_its_own_rule_alone() -> None:
    """A message that no server takes keeps back no other alert of its model, after five attempts."""
    rows = [
        tried(row(1), 5),
        row(2, rule=AlertRule.SLOW, severity=Severity.WARNING),
        row(3, CHANGED, episode=2),
    ]
    assert singles(planned(*rows)) == [2]
    assert sent(planned(*rows, health=replace(WELL, failures=1))) == []


def test_what_failed_last_is_tried_last() -> None:
    """A message that a server does not take keeps back no other for long."""
    rows = [row(1), row(2, subject=AEON, severity=Severity.WARNING)]
    after_failure = failed(WELL, rows[0], at=NOW - 10)
    assert singles(planned(*rows, health=after_failure)) == [2, 1]


def test_a_held_row_holds_its_own_rule_alone() -> None:
    """A critical alert passes a warning that waits for the morning, and not one that groups."""
    rows = [
        row(1, rule=AlertRule.SLOW, not_before_unix_s=NOW + 60, is_digest=True),
        row(2),
        row(3, rule=AlertRule.SLOW, episode=2),
    ]
    plan = planned(*rows)
    assert singles(plan) == [2]
    assert planned(rows[0]).next_unix_s == NOW + 60


def test_a_clock_that_was_set_back_holds_nothing() -> None:
    """A row of the future is sent at once, since nobody knows when its time comes."""
    held = row(1, not_before_unix_s=NOW + HOUR_S, is_digest=True)
    backing_off = tried(row(2, subject=AEON))
    paused = failed(WELL, held)
    rows = (held, backing_off)
    assert len(planned(*rows, health=paused, now=NOW - 100 * HOUR_S).deliveries) == 2
    assert planned(*rows, health=paused).deliveries == ()


# --- digests -------------------------------------------------------------------------


def test_a_digest_goes_after_the_messages_before_it() -> None:
    """A later message about what it tells of waits for it; a digest of one is a message."""
    rows = [
        row(1, subject=AEON, rule=AlertRule.SLOW),
        row(2, rule=AlertRule.SLOW, is_digest=True),
        row(3, subject=AEON, is_digest=True),
        row(4, rule=AlertRule.SLOW, episode=2),
        row(5, rule=AlertRule.SLOW, episode=3),
    ]
    assert sent(planned(*rows, last_sent=NOW + 1)) == [("single", [1]), ("digest", [2, 3])]
    assert sent(planned(rows[1])) == [("single", [2])]


def test_a_target_that_refuses_a_digest_has_its_rows_one_by_one() -> None:
    """A message that is too long for a server costs none of its alerts."""
    rows = [row(n, subject=profile_subject(f"p{n}"), is_digest=True) for n in range(1, 7)]
    refused = SendResult(outcome=SendOutcome.REFUSED)
    health = WELL.after(refused, rows, is_joined=True, now_unix_s=NOW, jitter=0.0)
    assert singles(planned(*rows, health=health)) == [1, 2, 3, 4, 5, 6]
    late = planned(*rows, health=health, now=NOW + HOUR_S)
    assert singles(late) == [1, 2, 3, 4, 5, 6]


# --- outages -------------------------------------------------------------------------


def test_a_summary_takes_the_place_of_what_waited_through_an_outage() -> None:
    """More than three rows wait, the oldest for more than ten minutes, and none got through since."""
    rows = [row(n, subject=profile_subject(f"p{n}")) for n in range(1, 5)]
    late = NOW + 601
    plan = planned(*rows, now=late)
    assert sent(plan) == [("single", [n]) for n in (1, 2, 3, 4)]  # one was sent at that moment
    for last_sent in (None, NOW - 1, late + 5):
        plan = planned(*rows, now=late, last_sent=last_sent)
        assert sent(plan) == [("summary", [1, 2, 3, 4])]
    (delivery,) = plan.deliveries
    assert delivery.delay_s(late) == 601
    assert [one.subject for one in delivery.transitions] == [one.transition.subject for one in rows]
    assert len(planned(*rows[:3], now=late, last_sent=None).deliveries) == 3
    assert len(planned(*rows, now=late - 1, last_sent=None).deliveries) == 4


def test_a_summary_has_what_waits_for_its_next_attempt_and_not_what_is_held() -> None:
    """Rows of quiet hours wait on."""
    rows = [tried(row(n, subject=profile_subject(f"p{n}"), at=NOW - HOUR_S)) for n in range(1, 5)]
    held = row(5, subject=AEON, not_before_unix_s=NOW + HOUR_S, is_digest=True)
    assert sent(planned(*rows, held, last_sent=None)) == [("summary", [1, 2, 3, 4])]


def test_a_paused_target_is_asked_for_nothing() -> None:
    """The plan for it is made when the pause is over; one without rows waits for news."""
    health = failed(WELL, row(1))
    plan = planned(row(1), row(2, subject=AEON), health=health)
    assert (sent(plan), plan.next_unix_s) == ([], NOW + 5)
    plan = planned(row(1), row(2, RESOLVED), health=health)
    assert (set(plan.dropped), sent(plan), plan.next_unix_s) == ({1, 2}, [], None)


def test_the_pause_grows_with_failures_and_as_the_target_asks() -> None:
    """A target may ask for an hour at most; a message that it takes ends the pause."""
    health, pauses = WELL, []
    for _ in range(6):
        health = failed(health, row(1))
        pauses.append(health.pause_until_unix_s - NOW)
    assert pauses == [5, 15, 60, 300, 900, 900]
    assert failed(WELL, row(1), retry_after_s=120.0).pause_until_unix_s == NOW + 120
    assert failed(WELL, row(1), retry_after_s=1e9).pause_until_unix_s == NOW + 3600
    assert not took(health, row(1)).is_paused(NOW)
    assert not health.lifted(NOW).is_paused(NOW)


def test_rows_that_failed_in_an_outage_are_tried_as_soon_as_it_ends() -> None:
    """A single row that fails beside others that get through keeps its time."""
    first, second = tried(row(1)), tried(row(2, subject=AEON))
    outage = failed(failed(WELL, first, at=NOW - 1), second, at=NOW - 1)
    back = took(outage, row(3, subject=profile_subject("x")))
    assert singles(planned(first, second, health=back)) == [1, 2]
    beside = took(failed(WELL, first, at=NOW - 1), second)
    assert sent(planned(first, health=beside)) == []
    assert singles(planned(first, health=beside.lifted(NOW))) == [1]
    again = tried(first, 2, ago_s=-0.5)
    assert sent(planned(again, health=back)) == []


def test_states_of_rows_are_their_own() -> None:
    """A row that was made by hand in a test has the state of one that waits."""
    assert row(1).state is OutboxState.QUEUED
    assert row(1).order == (GENESIS, AlertRule.LIVE_DOWN)
