"""Health agent that makes and sends alerts for `outbox`, until all of them are settled.

``python -m tests.bench.outbox_agent DATABASE SOCKET ALERTS EPOCH SPEED``. It goes on where the database says
that a killed one was. Alerts of a hundred subjects come in turns; every fifth is over some time later. The
last line of each message is the number of its outbox row, which ascends with the order of a subject.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.alerts.messages import Rendering, joint_message, message
from appliance.alerts.outbox_plan import Delivery, DeliveryForm
from appliance.health.clock import SystemHealthClock
from appliance.health.outbox_sender import OutboxSender
from appliance.model.alerts import AlertRule, Message, Severity, Transition, TransitionKind
from appliance.system.daemon_clients import NotifyClient
from appliance.system.sqlite.alert_store import AlertStore
from tests.fakes.alert_samples import profile_subject, told, transition

TARGET: Final = "phone"
ROW: Final = "row "
"""Beginning of the line of a message that has the number of its row."""
_SUBJECTS: Final = 100
_OVER_EVERY: Final = 5
_LONGEST_LAG: Final = 300
"""Most alerts between a firing and its end."""


def lag(alerts: int) -> int:
    """Return the number of alerts between a firing and its end: more than wait at any time.

    An alert that ended before it could be sent would be told of no more, and seem to be lost.
    """
    return min(_LONGEST_LAG, alerts // 2)


def ends(alerts: int) -> set[int]:
    """Return the numbers of the alerts that are over before the last one fires, from 1 on."""
    return {n for n in range(1, alerts - lag(alerts) + 1) if n % _OVER_EVERY == 0}


class FastClock(SystemHealthClock):
    """Clock on which back-offs pass sooner.

    Args:
        epoch_s: Time from which on it is fast, the same for all processes of a run.
        speed: Seconds of it in one.
    """

    def __init__(self, epoch_s: float, speed: float) -> None:
        super().__init__()
        self._epoch_s = epoch_s
        self._speed = speed

    def unix_s(self) -> float:
        return self._epoch_s + (time.time() - self._epoch_s) * self._speed

    def monotonic_s(self) -> float:
        return time.monotonic() * self._speed

    async def sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.monotonic_s()) / self._speed)

    async def wait(self, news: asyncio.Event, until_s: float | None) -> bool:
        left_s = None if until_s is None else max(0.0, until_s - self.monotonic_s()) / self._speed
        try:
            async with asyncio.timeout(left_s):
                return await news.wait()
        except TimeoutError:
            return news.is_set()


def _alert(number: int, kind: TransitionKind, unix_s: float) -> Transition:
    return transition(
        kind,
        subject=profile_subject(f"m{number % _SUBJECTS}"),
        rule=AlertRule.SLOW,
        episode=number // _SUBJECTS + 1,
        alert=f"A{number}",
        severity=Severity.WARNING,
        unix_s=unix_s,
    )


def _changes(first: int, last: int, alerts: int, unix_s: float) -> Iterator[Transition]:
    over = ends(alerts)
    for number in range(first, last + 1):
        yield _alert(number, TransitionKind.FIRED, unix_s)
        if (earlier := number - lag(alerts)) in over:
            yield _alert(earlier, TransitionKind.RESOLVED, unix_s)


async def _make(store: AlertStore, sender: OutboxSender, clock: FastClock, alerts: int) -> None:
    book = await store.book()
    while book.next_alert <= alerts:
        while (await store.counts()).waiting > lag(alerts) // 3:
            await asyncio.sleep(0.02)  # real time: processes of their own run here
        now, first = clock.unix_s(), book.next_alert
        last = min(first + lag(alerts) // 12, alerts)
        changes = list(_changes(first, last, alerts, now))
        evaluation = told(changes, book=replace(book, next_alert=last + 1))
        await store.commit(evaluation, targets=[TARGET], now_unix_s=now)
        book = evaluation.book
        sender.wake()
    while (await store.counts()).waiting:
        await asyncio.sleep(0.05)  # real time: as above


async def main(database: Path, socket: Path, alerts: int, clock: FastClock) -> None:
    """Make and send alerts."""

    async def render(delivery: Delivery) -> Message:
        rendering = Rendering(host="bench", now_unix_s=clock.unix_s(), clock=lambda _at: "04:10")
        number = delivery.rows[0].id
        if delivery.form is DeliveryForm.SINGLE:
            made = message(delivery.transitions[0], rendering)
        else:
            made = joint_message(
                delivery.transitions, rendering, joined_id=delivery.joined_id, is_late=True
            )
        return replace(made, body=f"{made.body}\n{ROW}{number}")

    store = AlertStore(database)
    await store.open()
    sender = OutboxSender(store, NotifyClient(socket), clock, render)
    sending = asyncio.create_task(sender.run())
    making = asyncio.create_task(_make(store, sender, clock, alerts))
    try:
        await asyncio.wait({sending, making}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await store.close()
    await making


if __name__ == "__main__":
    database, socket, alerts, epoch, speed = sys.argv[1:]
    fast = FastClock(float(epoch), float(speed))
    asyncio.run(main(Path(database), Path(socket), int(alerts), fast))
