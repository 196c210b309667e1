"""The health agent: which profiles are watched, and what their monitors are told."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from appliance.health.agent import HealthAgent, QualityWatch, SpeedWatch
from appliance.model.errors import StoreError
from appliance.model.measurements import TrafficSums
from appliance.model.profile import Applied, WarmUp
from appliance.model.status import StatusDocument
from appliance.model.words import Mark
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.health_monitors import FakeCompactingStore, FakeQualityWatch, FakeSpeedWatch
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import as_status
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

Document = StatusDocument | None


def row(name: str, state: str = "serving", mark: str = "live") -> dict[str, Any]:
    return {"name": name, "state": state, "mark": mark, "since_unix_s": 1.0, "main_pid": 7}


def document(*rows: Mapping[str, object], **more: object) -> Document:
    return as_status({"profiles": list(rows), **more})


def gateway(output_tokens: int) -> Mapping[str, object]:
    profiles = [{"name": name, "decoded_tokens": output_tokens, "decode_s": 1.0} for name in "ax"]
    return {"state": "up", "profiles": profiles}


class Agency:
    """An agent with fake monitors, and the documents that it gets."""

    def __init__(self, *profiles: Applied, why_off: str = "") -> None:
        self.catalogue = {profile.name: profile for profile in profiles or (applied("a"),)}
        self.fault: StoreError | None = None
        self.documents: asyncio.Queue[Document] = asyncio.Queue()
        self.store = FakeCompactingStore()
        self.clock = VirtualHealthClock()
        self.speeds: dict[str, FakeSpeedWatch] = {}
        self.qualities: dict[str, FakeQualityWatch] = {}
        self.leased = False
        self.told: list[str] = []
        self.agent = HealthAgent(
            catalogue=self.read,
            make_watches=self.make,
            store=self.store,
            is_leased=lambda: self.leased,
            clock=self.clock,
            on_alive=self.told.append,
            why_off=why_off,
        )

    def read(self) -> Mapping[str, Applied]:
        if self.fault is not None:
            raise self.fault
        return dict(self.catalogue)

    async def make(self, names: Sequence[str]) -> Mapping[str, tuple[SpeedWatch, QualityWatch]]:
        self.speeds |= {name: FakeSpeedWatch(name) for name in names}
        self.qualities |= {name: FakeQualityWatch() for name in names}
        return {name: (self.speeds[name], self.qualities[name]) for name in names}

    async def say(self, *documents: Document) -> None:
        for one in documents:
            self.documents.put_nowait(one)
        await advance(0.1)

    async def _stream(self) -> AsyncIterator[Document]:
        while True:
            yield await self.documents.get()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.agent.run(self._stream()))
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_each_applied_profile_that_generates_is_watched() -> None:
    """Each has two monitors that run; an embedder has none, and neither has an unknown profile."""
    box = Agency(applied("a"), applied("b"), applied("e", warm_up=WarmUp.EMBEDDING))
    async with box.running():
        await box.say(document(row("a"), row("b", "stopped"), row("e"), row("x")))
        assert sorted(box.speeds) == ["a", "b"]
        for name, serving in (("a", True), ("b", False)):
            for monitor in (box.speeds[name], box.qualities[name]):
                assert monitor.state == "running"
                ((view, conditions),) = monitor.seen
                assert (view.name, conditions.serving) == (name, serving)
                assert conditions.met is serving


@pytest.mark.parametrize(
    ("second", "part"),
    [
        (document(row("a"), operation={"kind": "switch"}), "operation"),
        (document(row("a"), hold={"kept": True}), "held"),
        (document(row("a"), run={"state": "running"}), "held"),
        (None, "held"),
    ],
)
async def test_no_probe_begins_while_others_need_the_box(second: Document, part: str) -> None:
    """Operations, holds and a silent supervisor stop probes; the profile serves all the while."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a")), second, document(row("a")))
        first, during, after = (conditions for _, conditions in box.speeds["a"].seen)
        assert first.met
        assert after.met
        assert during.serving
        assert getattr(during, part)
        assert not during.met


async def test_a_supervisor_that_restarts_looks_like_no_start_of_a_profile() -> None:
    """The view of a profile stays the last one that the supervisor gave."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a")), None, document(row("a")))
        views = [view for view, _ in box.speeds["a"].seen]
        assert views[0] == views[1] == views[2]


async def test_a_lease_stops_probes_at_once() -> None:
    """The desk has the agent tell its monitors, which learn of the bench without a document."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a")))
        for leased in (True, False):
            box.leased = leased
            box.agent.observe()
            assert box.speeds["a"].seen[-1][1].bench is leased
            assert box.qualities["a"].seen[-1][1].bench is leased


async def test_a_retired_profile_is_not_asked() -> None:
    """A retired profile counts as one that does not serve."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a", mark=Mark.RETIRED)))
        assert not box.speeds["a"].seen[-1][1].serving


async def test_a_profile_that_is_gone_is_watched_no_longer() -> None:
    """A profile that is not applied any more has no monitor, and one that comes back a new one."""
    box = Agency(applied("a"), applied("b"))
    async with box.running():
        await box.say(document(row("a"), row("b")))
        first = box.speeds["a"]
        del box.catalogue["a"]
        await box.say(document(row("b")))
        assert (first.state, box.speeds["b"].state) == ("cancelled", "running")
        assert box.agent.monitor("a") is None
        box.catalogue["a"] = applied("a")
        await box.say(document(row("a"), row("b")))
        assert box.agent.monitor("a") is box.speeds["a"] is not first


async def test_a_profile_of_which_the_supervisor_says_nothing_does_not_serve() -> None:
    """A profile that was applied a moment ago may not be in the document."""
    box = Agency(replace(applied("a"), engine="vllm"))
    async with box.running():
        await box.say(document())
        view, conditions = box.speeds["a"].seen[-1]
        assert not conditions.serving
        assert view.applied == box.catalogue["a"]


async def test_a_monitor_that_raises_ends_the_agent() -> None:
    """The process ends with every error of ours, and systemd starts it again."""
    box = Agency()
    task = asyncio.create_task(box.agent.run(box._stream()))
    await box.say(document(row("a")))
    box.qualities["a"].fault = ZeroDivisionError("a fault of ours")
    await box.say(document(row("a")))
    with pytest.raises(ExceptionGroup) as caught:
        await task
    assert caught.group_contains(ZeroDivisionError)


async def test_real_traffic_goes_to_its_monitor() -> None:
    """Differences of the gateway's counters arrive, of profiles that are watched."""
    box = Agency()
    async with box.running():
        await box.say(
            document(row("a"), gateway=gateway(100)), document(row("a"), gateway=gateway(130))
        )
        (sums,) = box.speeds["a"].traffic
        assert replace(sums, unix_s=0.0) == TrafficSums(unix_s=0.0, output_tokens=30, decode_s=0.0)


async def test_profiles_that_cannot_be_read_stay_as_they_were() -> None:
    """A damaged manifest is a trouble that is told, until it can be read again."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a")))
        box.fault = StoreError("manifest.json is damaged: sudo appliance apply")
        await box.say(document(row("a")))
        assert box.speeds["a"].seen[-1][1].met
        assert box.agent.troubles() == ["manifest.json is damaged: sudo appliance apply"]
        box.fault = None
        await box.say(document(row("a")))
        assert box.agent.troubles() == []


async def test_troubles_name_what_is_ill() -> None:
    """The store, the supervisor and each monitor are heard."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a")))
        box.store.trouble = "measurements cannot be stored"
        box.speeds["a"].trouble = "no timings"
        box.qualities["a"].trouble = "canaries/a.jsonl:1: no JSON"
        await box.say(None)
        assert box.agent.troubles() == [
            "measurements cannot be stored",
            "the supervisor does not answer: systemctl status appliance-supervisor",
            "a: no timings",
            "a: canaries/a.jsonl:1: no JSON",
        ]


async def test_reports_are_of_what_serves_or_was_measured() -> None:
    """The rate of passed canaries stands in the report of the speed."""
    box = Agency(applied("a"), applied("b"), applied("c"))
    async with box.running():
        await box.say(document(row("a"), row("b", "stopped"), row("c", "stopped")))
        box.speeds["b"].last_probe_unix_s = 5.0
        box.qualities["b"].pass_rate = 0.75
        reports = box.agent.reports()
        assert list(reports) == ["a", "b"]
        assert (reports["b"].quality_pass_rate, reports["a"].quality_pass_rate) == (0.75, None)
        assert (box.agent.serving(), box.agent.profiles()) == (["a"], ["a", "b", "c"])


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(30.0, "under a minute"), (200.0, "3 min"), (7000.0, "116 min"), (9000.0, "2 h")],
)
async def test_systemd_is_told_what_is_watched(age_s: float, text: str) -> None:
    """The watchdog is fed every 10 s, with a line that seldom changes."""
    box = Agency()
    async with box.running():
        await box.say(document(row("a")))
        box.speeds["a"].last_probe_unix_s = box.clock.unix_s() - age_s
        before = len(box.told)
        await advance(19.95)
        assert len(box.told) - before == 2
        assert box.told[-1] == f"1 profile watched · last probe {text} ago"


async def test_an_agent_without_a_box_says_so() -> None:
    """Before the first document nobody serves, and the supervisor does not answer."""
    box = Agency()
    async with box.running():
        await advance(0.1)
        expected = "the supervisor does not answer: systemctl status appliance-supervisor"
        assert box.told == [f"0 profiles watched · {expected}"]


async def test_an_agent_that_is_switched_off_asks_nothing() -> None:
    """An agent that may not measure makes no monitor, lets the store rest, and says why."""
    box = Agency(why_off="nothing is measured: health.enabled is false")
    async with box.running():
        await box.say(document(row("a")))
        assert box.speeds == {}
        assert box.agent.troubles() == ["nothing is measured: health.enabled is false"]
        await advance(3600.0)
        assert box.store.compacted == []


async def test_the_store_is_kept_small() -> None:
    """Retention is taken step by step, a minute after the start and then each hour."""
    box = Agency()
    box.store.steps = [True, True]
    async with box.running():
        await advance(61.0)
        assert len(box.store.compacted) == 3
        await advance(3600.0)
        assert len(box.store.compacted) == 4
