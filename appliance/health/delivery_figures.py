"""Figures of the delivery for the status: the outbox, the heartbeat, and which alerts were sent.

A status is answered from memory. The store is read at most every `_EVERY_S`, and a status waits for its
answer no longer than `_WITHIN_S`: it then has the figures of the answer before.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from appliance.alerts.outbox import OutboxRow
from appliance.alerts.report import DeliveryReport
from appliance.health.clock import HealthClock
from appliance.health.heartbeat import HeartbeatFacts
from appliance.model.alerts import (
    OutboxState,
    TransitionKind,
)
from appliance.model.targets import TargetStanding
from appliance.system.sqlite.alert_store import AlertStore
from appliance.system.sqlite.alert_tables import OutboxCounts

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
