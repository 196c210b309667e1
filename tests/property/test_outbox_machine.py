"""Outbox of one target under random alerts, failures, kills and times: nothing lost, order kept.

The test keeps a phone, which has what arrived, and is told apart from what the outbox believes: a message
may arrive while its attempt fails, as with a connection that ends before the answer, or a kill.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.alerts.outbox import (
    OutboxRow,
    TargetHealth,
    after,
    begun,
    rows_of,
    settled,
)
from appliance.alerts.outbox_plan import (
    Delivery,
    DeliveryForm,
    OutboxPlan,
    plan_deliveries,
)
from appliance.model.alerts import (
    AlertRule,
    Notice,
    OutboxState,
    SendOutcome,
    SendResult,
    Severity,
    TransitionKind,
)
from tests.fakes.alert_samples import NOW, profile_subject, transition

FIRED, RESOLVED = TransitionKind.FIRED, TransitionKind.RESOLVED
NAMES = st.sampled_from(["a", "b", "c"])
RULES = st.sampled_from([AlertRule.LIVE_DOWN, AlertRule.SLOW])
HOLDS = st.sampled_from([(0.0, False), (10.0, False), (3600.0, True)])
STUBBORN = 5
Key = tuple[str, AlertRule]


class AttemptEnd(StrEnum):
    """End of an attempt."""

    SENT = "sent"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    """The message arrives, and its answer does not."""
    REFUSED = "refused"
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"


ARRIVING = {AttemptEnd.SENT, AttemptEnd.UNANSWERED, AttemptEnd.KILLED_AFTER}
OUTCOMES = {
    AttemptEnd.SENT: SendOutcome.SENT,
    AttemptEnd.FAILED: SendOutcome.RETRY,
    AttemptEnd.UNANSWERED: SendOutcome.RETRY,
    AttemptEnd.REFUSED: SendOutcome.REFUSED,
}


class OutboxMachine(RuleBasedStateMachine):
    """Outbox, target and phone."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.health = TargetHealth()
        self.rows: dict[int, OutboxRow] = {}
        self.open: dict[Key, int] = {}
        """Episodes that go on."""
        self.episodes: dict[Key, int] = defaultdict(int)
        self.phone: list[int] = []
        """Rows that arrived, in order."""
        self.unsure = 0
        """Messages that arrived while their attempt failed."""

    # --- alerts

    @rule(name=NAMES, what=RULES, hold=HOLDS, is_severe=st.booleans())
    def fire(
        self, *, name: str, what: AlertRule, hold: tuple[float, bool], is_severe: bool
    ) -> None:
        key = (name, what)
        if key not in self.open:
            self.episodes[key] += 1
            self.open[key] = self.episodes[key]
            severity = Severity.CRITICAL if is_severe else Severity.WARNING
            self.add(key, FIRED, hold=hold, severity=severity)

    @rule(name=NAMES, what=RULES, kind=st.sampled_from(list(TransitionKind)[:4]))
    def go_on(self, name: str, what: AlertRule, kind: TransitionKind) -> None:
        key = (name, what)
        if key in self.open and kind is not FIRED:
            self.add(key, kind)
            if kind is RESOLVED:
                del self.open[key]

    def add(
        self,
        key: Key,
        kind: TransitionKind,
        hold: tuple[float, bool] = (0.0, False),
        severity: Severity = Severity.CRITICAL,
    ) -> None:
        name, what = key
        self.now += 1.0
        one = transition(
            kind,
            subject=profile_subject(name),
            rule=what,
            episode=self.episodes[key],
            unix_s=self.now,
            severity=severity,
        )
        hold_s, is_digest = hold
        notice = Notice(transition=one, not_before_unix_s=self.now + hold_s, is_digest=is_digest)
        for row in rows_of(notice, ["phone"], lowest={}, now_unix_s=self.now):
            number = len(self.rows) + 1
            self.rows[number] = replace(row, id=number)

    # --- sending

    def queued(self) -> Sequence[OutboxRow]:
        return [row for row in self.rows.values() if row.state is OutboxState.QUEUED]

    def planned(self) -> OutboxPlan:
        sent = [row.settled_unix_s or 0.0 for row in self.rows.values() if self.was_sent(row)]
        plan = plan_deliveries(
            self.queued(),
            self.health,
            now_unix_s=self.now,
            last_sent_unix_s=max(sent, default=None),
        )
        for number in plan.dropped:
            row = self.rows[number]
            self.rows[number] = replace(row, state=OutboxState.CANCELLED)
        return plan

    @staticmethod
    def was_sent(row: OutboxRow) -> bool:
        return row.state is OutboxState.SENT

    @precondition(lambda self: self.queued())
    @rule(how=st.sampled_from(list(AttemptEnd)), jitter=st.floats(0.0, 1.0))
    def send(self, how: "AttemptEnd", jitter: float) -> None:
        plan = self.planned()
        if plan.deliveries:
            self.attempt(plan.deliveries[0], how, jitter)
        else:
            assert plan.next_unix_s is not None or not self.queued()

    def attempt(self, delivery: Delivery, how: "AttemptEnd", jitter: float = 0.0) -> None:
        self.check_order(delivery)
        rows = [begun(row, now_unix_s=self.now) for row in delivery.rows]
        if how in ARRIVING:
            self.phone += [row.id for row in rows]
            self.unsure += 0 if how is AttemptEnd.SENT else len(rows)
        if how in {AttemptEnd.KILLED_BEFORE, AttemptEnd.KILLED_AFTER}:
            self.health = TargetHealth()
            for row in rows:
                stored = self.rows[row.id]
                self.rows[row.id] = replace(
                    stored, attempts=row.attempts, tried_unix_s=row.tried_unix_s
                )
            return
        outcome = OUTCOMES[how]
        result = SendResult(outcome=outcome)
        is_joined = delivery.form is not DeliveryForm.SINGLE
        self.health = self.health.after(
            result, rows, is_joined=is_joined, now_unix_s=self.now, jitter=jitter
        )
        for row in rows:
            end = settled(row, result, is_joined=is_joined, now_unix_s=self.now, jitter=jitter)
            # The row of the file, not that of the plan, which may have joined it to a digest.
            stored = begun(self.rows[row.id], now_unix_s=self.now)
            self.rows[row.id] = after(stored, end, now_unix_s=self.now)

    def check_order(self, delivery: Delivery) -> None:
        """No earlier row of a subject is left behind, unless its rule is held back by itself."""
        told = {row.id for row in delivery.rows}
        queued = self.queued()
        held_back = {
            row.order
            for row in queued
            if row.is_digest or row.is_held(self.now) or row.attempts >= STUBBORN
        }
        left = [row for row in queued if row.id not in told and row.order not in held_back]
        for row in delivery.rows:
            near = [one for one in left if one.transition.subject == row.transition.subject]
            assert not [one.id for one in near if one.id < row.id]

    @rule(seconds=st.sampled_from([1.0, 5.0, 30.0, 400.0, 4000.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # --- promises

    @invariant()
    def nothing_is_sent_twice_without_a_doubt(self) -> None:
        assert len(self.phone) - len(set(self.phone)) <= self.unsure

    @invariant()
    def messages_of_a_rule_arrive_in_their_order(self) -> None:
        last: dict[Key, int] = defaultdict(int)
        for number in self.phone:
            row = self.rows[number]
            key = (row.transition.subject.name, row.transition.rule)
            if number > last[key]:
                last[key] = number
            else:
                assert number == last[key] or self.unsure

    def teardown(self) -> None:
        """Left alone with a sound target, the outbox empties, and the phone knows what is true."""
        for _ in range(3 * len(self.rows) + 30):
            plan = self.planned()
            if plan.deliveries:
                self.attempt(plan.deliveries[0], AttemptEnd.SENT)
            elif plan.next_unix_s is None:
                break
            else:
                assert plan.next_unix_s > self.now
                self.now = plan.next_unix_s
        assert not self.queued()
        for (name, what), episodes in self.episodes.items():
            for episode in range(1, episodes + 1):
                self.check_episode(name, what, episode)

    def check_episode(self, name: str, what: AlertRule, episode: int) -> None:
        rows = [
            row
            for row in self.rows.values()
            if (row.transition.subject.name, row.transition.rule, row.transition.episode)
            == (name, what, episode)
        ]
        arrived = [number for number in self.phone if number in {row.id for row in rows}]
        is_refused = any(row.state is OutboxState.DEAD for row in rows)
        begin, end = rows[0], rows[-1]
        is_over = end.transition.kind is RESOLVED
        if arrived and not is_refused:
            assert not is_over or max(arrived) == end.id
        elif not is_refused:
            assert is_over
            assert begin.attempts == 0
            assert end.created_unix_s - begin.due_unix_s <= 60.0


OutboxMachine.TestCase.settings = settings(stateful_step_count=60)
TestOutboxMachine = OutboxMachine.TestCase
