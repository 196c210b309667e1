"""Delivery of messages as others see it: its figures for the status, and its trial by a test alert.

A status is answered from memory. The store is read at most every `_EVERY_S`, and a status waits for its
answer no longer than `_WITHIN_S`: it then has the figures of the answer before.

A test alert takes the way of every alert. It is of the rule ``test`` and critical, so that it goes to every target,
and as loudly as the worst. It is no state of the alert book: there is nothing to ack, and no message about its end.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from appliance.alerts.book import AlertBook, Evaluation, Instant
from appliance.alerts.outbox import WAITING, OutboxRow
from appliance.alerts.report import DeliveryReport
from appliance.health.clock import HealthClock
from appliance.health.heartbeat import HeartbeatFacts
from appliance.health.watching.watchdog_loop import Watchdog
from appliance.model.alerts import (
    BOX,
    AlertRule,
    Notice,
    OutboxState,
    Severity,
    Transition,
    TransitionKind,
)
from appliance.model.errors import NotFoundError, PreconditionError
from appliance.model.targets import TargetStanding
from appliance.model.wording import short
from appliance.system.sqlite.alert_store import AlertStore
from appliance.system.sqlite.alert_tables import OutboxCounts
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent

_EVERY_S: Final = 2.0
_WITHIN_S: Final = 0.03
_ROWS: Final = 300
"""Newest rows of the outbox that are looked through for alerts that were sent."""
_BEGINNINGS: Final = frozenset({TransitionKind.FIRED, TransitionKind.FLAPPING})


class DeliveryFigures:
    """Reader of the figures.

    Args:
        store: Of the alerts.
        heartbeat: Function that returns the heartbeat's facts.
        targets: Function that returns the targets.
        trouble: Function that returns sentences about what keeps messages from being sent.
        attempts: Function that returns how often a target was sent a message, by outcome.
        enabled: Whether targets are told at all.
        clock: Of the box.
    """

    def __init__(
        self,
        store: AlertStore,
        *,
        heartbeat: Callable[[], HeartbeatFacts],
        targets: Callable[[], Sequence[TargetStanding]],
        trouble: Callable[[], str],
        attempts: Callable[[str], Mapping[str, int]],
        enabled: bool,
        clock: HealthClock,
    ) -> None:
        self._store = store
        self._heartbeat = heartbeat
        self._targets = targets
        self._trouble = trouble
        self._attempts = attempts
        self._enabled = enabled
        self._clock = clock
        self._counts = OutboxCounts()
        self._read_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self.sent: Mapping[str, float] = {}
        """Times at which the first target had the message about an alert, by the alert's id."""

    def targets(self) -> Sequence[str]:
        """Return the names of the targets."""
        return [target.name for target in self._targets()]

    async def report(self) -> DeliveryReport:
        """Return the figures of the last seconds."""
        await self._refresh()
        now_unix_s, beat = self._clock.unix_s(), self._heartbeat()
        oldest, last = self._counts.oldest_due_unix_s, _last_sign(beat)
        return DeliveryReport(
            enabled=self._enabled,
            targets=len(self._targets()),
            waiting=self._counts.waiting,
            dead=self._counts.dead,
            oldest_s=None if oldest is None else max(0.0, now_unix_s - oldest),
            trouble=self._store.trouble or self._trouble(),
            heartbeat_set=beat.is_set,
            heartbeat_s=None if last is None else max(0.0, now_unix_s - last),
            heartbeat_trouble=beat.trouble,
            attempts={name: self._attempts(name) for name in self.targets()},
        )

    async def close(self) -> None:
        """End a reading that goes on."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _refresh(self) -> None:
        if self._reading is None and self._clock.monotonic_s() - self._read_s >= _EVERY_S:
            self._reading = asyncio.create_task(self._read())
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_WITHIN_S)

    async def _read(self) -> None:
        try:
            self._counts = await self._store.counts()
            self.sent = sent_alerts(await self._store.outbox(_ROWS))
        finally:
            self._read_s = self._clock.monotonic_s()
            self._reading = None


def sent_alerts(rows: Sequence[OutboxRow]) -> Mapping[str, float]:
    """Return when the first target had the message about each alert, as far as rows tell it."""
    found: dict[str, float] = {}
    for row in rows:
        is_sent = row.state is OutboxState.SENT and row.settled_unix_s is not None
        if is_sent and row.transition.kind in _BEGINNINGS:
            alert, at_unix_s = row.transition.alert, row.settled_unix_s or 0.0
            found[alert] = min(at_unix_s, found.get(alert, at_unix_s))
    return found


def _last_sign(beat: HeartbeatFacts) -> float | None:
    """Return when a sign of life was taken last; None: never."""
    times = [time for time in (beat.ping_unix_s, beat.armed_unix_s) if time is not None]
    return max(times, default=None)


_TRIAL_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.25
_NEWEST_ROWS: Final = 300
_ALERT: Final = "test"


class DeliveryTrial:
    """Sender of test alerts.

    Args:
        watchdog: Writes transition and outbox rows.
        store: Has the rows.
        figures: Know the targets.
        clock: Of the box.
    """

    def __init__(
        self,
        watchdog: Watchdog,
        store: AlertStore,
        figures: DeliveryFigures,
        clock: HealthClock,
    ) -> None:
        self._watchdog = watchdog
        self._store = store
        self._figures = figures
        self._clock = clock

    async def run(self, target: str | None, by: str) -> ResultEvent:
        """Send a test alert, and return what became of it.

        Args:
            target: Name of a target; None: all.
            by: Person that asks.

        Raises:
            NotFoundError: there is no such target.
            PreconditionError: there is none at all.
        """
        known = self._figures.targets()
        if not known:
            raise PreconditionError("nobody would be told: sudo appliance target add NAME")
        if target is not None and target not in known:
            raise NotFoundError(f'no target "{short(target)}": appliance target ls')
        targets = known if target is None else [target]
        test = _test_alert(self._clock.unix_s(), by)
        await self._watchdog.change(lambda book, now: _told(book, now, test), only=targets)
        rows = await self._settled(test, targets)
        sent = sum(row.state is OutboxState.SENT for row in rows)
        have = f"{sent} of {len(targets)} targets {'has' if sent == 1 else 'have'} the test alert"
        return ResultEvent(
            exit=Exit.OK if sent == len(targets) else Exit.FAILED,
            outcome="tested",
            message=have,
            details={"targets": [_outcome(row) for row in rows]},
        )

    async def _settled(self, test: Transition, targets: Sequence[str]) -> Sequence[OutboxRow]:
        """Return the rows of a test once all are settled, or as they are after half a minute."""
        until_s = self._clock.monotonic_s() + _TRIAL_S
        while True:
            newest = await self._store.outbox(_NEWEST_ROWS)
            rows = [row for row in newest if _is_of(row.transition, test)]
            waits = len(rows) < len(targets) or any(row.state in WAITING for row in rows)
            if not waits or self._clock.monotonic_s() >= until_s:
                return rows
            await self._clock.sleep_until(self._clock.monotonic_s() + _LOOK_EVERY_S)


def _test_alert(now_unix_s: float, by: str) -> Transition:
    """Return the transition of a test; its episode is the time, so that each test has its own."""
    return Transition(
        unix_s=now_unix_s,
        kind=TransitionKind.FIRED,
        alert=_ALERT,
        subject=BOX,
        rule=AlertRule.TEST,
        episode=int(now_unix_s * 1000),
        severity=Severity.CRITICAL,
        fact=f"test alert, sent by {short(by)}",
        details=("Nothing is wrong: alerts reach this target.",),
        since_unix_s=now_unix_s,
        by=by,
    )


def _told(book: AlertBook, _now: Instant, test: Transition) -> Evaluation:
    return Evaluation(book=book, transitions=[test], notices=[Notice(transition=test)])


def _is_of(transition: Transition, test: Transition) -> bool:
    return (transition.rule, transition.episode) == (test.rule, test.episode)


def _outcome(row: OutboxRow) -> dict[str, str]:
    return {"target": row.target, "state": row.state.value, "text": row.text}
