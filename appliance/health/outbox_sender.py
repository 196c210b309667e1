"""Sender of the outbox: hands rows that are due to the notifier, one at a time for each target.

A row is marked as being sent before the notifier has it, and settled after the notifier has answered: a
process that is killed between the two sends it again, and loses none. What is sent next is decided by
`appliance.alerts.outbox_plan`.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from appliance.alerts.outbox import OutboxRow, Settlement, TargetHealth, begun, settled
from appliance.alerts.outbox_plan import (
    Delivery,
    DeliveryForm,
    OutboxPlan,
    plan_deliveries,
)
from appliance.health.clock import HealthClock
from appliance.model.alerts import Message, OutboxState, SendOutcome, SendResult
from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.status.journal_fields import transition_fields

_log = logging.getLogger(__name__)

_SENT_WITHIN_S: Final = 60.0
"""Time for the notifier, whose own deadlines are shorter."""
_GRACE_S: Final = 3.0
"""Time for a message that is being sent when the sender is to end."""
_LOOK_AGAIN_S: Final = 60.0
"""Longest wait: the wall clock may be set meanwhile, and stands for no timer."""
_MOST_ROWS: Final = 500
"""Rows of a plan."""
_MOST_SUMMARISED: Final = 100_000
_REMOVED: Final = "the target was removed"


class OutboxStore(Protocol):
    """Store of the outbox. No method fails for a fault of its file."""

    async def waiting_targets(self) -> Sequence[str]:
        """Return the names of the targets for which rows wait."""

    async def queued(self, target: str, *, most: int) -> Sequence[OutboxRow]:
        """Return the oldest rows of a target that are queued, oldest first."""

    async def last_sent(self, target: str) -> float | None:
        """Return when a target took a message last; None: not known."""

    async def begin(self, rows: Sequence[OutboxRow], *, now_unix_s: float) -> bool:
        """Mark queued rows as being sent; returns False, and changes none, if one is not queued."""

    async def settle(self, settlements: Mapping[int, Settlement], *, now_unix_s: float) -> None:
        """Store how attempts ended, by the number of the row."""

    async def drop(self, reasons: Mapping[int, str], *, now_unix_s: float) -> None:
        """Cancel queued rows, each for its reason."""

    async def requeue(self) -> None:
        """Queue the rows again that were being sent when their sender ended."""


class MessageNotifier(Protocol):
    """Notifier, which alone reaches other machines."""

    async def send(self, target: str, message: Message) -> SendResult:
        """Try to send a message. A notifier that does not answer is `RETRY`."""


Render = Callable[[Delivery], Awaitable[Message]]
"""Function that makes a message at the moment in which it is sent."""


class OutboxSender:
    """Sender of the rows of all targets.

    Args:
        store: Of the outbox.
        notifier: Sends one message.
        clock: Of the box.
        render: Makes a message.
        jitter: Function that returns a number from 0 to 1, at random.
    """

    def __init__(
        self,
        store: OutboxStore,
        notifier: MessageNotifier,
        clock: HealthClock,
        render: Render,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._clock = clock
        self._render = render
        self._jitter = jitter
        self._news = asyncio.Event()
        self._queues: dict[str, _TargetQueue] = {}
        self._attempts: dict[str, Counter[SendOutcome]] = {}

    async def run(self) -> None:
        """Send for ever; rows that an earlier run was sending are sent again."""
        await self._store.requeue()
        self._queues.clear()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                for target in await self._store.waiting_targets():
                    if target not in self._queues:
                        queue = self._queue(target)
                        self._queues[target] = queue
                        tasks.create_task(queue.run(), name=f"messages for {target}")
                await self._news.wait()

    def wake(self) -> None:
        """Look for rows that were added."""
        self._news.set()
        for queue in self._queues.values():
            queue.news.set()

    def retry_now(self) -> None:
        """Try again at once: the network is back, or the targets have changed."""
        for queue in self._queues.values():
            queue.lift()
        self.wake()

    async def forget(self, known: Collection[str]) -> None:
        """Cancel what waits for targets that were removed.

        Args:
            known: Names of the targets that there are.
        """
        now = self._clock.unix_s()
        for target in await self._store.waiting_targets():
            if target not in known:
                rows = await self._store.queued(target, most=_MOST_SUMMARISED)
                await self._store.drop({row.id: _REMOVED for row in rows}, now_unix_s=now)

    def attempts(self, target: str) -> Mapping[str, int]:
        """Return how often a target was sent a message since the agent's start, by outcome."""
        counts = self._attempts.get(target, Counter())
        return {outcome.value: counts[outcome] for outcome in SendOutcome}

    @property
    def trouble(self) -> str | None:
        """Sentence about targets that take no messages; None: all do, as far as is known."""
        troubles = [queue.trouble for queue in self._queues.values() if queue.trouble]
        return "; ".join([*troubles, "see appliance alerts outbox"]) if troubles else None

    def _queue(self, target: str) -> "_TargetQueue":
        return _TargetQueue(
            target,
            store=self._store,
            notifier=self._notifier,
            clock=self._clock,
            render=self._render,
            jitter=self._jitter,
            attempts=self._attempts.setdefault(target, Counter()),
        )


class _TargetQueue:
    """Rows of one target, sent one after the other; arguments as of `OutboxSender`.

    Args:
        attempts: Attempts are counted here by outcome.
    """

    def __init__(
        self,
        target: str,
        *,
        store: OutboxStore,
        notifier: MessageNotifier,
        clock: HealthClock,
        render: Render,
        jitter: Callable[[], float],
        attempts: Counter[SendOutcome],
    ) -> None:
        self._target = target
        self._attempts = attempts
        self._store = store
        self._notifier = notifier
        self._clock = clock
        self._render = render
        self._jitter = jitter
        self._health = TargetHealth()
        self.news = asyncio.Event()
        self.trouble = ""
        """Phrase about the last failure since the last message that was taken; empty: none."""

    def lift(self) -> None:
        """End the pause."""
        self._health = self._health.lifted(self._clock.unix_s())

    async def run(self) -> None:
        """Send for ever."""
        while True:
            self.news.clear()
            plan = await self._plan()
            if plan.dropped:
                await self._store.drop(plan.dropped, now_unix_s=self._clock.unix_s())
            if not plan.deliveries:
                await self._clock.wait(self.news, self._until(plan.next_unix_s))
            for delivery in plan.deliveries:
                if not await self._deliver(delivery) or self.news.is_set():
                    break

    async def _plan(self) -> OutboxPlan:
        plan = await self._planned(_MOST_ROWS)
        if any(delivery.form == DeliveryForm.SUMMARY for delivery in plan.deliveries):
            plan = await self._planned(_MOST_SUMMARISED)
        return plan

    async def _planned(self, most: int) -> OutboxPlan:
        return plan_deliveries(
            await self._store.queued(self._target, most=most),
            self._health,
            now_unix_s=self._clock.unix_s(),
            last_sent_unix_s=await self._store.last_sent(self._target),
        )

    def _until(self, next_unix_s: float | None) -> float | None:
        """Return the monotonic time at which to plan again; None: when there is news."""
        if next_unix_s is None:
            return None
        left_s = min(max(0.0, next_unix_s - self._clock.unix_s()), _LOOK_AGAIN_S)
        return self._clock.monotonic_s() + left_s

    async def _deliver(self, delivery: Delivery) -> bool:
        """Send a message and settle its rows; returns whether to go on with the plan."""
        now = self._clock.unix_s()
        if not await self._store.begin(delivery.rows, now_unix_s=now):
            return False
        rows = [begun(row, now_unix_s=now) for row in delivery.rows]
        sending = asyncio.ensure_future(self._send(delivery))
        try:
            result = await asyncio.shield(sending)
        except asyncio.CancelledError:
            # Settled if it ends soon, so that the next run does not send it again.
            done, _ = await asyncio.wait({sending}, timeout=_GRACE_S)
            if done:
                await self._settle(delivery, rows, sending.result())
            else:
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
            raise
        await _whole(self._settle(delivery, rows, result))
        return result.outcome == SendOutcome.SENT

    async def _send(self, delivery: Delivery) -> SendResult:
        """Return the notifier's answer; a fault of ours costs this message an attempt, and no more."""
        try:
            async with asyncio.timeout(_SENT_WITHIN_S):
                return await self._notifier.send(self._target, await self._render(delivery))
        except TimeoutError:
            text = f"the notifier has not answered within {_SENT_WITHIN_S:.0f} s"
        except Exception as error:  # noqa: BLE001 - logged, and no alert may end the agent
            _log.exception("a message for %s could not be made or handed over", self._target)
            text = f"could not be made: {type(error).__name__}"
        return SendResult(outcome=SendOutcome.RETRY, text=text)

    async def _settle(
        self, delivery: Delivery, rows: Sequence[OutboxRow], result: SendResult
    ) -> None:
        """Store how an attempt ended, and take it in."""
        self._attempts[result.outcome] += 1
        now, jitter = self._clock.unix_s(), self._jitter()
        is_joined = delivery.form != DeliveryForm.SINGLE
        self._health = self._health.after(
            result, rows, is_joined=is_joined, now_unix_s=now, jitter=jitter
        )
        ends = {
            row.id: settled(row, result, is_joined=is_joined, now_unix_s=now, jitter=jitter)
            for row in rows
        }
        self._tell(delivery, result, ends)
        await self._store.settle(ends, now_unix_s=now)

    def _tell(self, delivery: Delivery, result: SendResult, ends: Mapping[int, Settlement]) -> None:
        if result.outcome == SendOutcome.SENT:
            if self.trouble:
                _log.info("%s takes messages again", self._target)
            self.trouble = ""
            return
        if not self.trouble:
            target = (JournalField.TARGET, self._target)
            fails = event_fields(JournalEvent.TARGET_FAILS, others=(target,))
            _log.warning("%s takes no message: %s", self._target, result.text, extra=fails)
        self.trouble = f"{self._target} takes no message: {result.text}"
        for row in delivery.rows:
            if ends[row.id].state == OutboxState.DEAD:
                alert = row.transition.alert
                text = "%s is not told of %s: %s"
                untold = transition_fields(row.transition, untold_target=self._target)
                _log.error(text, self._target, alert, ends[row.id].text, extra=untold)


async def _whole(job: Coroutine[None, None, None]) -> None:
    """Wait for a job to its end, also when the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(job)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
