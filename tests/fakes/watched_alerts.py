"""Watchdog, alert store and verbs of a health agent, whose looks a test decides."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from appliance.alerts.book import AlertBook, AlertPolicy, Evaluation, Instant
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.outbox import Settlement
from appliance.alerts.snapshot import BoxLook
from appliance.health.answering.alert_verbs import AlertVerbs, SubjectDirectory
from appliance.health.clock import HealthClock, SystemHealthClock
from appliance.health.delivery_figures import DeliveryFigures
from appliance.health.heartbeat import HeartbeatFacts
from appliance.health.watching.watchdog_loop import Watchdog
from appliance.model.alerts import OutboxState, Transition
from appliance.model.targets import TargetStanding
from appliance.system.sqlite.alert_store import AlertStore
from tests.fakes.alert_samples import told

PHONE = TargetStanding(name="phone", kind="ntfy", min_severity="critical")
MAIL = TargetStanding(name="mail", kind="mailto")


class LeapingClock(SystemHealthClock):
    """Clock of this machine on which a wait takes no time: it is added to the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt_s = 0.0

    def unix_s(self) -> float:
        return super().unix_s() + self.leapt_s

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.leapt_s

    async def sleep_until(self, at_s: float) -> None:
        self.leapt_s += max(0.0, at_s - self.monotonic_s())
        await asyncio.sleep(0)


class WatchedAlerts:
    """Verbs about alerts of a box with the profile genesis and the watch nas.

    Args:
        directory: Of the database.
        clock: Of the box.
    """

    def __init__(self, directory: Path, clock: HealthClock | None = None) -> None:
        self.clock = clock or SystemHealthClock()
        self.store = AlertStore(directory / "alerts.sqlite")
        self.targets: Sequence[TargetStanding] = (PHONE, MAIL)
        self.beat = HeartbeatFacts()
        self.sending_trouble = ""
        self.watchdog = Watchdog(
            look=self._look,
            circumstances=lambda _look: AlertCircumstances(),
            store=self.store,
            targets=lambda: self.targets,
            policy=AlertPolicy(time_zone="UTC"),
            on_commit=lambda _transitions: None,
            on_turn=lambda: None,
            clock=self.clock,
        )
        self.figures = DeliveryFigures(
            self.store,
            heartbeat=lambda: self.beat,
            targets=lambda: self.targets,
            trouble=lambda: self.sending_trouble,
            attempts=lambda target: {"sent": len(target), "retry": 0, "refused": 0},
            enabled=True,
            clock=self.clock,
        )
        self.subjects = SubjectDirectory(lambda: self.book, lambda: ["genesis", "aeon"], ["nas"])
        self.verbs = AlertVerbs(
            self.watchdog, self.store, self.figures, subjects=self.subjects, clock=self.clock
        )

    @property
    def book(self) -> AlertBook:
        """Return the alert book."""
        return self.watchdog.book

    async def tell(self, *transitions: Transition) -> None:
        """Have alerts fire or end, as an evaluation would."""

        def act(book: AlertBook, _now: Instant) -> Evaluation:
            return told(transitions, book=book)

        await self.watchdog.change(act)

    async def settle(
        self, state: OutboxState = OutboxState.SENT, text: str = "", *, target: str | None = None
    ) -> None:
        """End the attempts to send all queued rows, or those of one target."""
        now_unix_s = self.clock.unix_s()
        for name in await self.store.waiting_targets():
            rows = await self.store.queued(name, most=1000) if target in {None, name} else ()
            if rows:
                await self.store.begin(rows, now_unix_s=now_unix_s)
                ends = {row.id: Settlement(state=state, text=text) for row in rows}
                await self.store.settle(ends, now_unix_s=now_unix_s)

    async def _look(self) -> BoxLook:
        return BoxLook(
            unix_s=self.clock.unix_s(),
            monotonic_s=self.clock.monotonic_s(),
            supervisor_answers=True,
        )


@asynccontextmanager
async def watched_alerts(
    directory: Path, clock: HealthClock | None = None
) -> AsyncIterator[WatchedAlerts]:
    """Return verbs with an open store."""
    box = WatchedAlerts(directory, clock)
    await box.store.open()
    await box.watchdog.read()
    try:
        yield box
    finally:
        await box.figures.close()
        await box.store.close()
