"""Sender of the outbox: no row lost, none sent twice, one target never waits for another."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from appliance.alerts.outbox import OutboxRow, Settlement
from appliance.alerts.outbox_plan import Delivery
from appliance.health.outbox_sender import OutboxSender
from appliance.model.alerts import Message, OutboxState, Severity, TransitionKind
from tests.fakes.alert_samples import AEON, profile_subject, told, transition
from tests.fakes.fake_alert_store import FakeAlertStore
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.target_notifier import REFUSED, SENT, TargetNotifier, plain_message, retry
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time
MINUTE_S = 60.0
FIRED, RESOLVED = TransitionKind.FIRED, TransitionKind.RESOLVED


class SlowStore(FakeAlertStore):
    """A store whose disk takes five seconds to settle."""

    async def settle(self, settlements: Mapping[int, Settlement], *, now_unix_s: float) -> None:
        await advance(5)
        await super().settle(settlements, now_unix_s=now_unix_s)


class CancellingStore(FakeAlertStore):
    """A store whose first row is cancelled the moment before it is begun."""

    async def begin(self, rows: Collection[OutboxRow], *, now_unix_s: float) -> bool:
        await self.drop({1: "retired"}, now_unix_s=now_unix_s)
        return await super().begin(rows, now_unix_s=now_unix_s)


class OutboxWorld:
    """A store, a notifier and a sender, which is started anew after each end."""

    def __init__(self, store: FakeAlertStore | None = None) -> None:
        self.store = store or FakeAlertStore()
        self.notifier = TargetNotifier()
        self.clock = VirtualHealthClock()
        self.sender = self._sender()

    def _sender(self) -> OutboxSender:
        return OutboxSender(
            self.store, self.notifier, self.clock, plain_message, jitter=lambda: 0.0
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[OutboxSender]:
        self.sender = self._sender()
        task = asyncio.create_task(self.sender.run())
        try:
            yield self.sender
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def tell(
        self,
        kind: TransitionKind = FIRED,
        *,
        name: str = "genesis",
        targets: tuple[str, ...] = ("phone",),
        hold_s: float = 0.0,
        is_digest: bool = False,
        severity: Severity = Severity.CRITICAL,
        episode: int = 1,
    ) -> None:
        """Commit a transition that is told from now on, and wake the sender."""
        now = self.clock.unix_s()
        subject = profile_subject(name)
        one = transition(kind, subject=subject, unix_s=now, severity=severity, episode=episode)
        evaluation = told([one], not_before_unix_s=now + hold_s, is_digest=is_digest)
        await self.store.commit(evaluation, targets=targets, now_unix_s=now)
        self.sender.wake()

    def states(self) -> list[OutboxState]:
        return [row.state for row in self.store.rows.values()]


async def test_a_row_is_sent_at_once_and_settled() -> None:
    """A firing and its end are two messages in their order."""
    world = OutboxWorld()
    async with world.running():
        await advance(1)
        await world.tell()
        await advance(0.1)
        await world.tell(RESOLVED)
        await advance(0.1)
        assert world.notifier.titles() == ["single Agenesis1 fired", "single Agenesis1 resolved"]
        assert world.states() == [OutboxState.SENT] * 2
        assert (await world.store.counts()).waiting == 0
        assert world.sender.trouble is None


async def test_a_failed_attempt_backs_off_and_is_told_as_a_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Attempts come after 5 s, 15 s, 1 min, 5 min, 15 min; the trouble ends with a message."""
    world = OutboxWorld()
    world.notifier.answer = lambda _target, _message: retry()
    async with world.running():
        await world.tell()
        await advance(2000)
        times = [at for at, _ in world.notifier.tries]
        gaps = [round(after - before) for before, after in pairwise(times)]
        assert gaps == [5, 15, 60, 300, 900]
        assert "phone takes no message: no route" in str(world.sender.trouble)
        assert "appliance alerts outbox" in str(world.sender.trouble)
        world.notifier.answer = lambda _target, _message: SENT
        await advance(1000)
        assert (world.notifier.titles(), world.sender.trouble) == (["single Agenesis1 fired"], None)
        assert world.sender.attempts("phone") == {"sent": 1, "retry": 6, "refused": 0}
        assert world.sender.attempts("mail") == {"sent": 0, "retry": 0, "refused": 0}
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1


async def test_the_time_that_a_target_asks_for_is_kept() -> None:
    """A target that answers 429 has two minutes of peace, if it asks for them."""
    world = OutboxWorld()
    answers = iter([retry(120.0), SENT])
    world.notifier.answer = lambda _target, _message: next(answers)
    async with world.running():
        await world.tell()
        await advance(119)
        assert len(world.notifier.tries) == 1
        await advance(62)
        assert len(world.notifier.took) == 1


async def test_a_network_that_is_back_ends_all_pauses() -> None:
    """Rows that wait for a quarter of an hour go out at once."""
    world = OutboxWorld()
    world.notifier.answer = lambda _target, _message: retry()
    async with world.running() as sender:
        await world.tell()
        await advance(700)
        world.notifier.answer = lambda _target, _message: SENT
        sender.retry_now()
        await advance(0.1)
        assert len(world.notifier.took) == 1


async def test_what_waits_for_a_removed_target_is_cancelled() -> None:
    """Rows of targets that there are go on waiting."""
    world = OutboxWorld()
    world.notifier.answer = lambda _target, _message: retry()
    async with world.running() as sender:
        await world.tell(targets=("phone", "old"))
        await advance(1)
        await sender.forget(["phone"])
        assert await world.store.waiting_targets() == ["phone"]
        assert world.states() == [OutboxState.QUEUED, OutboxState.CANCELLED]


async def test_targets_do_not_wait_for_one_another() -> None:
    """A target that takes a minute for each message delays no other."""
    world = OutboxWorld()

    world.notifier.takes_s_of["slow"] = 50.0
    async with world.running():
        for name in ("a", "b", "c"):
            await world.tell(name=name, targets=("slow", "phone"))
        await advance(1)
        assert len(world.notifier.titles("phone")) == 3
        await advance(160)
        assert len(world.notifier.titles("slow")) == 3


async def test_a_notifier_that_hangs_costs_an_attempt() -> None:
    """After a minute the row is queued again."""
    world = OutboxWorld()
    world.notifier.takes_s = 1e6
    async with world.running():
        await world.tell()
        await advance(61)
        (row,) = world.store.rows.values()
        assert (row.state, row.attempts) == (OutboxState.QUEUED, 1)
        assert "has not answered within 60 s" in row.text


async def test_a_message_that_cannot_be_made_costs_its_own_row_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fault of ours is logged with its traceback; other alerts are told."""
    world = OutboxWorld()

    async def broken(delivery: Delivery) -> Message:
        if delivery.transitions[0].subject == AEON:
            raise KeyError("words")
        return await plain_message(delivery)

    world.sender = OutboxSender(world.store, world.notifier, world.clock, broken)
    task = asyncio.create_task(world.sender.run())
    await world.tell(name="aeon")
    await world.tell()
    await advance(60)
    assert world.notifier.titles() == ["single Agenesis1 fired"]
    assert world.states() == [OutboxState.QUEUED, OutboxState.SENT]
    assert "could not be made: KeyError" in world.store.rows[1].text
    assert "Traceback" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_refused_row_is_given_up_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The next one is tried at once."""
    world = OutboxWorld()
    answers = iter([REFUSED, SENT])
    world.notifier.answer = lambda _target, _message: next(answers)
    async with world.running():
        await world.tell()
        await world.tell(name="aeon")
        await advance(1)
        assert world.states() == [OutboxState.DEAD, OutboxState.SENT]
    assert "phone is not told of Agenesis1: 404" in caplog.text
    assert (await world.store.counts()).dead == 1


async def test_quiet_hours_end_with_one_digest() -> None:
    """Rows that are held join; the wall clock decides, and is looked at each minute."""
    world = OutboxWorld()
    async with world.running():
        for name in ("a", "b"):
            await world.tell(name=name, hold_s=3600.0, is_digest=True)
        await world.tell(name="c")
        await advance(10)
        assert world.notifier.titles() == ["single Ac1 fired"]
        world.clock.step_s = 3600.0
        await advance(61)
        assert world.notifier.titles()[1:] == ["digest Aa1 fired, Ab1 fired"]


async def test_an_outage_ends_with_one_summary() -> None:
    """An alert that ended meanwhile is named as over, and is no alarm."""
    world = OutboxWorld()
    world.notifier.answer = lambda _target, _message: retry()
    async with world.running():
        for name in ("a", "b", "c", "d", "e"):
            await world.tell(name=name)
            await advance(MINUTE_S)
        await world.tell(RESOLVED, name="a")
        await advance(40 * MINUTE_S)
        world.notifier.answer = lambda _target, _message: SENT
        await advance(16 * MINUTE_S)
        (title,) = world.notifier.titles()
        assert title == "summary Ab1 fired, Ac1 fired, Ad1 fired, Ae1 fired, Aa1 resolved"
        await world.tell(RESOLVED, name="b")
        await advance(1)
        assert world.notifier.titles()[1:] == ["single Ab1 resolved"]


async def test_a_summary_has_all_rows_however_many() -> None:
    """More rows than a plan looks at are in one message all the same."""
    world = OutboxWorld()
    now = world.clock.unix_s()
    changes = [transition(subject=profile_subject(f"p{n}"), unix_s=now) for n in range(600)]
    await world.store.commit(told(changes), targets=["phone"], now_unix_s=now)
    await advance(700)
    async with world.running():
        await advance(1)
        (title,) = world.notifier.titles()
        assert title.count("fired") == 600


async def test_a_sender_that_is_ended_lets_a_message_arrive() -> None:
    """A message that ends within three seconds is settled; the next run sends it no second time."""
    world = OutboxWorld()
    world.notifier.takes_s = 2.0
    async with world.running():
        await world.tell()
        await advance(1)
    assert world.states() == [OutboxState.SENT]
    async with world.running():
        await advance(10)
    assert len(world.notifier.took) == 1


async def test_a_message_that_hangs_at_the_end_is_sent_by_the_next_run() -> None:
    """The sender ends within three seconds; the row is queued again."""
    world = OutboxWorld()
    world.notifier.takes_s = 30.0
    async with world.running():
        await world.tell()
        await advance(1)
        began_s = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3.0)
    assert world.states() == [OutboxState.SENDING]
    world.notifier.takes_s = 0.0
    async with world.running():
        await advance(1)
    assert len(world.notifier.took) == 1


async def test_an_end_during_the_settlement_settles() -> None:
    """A row whose message was taken is never sent again by an orderly end, wherever it comes."""
    world = OutboxWorld(SlowStore())
    async with world.running():
        await world.tell()
        await advance(1)
    assert world.states() == [OutboxState.SENT]


async def test_a_row_that_is_cancelled_just_before_is_not_sent() -> None:
    """The plan is made anew when a row of it is no longer queued."""
    world = OutboxWorld(CancellingStore())
    async with world.running():
        await world.tell()
        await world.tell(name="aeon")
        await advance(1)
        assert world.notifier.titles() == ["single Aaeon1 fired"]
        assert world.states() == [OutboxState.CANCELLED, OutboxState.SENT]
