"""Life of a simulated box: its looks through the real rules, alert book and outbox, up to a phone."""

from dataclasses import dataclass, field, replace
from typing import Final

from appliance.alerts.book import AlertBook, AlertPolicy, Evaluation, Instant
from appliance.alerts.evaluation import ack, evaluate
from appliance.alerts.inhibition import circumstances
from appliance.alerts.outbox import (
    OutboxRow,
    TargetHealth,
    after,
    begun,
    rows_of,
    settled,
)
from appliance.alerts.outbox_plan import Delivery, plan_deliveries
from appliance.alerts.rules import findings
from appliance.alerts.silences import add_window, silence
from appliance.alerts.snapshot import BoxLook
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import (
    AlertPhase,
    AlertRule,
    SendOutcome,
    SendResult,
    Subject,
    Transition,
    TransitionKind,
)
from appliance.wire.alert_requests import PlannedWindow
from tests.bench.life_month import BACKUP_AT, BACKUP_MINUTES, ZONE, Month
from tests.bench.life_world import DAY_S, LIVE, NAS, Effect, base_look, profile_of

POLICY: Final = AlertPolicy(time_zone=ZONE, quiet_from="22:00", quiet_to="07:00")
_EVENTFUL_STEP_S: Final = 10.0
_CALM_STEP_S: Final = 30.0
"""Time between two looks while nothing happens: the state machine counts such looks as well."""
_EVENTFUL_FOR_S: Final = 180.0
"""Time after the begin or end of an effect in which looks are as close as on a box."""
_ACK_AFTER_S: Final = 600.0
_PHONE: Final = "phone"
_BACKUP: Final = PlannedWindow(
    name="backup", begin=BACKUP_AT, minutes=BACKUP_MINUTES, subjects=(NAS,)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Change that the phone was told of."""

    at_s: float
    """Time of the delivery, since the begin of the month."""
    changed_s: float
    """Time of the change itself."""
    kind: TransitionKind
    subject: Subject
    rule: AlertRule
    alert: str


@dataclass
class LifeBox:
    """Box that lives through a month."""

    month: Month
    book: AlertBook = field(default_factory=AlertBook)
    memory: WatchdogMemory = field(default_factory=WatchdogMemory)
    rows: list[OutboxRow] = field(default_factory=list)
    health: TargetHealth = field(default_factory=TargetHealth)
    told: list[Told] = field(default_factory=list)
    looks: int = 0
    _now_s: float = 0.0
    _booted_s: float = -1000.0
    _slept_s: float = 0.0
    _next_row: int = 1
    _last_sent_unix_s: float | None = None
    _offline_since_unix_s: float | None = None
    _pending: list[Effect] = field(default_factory=list)
    _active: list[Effect] = field(default_factory=list)
    _acks_due: list[tuple[float, str]] = field(default_factory=list)
    """Alerts to be acked, each with the moment."""
    _calm_from_s: float = 0.0

    def live(self) -> None:
        """Live through the month."""
        self._pending = list(self.month.effects)[::-1]
        self._keep(add_window(self.book, _BACKUP))
        base = base_look()
        while self._now_s < self.month.days * DAY_S:
            self._begin_effects()
            away = next((one for one in self._active if one.change is None), None)
            if away is not None:
                self._be_away(away)
                continue
            self._look(base)
            self._send()
            is_calm = self._now_s > self._calm_from_s
            self._now_s += _CALM_STEP_S if is_calm else _EVENTFUL_STEP_S

    @property
    def _unix_s(self) -> float:
        return self.month.begin_unix_s + self._now_s

    def _instant(self) -> Instant:
        boot_s = self._now_s - self._booted_s
        return Instant(unix_s=self._unix_s, monotonic_s=boot_s - self._slept_s, boot_s=boot_s)

    def _begin_effects(self) -> None:
        ended = [one for one in self._active if one.end_s <= self._now_s]
        for one in ended:
            self._calm_from_s = max(self._calm_from_s, one.end_s + _EVENTFUL_FOR_S)
        self._active = [one for one in self._active if one.end_s > self._now_s]
        while self._pending and self._pending[-1].begin_s <= self._now_s:
            effect = self._pending.pop()
            self._active.append(effect)
            lasts_s = effect.end_s - effect.begin_s if _flaps(effect) else 0.0
            self._calm_from_s = max(self._calm_from_s, self._now_s + lasts_s + _EVENTFUL_FOR_S)
            if effect.silences:
                self._silence(effect)

    def _be_away(self, effect: Effect) -> None:
        """Let the time pass in which the box is off or asleep."""
        if effect.is_boot:
            self._booted_s, self._slept_s = effect.end_s, 0.0
        else:
            self._slept_s += effect.end_s - self._now_s
        self._now_s = effect.end_s + 1.0

    # ── Looks ───────────────────────────────────────────────────────────────

    def _look(self, base: BoxLook) -> None:
        now = self._instant()
        look = replace(base, unix_s=now.unix_s, monotonic_s=now.monotonic_s)
        for effect in self._active:
            assert effect.change is not None
            look = effect.change(look, self._now_s - effect.begin_s)
        is_offline = any(effect.is_offline for effect in self._active)
        if not is_offline:
            self._offline_since_unix_s = None
        elif self._offline_since_unix_s is None:
            self._offline_since_unix_s = now.unix_s
        found, self.memory = findings(look, self.memory)
        facts = replace(circumstances(look), internet_down_since=self._offline_since_unix_s)
        self._keep(evaluate(self.book, found, facts, POLICY, now))
        self._ack_what_is_due()
        self.looks += 1

    def _keep(self, evaluation: Evaluation) -> None:
        """Keep an evaluation as the store does."""
        self.book = evaluation.book
        cancelled = set(evaluation.cancelled)
        self.rows = [row for row in self.rows if row.transition.alert not in cancelled]
        for notice in evaluation.notices:
            for row in rows_of(notice, [_PHONE], lowest={}, now_unix_s=self._unix_s):
                self.rows.append(replace(row, id=self._next_row))
                self._next_row += 1
        for one in evaluation.transitions:
            self._plan_ack(one)

    # ── What an operator does ───────────────────────────────────────────────

    def _silence(self, effect: Effect) -> None:
        for_s = effect.end_s - effect.begin_s + 300.0
        subject, now = profile_of(LIVE), self._instant()
        self._keep(silence(self.book, subject, for_s=for_s, by="ana", reason="work", now=now))

    def _plan_ack(self, transition: Transition) -> None:
        """Have the operator ack an alert some minutes after it has fired."""
        if transition.kind is TransitionKind.FIRED and any(one.acks for one in self._active):
            self._acks_due.append((self._now_s + _ACK_AFTER_S, transition.alert))

    def _ack_what_is_due(self) -> None:
        due = [alert for at_s, alert in self._acks_due if at_s <= self._now_s]
        self._acks_due = [one for one in self._acks_due if one[1] not in due]
        firing = {s.alert for s in self.book.states.values() if s.phase is AlertPhase.FIRING}
        for alert in due:
            if alert in firing:
                self._keep(ack(self.book, alert, by="ana", now=self._instant()))

    # ── The outbox, and the phone ───────────────────────────────────────────

    def _send(self) -> None:
        """Send what is due, as the sender of the agent does."""
        while self.rows:
            plan = plan_deliveries(
                self.rows,
                self.health,
                now_unix_s=self._unix_s,
                last_sent_unix_s=self._last_sent_unix_s,
            )
            self.rows = [row for row in self.rows if row.id not in plan.dropped]
            if not plan.deliveries:
                return
            for delivery in plan.deliveries:
                if not self._deliver(delivery):
                    return

    def _deliver(self, delivery: Delivery) -> bool:
        is_offline = any(effect.is_offline for effect in self._active)
        result = SendResult(outcome=SendOutcome.RETRY if is_offline else SendOutcome.SENT)
        rows = [begun(row, now_unix_s=self._unix_s) for row in delivery.rows]
        numbers = {row.id for row in rows}
        is_joined = len(rows) > 1
        others = [row for row in self.rows if row.id not in numbers]
        self.health = self.health.after(
            result, rows, is_joined=is_joined, now_unix_s=self._unix_s, jitter=0.5
        )
        if is_offline:
            tried = [
                after(
                    row,
                    settled(row, result, is_joined=is_joined, now_unix_s=self._unix_s, jitter=0.5),
                    now_unix_s=self._unix_s,
                )
                for row in rows
            ]
            self.rows = sorted([*others, *tried], key=lambda row: row.id)
            return False
        self.rows = others
        self._last_sent_unix_s = self._unix_s
        for row in rows:
            one = row.transition
            self.told.append(
                Told(
                    at_s=self._now_s,
                    changed_s=one.unix_s - self.month.begin_unix_s,
                    kind=one.kind,
                    subject=one.subject,
                    rule=one.rule,
                    alert=one.alert,
                )
            )
        return True


def _flaps(effect: Effect) -> bool:
    return effect.planted is not None and effect.planted.flaps
