"""The watchdog's loop: looks, what is kept of them, and when systemd hears that all is well."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.alerts.book import AlertBook, AlertPolicy, Evaluation, Instant
from appliance.alerts.evaluation import ack, evaluate
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.silences import silence, unsilence
from appliance.alerts.snapshot import BoxLook
from appliance.health.watching.watchdog_loop import LOOK_EVERY_S, StopWatch, Watchdog
from appliance.model.alerts import AlertRule, Severity, Subject, SubjectKind, TransitionKind
from appliance.model.errors import NotFoundError, StoreError
from appliance.model.status import StatusDocument
from appliance.model.targets import TargetStanding
from tests.fakes.alert_ledger import FakeAlertLedger
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.supervisor_documents import as_status
from tests.fakes.virtual_time import advance
from tests.fakes.watched_alerts import WatchedAlerts, watched_alerts

PHONE = TargetStanding(name="phone", kind="ntfy", min_severity="warning")


class Watched:
    """A box whose supervisor answers or does not, and the loop that looks at it."""

    def __init__(self) -> None:
        self.clock = VirtualHealthClock()
        self.store = FakeAlertLedger()
        self.targets: Sequence[TargetStanding] = (PHONE,)
        self.answers = True
        self.fault: Exception | None = None
        self.look_takes_s = 0.0
        self.looks: list[float] = []
        self.turns = 0
        self.commits = 0
        self.watchdog = self.new()

    def new(self) -> Watchdog:
        """Return a loop as a start of the agent makes it."""
        self.watchdog = Watchdog(
            look=self.look,
            circumstances=lambda _look: AlertCircumstances(),
            store=self.store,
            targets=lambda: self.targets,
            policy=AlertPolicy(time_zone="UTC"),
            on_commit=lambda _transitions: self.count_commit(),
            on_turn=self.count_turn,
            clock=self.clock,
        )
        return self.watchdog

    def count_commit(self) -> None:
        self.commits += 1

    def count_turn(self) -> None:
        self.turns += 1

    async def look(self) -> BoxLook:
        self.looks.append(self.clock.monotonic_s())
        await advance(self.look_takes_s)
        if self.fault is not None:
            raise self.fault
        return BoxLook(
            unix_s=self.clock.unix_s(),
            monotonic_s=self.clock.monotonic_s(),
            supervisor_answers=self.answers,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watchdog]:
        task = asyncio.create_task(self.new().run())
        await advance(0.1)
        try:
            yield self.watchdog
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def kinds(self) -> list[str]:
        return [one.kind.value for one in self.store.transitions]


@pytest.mark.virtual_time
async def test_a_fault_is_told_and_its_end_is_too() -> None:
    """Looks 10 s apart fire after three bad ones; transition and notice go to the store at once."""
    box = Watched()
    async with box.running() as watchdog:
        await advance(60)
        assert box.turns == 7
        assert box.store.transitions == []
        box.answers = False
        await advance(40)
        (fired,) = box.store.transitions
        assert (fired.rule, fired.kind) == (AlertRule.SUPERVISOR_DOWN, TransitionKind.FIRED)
        assert [(name, one.transition.alert) for name, one in box.store.notices] == [
            ("phone", fired.alert)
        ]
        assert box.commits == 1
        assert box.store.lowest == {"phone": Severity.WARNING}
        assert watchdog.book.states
        box.answers = True
        await advance(40)
        assert box.kinds() == ["fired", "resolved"]


@pytest.mark.virtual_time
async def test_looks_are_ten_seconds_apart_however_long_one_takes() -> None:
    """The counts of the rules rest on that."""
    box = Watched()
    box.look_takes_s = 3.0
    async with box.running():
        await advance(100)
    gaps = {round(b - a, 3) for a, b in zip(box.looks, box.looks[1:], strict=False)}
    assert gaps == {LOOK_EVERY_S}


@pytest.mark.virtual_time
async def test_news_are_looked_at_soon_and_not_all_the_time() -> None:
    """A change of the status has a look within 2 s; a hundred changes have one each 2 s."""
    box = Watched()
    async with box.running() as watchdog:
        await advance(3)
        watchdog.look_soon()
        await advance(2.1)
        assert len(box.looks) == 2
        for _ in range(100):
            watchdog.look_soon()
            await advance(0.1)
        assert len(box.looks) <= 2 + 10 / 2 + 2
    began_s = box.looks[0]
    assert {began_s, began_s + 10} <= set(box.looks)


@pytest.mark.virtual_time
async def test_a_look_that_fails_ends_nothing_and_feeds_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next look goes on where the last whole one was; systemd is not told that all is well."""
    box = Watched()
    async with box.running() as watchdog:
        await advance(10)
        box.fault = RuntimeError("a look of no kind")
        turns = box.turns
        await advance(25)
        assert box.turns == turns
        assert watchdog.is_fresh()
        await advance(10)
        assert not watchdog.is_fresh()
        assert "a look of no kind" in caplog.text
        box.fault = None
        await advance(10)
        assert box.turns == turns + 1
        assert watchdog.is_fresh()


@pytest.mark.virtual_time
async def test_a_loop_that_hangs_feeds_nothing() -> None:
    """A look that never ends is the end of the process, by systemd's watchdog."""
    box = Watched()
    async with box.running() as watchdog:
        box.look_takes_s = 10_000.0
        await advance(40)
        turns = box.turns
        await advance(300)
        assert box.turns == turns
        assert not watchdog.is_fresh()


@pytest.mark.virtual_time
async def test_a_store_that_refuses_a_commit_gets_it_again() -> None:
    """The book stays as it was committed last, so that the firing comes once more."""
    box = Watched()
    async with box.running():
        box.answers = False
        await advance(15)
        box.store.fault = StoreError("the disk is full")
        await advance(30)
        assert box.kinds() == []
        box.store.fault = None
        await advance(10)
        assert box.kinds() == ["fired"]


@pytest.mark.virtual_time
async def test_the_book_outlives_the_agent() -> None:
    """A loop that starts anew goes on with the stored book and the rules' memory."""
    box = Watched()
    async with box.running():
        box.answers = False
        await advance(40)
    assert box.store.stored_memory
    async with box.running():
        await advance(30)
        box.answers = True
        await advance(40)
    assert box.kinds() == ["fired", "resolved"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("text", ["{", '{"gpus": 3}'])
async def test_a_damaged_memory_is_an_empty_one(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rules that compare with earlier looks begin anew."""
    box = Watched()
    box.store.stored_memory = text
    async with box.running():
        await advance(30)
    assert box.turns == 4
    assert "memory" in caplog.text


def act_on_supervisor(
    name: str,
) -> Callable[[AlertBook, Instant], Evaluation]:
    """Return an operator's change of the first alert, or of the box."""

    def act(book: AlertBook, now: Instant) -> Evaluation:
        if name == "silence":
            box = Subject(kind=SubjectKind.BOX)
            return silence(book, box, for_s=3600.0, by="ana", reason="rest", now=now)
        return ack(book, "A1", by="ana", now=now)

    return act


@pytest.mark.virtual_time
@pytest.mark.parametrize("name", ["ack", "silence"])
async def test_operators_change_the_book_between_two_looks(name: str) -> None:
    """A change is committed at once, and is there at the next look."""
    box = Watched()
    async with box.running() as watchdog:
        box.answers = False
        await advance(40)
        commits = box.store.commits
        kept = await watchdog.change(act_on_supervisor(name))
        assert box.store.commits == commits + 1
        assert [one.by for one in kept] == ["ana"]
        await advance(20)
        assert box.kinds()[0] == "fired"
        assert watchdog.book == box.store.stored


@pytest.mark.virtual_time
async def test_a_change_that_is_refused_changes_nothing() -> None:
    """The error of an action is the caller's, and the loop goes on."""
    box = Watched()
    async with box.running() as watchdog:
        with pytest.raises(NotFoundError):
            await watchdog.change(act_on_supervisor("ack"))
        await advance(20)
        assert box.turns == 3


@pytest.mark.virtual_time
async def test_changes_during_a_look_are_not_lost() -> None:
    """An evaluation begins with the book as the last change left it."""
    box = Watched()
    async with box.running() as watchdog:
        box.answers = False
        await advance(40)
        box.look_takes_s = 3.0
        await advance(9)
        await watchdog.change(act_on_supervisor("ack"))
        await advance(20)
        (state,) = [one for one in watchdog.book.states.values() if one.alert]
        assert state.acked_by == "ana"


@pytest.mark.virtual_time
async def test_nobody_is_told_without_targets(caplog: pytest.LogCaptureFixture) -> None:
    """Alerts are kept all the same, and the journal has them."""
    caplog.set_level(logging.INFO)
    box = Watched()
    box.targets = ()
    async with box.running():
        box.answers = False
        await advance(40)
    assert box.kinds() == ["fired"]
    assert box.store.notices == []
    assert "A1 box: supervisor-down fired" in caplog.text


GENESIS = Subject(kind=SubjectKind.PROFILE, name="genesis")


def document(state: str = "stopped", mark: str | None = "live", **last: object) -> StatusDocument:
    """Return a status document after a stop of genesis."""
    operation = {
        "id": 7,
        "kind": "stop",
        "profiles": ["genesis"],
        "outcome": "done",
        "finished_unix_s": time.time(),
        **last,
    }
    row = {"name": "genesis", "state": state, "mark": mark}
    return as_status({"profiles": [row], "last_operation": operation})


def silenced(box: WatchedAlerts) -> list[tuple[str, str]]:
    return [(each.subject.name, each.by) for each in box.book.silences]


async def test_a_stop_of_a_live_profile_is_silent_until_the_next_start(tmp_path: Path) -> None:
    """Further documents of the same stop change nothing; a load already ends it."""
    async with watched_alerts(tmp_path) as box:
        watch = StopWatch(box.watchdog)
        for _ in range(2):
            await watch.take(document())
        assert silenced(box) == [("genesis", "a stop")]
        await watch.take(document("loading"))
        assert silenced(box) == []


@pytest.mark.parametrize(
    "told",
    [
        document(mark="standby"),
        document(mark=None),
        document("serving"),
        document(kind="switch"),
        document(outcome="failed"),
        document(finished_unix_s=time.time() - 3 * 3600),
        document(profiles=["aeon"]),
        StatusDocument(),
    ],
)
async def test_other_documents_make_no_silence(tmp_path: Path, told: StatusDocument) -> None:
    """Another mark, another operation, an old one, one that failed, or none."""
    async with watched_alerts(tmp_path) as box:
        await StopWatch(box.watchdog).take(told)
        assert silenced(box) == []


async def test_an_operator_may_end_it(tmp_path: Path) -> None:
    """The silence is not made again for the same stop, but for the next one."""
    async with watched_alerts(tmp_path) as box:
        watch = StopWatch(box.watchdog)
        await watch.take(document())
        await box.watchdog.change(lambda book, now: unsilence(book, GENESIS, "ana", now))
        await watch.take(document())
        assert silenced(box) == []
        await watch.take(document(id=8))
        assert silenced(box) == [("genesis", "a stop")]


@pytest.mark.parametrize(("ago_s", "count"), [(30.0, 1), (90.0, 0)])
async def test_a_new_agent_leaves_what_the_old_one_has_seen(
    tmp_path: Path, ago_s: float, count: int
) -> None:
    """A stop of a minute before the last look was seen; a later one may not have been."""
    async with watched_alerts(tmp_path) as box:
        await box.watchdog.change(
            lambda book, now: evaluate(book, (), AlertCircumstances(), AlertPolicy(), now)
        )
        await StopWatch(box.watchdog).take(document(finished_unix_s=time.time() - ago_s))
        assert len(silenced(box)) == count


async def test_a_store_that_fails_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next document of the same stop makes the silence."""
    async with watched_alerts(tmp_path) as box:
        watch = StopWatch(box.watchdog)
        names = [f"p{n}" for n in range(300)]
        rows = [{"name": name, "state": "stopped", "mark": "live"} for name in names]
        many = document(profiles=names).replaced(profiles=as_status({"profiles": rows}).profiles)
        await watch.take(many)
        assert "a stop is not silenced: 200 silences are in force" in caplog.text
        assert silenced(box) == []
        await watch.take(document())
        assert silenced(box) == [("genesis", "a stop")]
