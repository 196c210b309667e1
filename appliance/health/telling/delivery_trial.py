"""Trial of the delivery: a test alert that takes the way of every alert, and what became of it.

The alert is of the rule ``test`` and critical, so that every target is told, and as loudly as of the worst. It
is no state of the alert book: there is nothing to ack, and nobody is told that it is over.
"""

from collections.abc import Sequence
from typing import Final

from appliance.alerts.book.alert_book import AlertBook, Evaluation, Instant
from appliance.alerts.sending.outbox_rows import WAITING, OutboxRow
from appliance.health.clock import HealthClock
from appliance.health.telling.delivery_figures import DeliveryFigures
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
from appliance.model.wording import short
from appliance.system.sqlite.alert_store import AlertStore
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent

_WITHIN_S: Final = 30.0
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
        until_s = self._clock.monotonic_s() + _WITHIN_S
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
    return Evaluation(book=book, transitions=(test,), notices=(Notice(transition=test),))


def _is_of(transition: Transition, test: Transition) -> bool:
    return (transition.rule, transition.episode) == (test.rule, test.episode)


def _outcome(row: OutboxRow) -> dict[str, str]:
    return {"target": row.target, "state": row.state.value, "text": row.text}
