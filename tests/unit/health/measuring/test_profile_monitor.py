"""Monitor of a profile's speed, with a prober of the tests, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.health.box_view import ProfileView
from appliance.health.measuring.profile_monitor import ProfileMonitor
from appliance.model.errors import BackendError, PreconditionError
from appliance.model.measurements import (
    EventKind,
    ForeignHolder,
    MeasurementEvent,
    ProbeKind,
    TrafficSums,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_schedule import Cadence, ProbeConditions
from appliance.wire.health_socket import ProbeProgressEvent
from tests.fakes.course_prober import FakeCourseProber, FakeProbeStore
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_rows import EVIDENCE
from tests.fakes.profiles import applied
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

HOUR_S = 3600.0
GENESIS = applied("genesis")
SERVING = ProbeConditions(serving=True)
STOPPED = ProbeConditions(serving=False)
HELD = replace(
    EVIDENCE, foreign_holders=(ForeignHolder(pid=4121, name="python3", held_bytes=9 << 30),)
)
_Told = list[tuple[EventKind, Series | None]]


class Rig:
    """A box with one profile and its monitor, which runs."""

    def __init__(self, *, silent_after_s: float = 6 * HOUR_S, trial_speed: float = 1.0) -> None:
        self.clock = VirtualHealthClock()
        self.prober = FakeCourseProber(self.clock)
        self.store = FakeProbeStore()
        self.cadence = Cadence(silent_after_s=silent_after_s)
        self.trial_speed = trial_speed
        self.pid = 100
        self.started_unix_s = self.clock.unix_s()
        self.conditions = SERVING
        self.profile = GENESIS
        self.monitor = self.made()
        self.task: asyncio.Task[None] | None = None

    def made(self) -> ProfileMonitor:
        return ProfileMonitor(
            "genesis",
            prober=self.prober,
            store=self.store,
            clock=self.clock,
            cadence=self.cadence,
            states=self.store.saved,
            trial_speed=self.trial_speed,
        )

    def view(self) -> ProfileView:
        return ProfileView(
            name="genesis",
            applied=self.profile,
            serving=self.conditions.serving,
            started_unix_s=self.started_unix_s,
            main_pid=self.pid,
            mark=None,
            held=False,
        )

    def observe(self, conditions: ProbeConditions | None = None) -> None:
        self.conditions = self.conditions if conditions is None else conditions
        self.monitor.observe(self.view(), self.conditions)

    def restart_backend(self) -> None:
        self.pid += 1
        self.started_unix_s = self.clock.unix_s()
        self.observe()

    def begin(self) -> None:
        self.task = asyncio.create_task(self.monitor.run())
        self.observe()

    async def kill(self) -> None:
        """End the monitor wherever it is; another one begins with what was stored."""
        await self.end()
        self.monitor = self.made()
        self.begin()

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        assert self.task.cancelled()

    async def run(self, hours: float) -> list[MeasurementEvent]:
        """Let time pass; return the events of it."""
        before = len(self.store.events)
        await advance(hours * HOUR_S)
        return self.store.events[before:]


@asynccontextmanager
async def watched(hours: float = 8, **values: float) -> AsyncIterator[Rig]:
    """A box that has learned its first baseline, if it gets the time."""
    rig = Rig(**values)
    rig.begin()
    try:
        await rig.run(hours)
        yield rig
    finally:
        await rig.end()


def kinds(events: list[MeasurementEvent]) -> _Told:
    return sorted((event.kind, event.series) for event in events)


def both(kind: EventKind) -> _Told:
    return [(kind, Series.DECODE), (kind, Series.PREFILL)]


async def test_wait_for_the_lanes_turn_costs_no_budget() -> None:
    """Probes that wait two minutes for another profile's are as many as without a wait."""
    async with watched(4) as alone:
        usual = len(alone.prober.times)
    rig = Rig()
    rig.prober.turn_s = 120.0
    rig.begin()
    await rig.run(4)
    await rig.end()
    assert len(rig.prober.times) >= usual - 1


async def test_baseline_is_learned_after_two_warm_ups() -> None:
    """A profile that serves is warmed up, probed, and has a baseline within hours."""
    async with watched(1) as rig:
        assert [course.kind for course in rig.prober.courses[:3]] == [
            ProbeKind.WARM_UP,
            ProbeKind.WARM_UP,
            ProbeKind.SCHEDULED,
        ]
        assert rig.prober.courses[2].prompts == ("lru-cache", "prefill-1024")
        assert rig.prober.courses[2].output_tokens == 128
        assert rig.monitor.report().series[0].phase == "learning"
        assert kinds(await rig.run(5)) == both(EventKind.ACCEPTED)
        report = rig.monitor.report()
        assert report.series[0].baseline == pytest.approx(80, rel=0.01)
        assert report.last_outcome is ProbeOutcome.VALID
        assert report.waiting == ""
        now_s = rig.clock.unix_s()
        assert now_s <= (report.next_probe_unix_s or 0) <= now_s + 900
        assert rig.monitor.baseline().series[0].baseline == pytest.approx(80, rel=0.01)


async def test_loss_and_recovery_are_told_once() -> None:
    """A loss of a third is told with its size and cause within the hour, and so is its end."""
    async with watched() as rig:
        rig.prober.speed, rig.prober.evidence = 0.66, HELD
        lost = await rig.run(3)
        assert kinds(lost) == both(EventKind.REGRESSION)
        assert lost[0].change == pytest.approx(-0.34, abs=0.02)
        assert lost[0].cause == "foreign-holder"
        assert rig.monitor.report().series[0].since_unix_s == lost[0].since_unix_s
        rig.prober.speed, rig.prober.evidence = 1.0, EVIDENCE
        assert kinds(await rig.run(3)) == both(EventKind.RECOVERED)
        assert await rig.run(6) == []


async def test_single_contaminated_probes_tell_nothing() -> None:
    """Probes beside other load, one in two hours, are no loss."""
    async with watched() as rig:
        for _ in range(5):
            rig.prober.speed = 0.5
            await rig.run(0.25)
            rig.prober.speed = 1.0
            await rig.run(1.75)
        assert kinds(rig.store.events) == both(EventKind.ACCEPTED)


@pytest.mark.parametrize("every_s", [1700.0, 611.0])
async def test_kills_change_no_event(every_s: float) -> None:
    """An agent that is killed again and again tells each thing once, with its right size."""
    async with watched() as rig:
        for speed in (0.7, 1.0):
            rig.prober.speed = speed
            for _ in range(int(4 * HOUR_S / every_s)):
                await advance(every_s)
                await rig.kill()
        events = rig.store.events
        assert kinds(events) == sorted(
            both(EventKind.ACCEPTED) + both(EventKind.REGRESSION) + both(EventKind.RECOVERED)
        )
        lost = next(event for event in events if event.kind is EventKind.REGRESSION)
        assert lost.change == pytest.approx(-0.3, abs=0.02)
        assert [c.kind for c in rig.prober.courses].count(ProbeKind.WARM_UP) == 2


async def test_restart_of_the_backend_is_warmed_up() -> None:
    """After a start two probes are discarded, and the baseline stays."""
    async with watched() as rig:
        rig.restart_backend()
        assert await rig.run(3) == []
        assert [c.kind for c in rig.prober.courses].count(ProbeKind.WARM_UP) == 4
        assert rig.monitor.report().series[0].baseline == pytest.approx(80, rel=0.01)


async def test_restart_that_comes_back_off_is_told() -> None:
    """Real levels of one model, 80.3 and then 83 tok/s, are told as the restart's."""
    async with watched(16) as rig:
        rig.prober.speed = 83 / 80.3
        rig.restart_backend()
        found = await rig.run(8)
        assert kinds(found) == both(EventKind.LEVEL_AFTER_RESTART)
        assert found[0].change == pytest.approx(83 / 80.3 - 1, abs=0.006)


async def test_busy_profile_is_told_after_hours() -> None:
    """Six hours in which each probe gives way are an event, once, and so is the first valid probe."""
    async with watched() as rig:
        rig.prober.outcomes = [ProbeOutcome.TOO_LONG] * 2
        await rig.run(1)
        rig.prober.outcome = ProbeOutcome.YIELDED
        found = await rig.run(7)
        assert kinds(found) == [(EventKind.NO_VALID_PROBE, None)]
        assert "yielded" in found[0].text
        assert "too-long" not in found[0].text
        assert "no valid probe in 6 h" in found[0].text
        assert "no valid probe" in rig.monitor.report().trouble
        await rig.kill()
        assert await rig.run(7) == []
        rig.prober.outcome = ProbeOutcome.VALID
        assert kinds(await rig.run(2)) == [(EventKind.VALID_PROBE_AGAIN, None)]
        assert rig.monitor.report().trouble == ""


async def test_a_box_that_others_use_is_no_event() -> None:
    """Half a day of other programs is told by the status alone, and no loss of speed follows from it."""
    async with watched(16) as rig:
        rig.prober.outcome, rig.prober.speed = ProbeOutcome.CROWDED, 0.1
        assert await rig.run(12) == []
        assert rig.monitor.report().trouble == "its speed is not measured now: it crowded"
        rig.prober.outcome, rig.prober.speed = ProbeOutcome.VALID, 1.0
        assert await rig.run(2) == []
        assert rig.monitor.report().trouble == ""


async def test_kill_during_a_silence_keeps_its_length() -> None:
    """Kills do not begin a silence anew, and time without serving does not belong to it."""
    async with watched() as rig:
        rig.prober.outcome = ProbeOutcome.FAILED
        for _ in range(5):
            await rig.run(1)
            await rig.kill()
        rig.observe(STOPPED)
        assert await rig.run(24) == []
        rig.observe(SERVING)
        assert await rig.run(0.5) == []
        assert kinds(await rig.run(1.5)) == [(EventKind.NO_VALID_PROBE, None)]


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        (STOPPED, "it does not serve"),
        (replace(SERVING, operation=True), "an operation is running"),
        (replace(SERVING, held=True), "requests are held"),
        (replace(SERVING, bench=True), "a bench has the box"),
    ],
)
async def test_no_probe_is_made_under_other_conditions(
    conditions: ProbeConditions, why: str
) -> None:
    """Operations, holds and benches keep probes away, also those that people want."""
    async with watched(1) as rig:
        rig.observe(conditions)
        made = len(rig.prober.courses)
        await rig.run(2)
        assert len(rig.prober.courses) == made
        report = rig.monitor.report()
        assert (report.waiting, report.next_probe_unix_s) == (why, None)
        with pytest.raises(PreconditionError, match=why):
            [step async for step in rig.monitor.probe_now()]


async def test_profile_that_is_not_applied_is_not_probed() -> None:
    """A profile whose manifest entry is missing is left alone."""
    async with watched(0) as rig:
        rig.monitor.observe(replace(rig.view(), applied=None), SERVING)
        made = len(rig.prober.courses)
        await rig.run(1)
        assert len(rig.prober.courses) <= made + 1
        assert rig.monitor.report().waiting == "it is not applied"


async def test_probe_on_demand_is_made_at_once() -> None:
    """A person who wants a probe sees both prompts end, and the schedule goes on."""
    async with watched() as rig:
        began_s = rig.clock.monotonic_s()
        steps: list[ProbeProgressEvent] = [step async for step in rig.monitor.probe_now()]
        assert len(steps) == 2
        assert rig.clock.monotonic_s() - began_s < 15
        assert rig.store.probes[-1].kind is ProbeKind.ON_DEMAND


async def test_person_who_leaves_ends_no_probe() -> None:
    """A probe on demand whose reader goes away is stored all the same."""
    async with watched() as rig:
        steps = rig.monitor.probe_now()
        await anext(steps)
        await steps.aclose()  # type: ignore[attr-defined]
        await advance(30)
        assert [probe.kind for probe in rig.store.probes[-2:]] == [ProbeKind.ON_DEMAND] * 2


async def test_probe_that_does_not_end_is_given_up_by_who_waits() -> None:
    """A person waits for half an hour at most, and is told."""
    async with watched() as rig:
        rig.prober.speed = 0.0001
        with pytest.raises(BackendError, match="does not end"):
            [step async for step in rig.monitor.probe_now()]


async def test_same_news_wake_nobody() -> None:
    """A status document that says the same again is not looked at."""
    async with watched(1) as rig:
        rig.monitor._news.clear()
        rig.observe()
        assert not rig.monitor._news.is_set()


async def test_accept_before_the_profile_serves_begins_to_learn() -> None:
    """A profile that has never served has an accept, and its readings are the baseline."""
    rig = Rig()
    rig.conditions = STOPPED
    rig.begin()
    await rig.monitor.accept("ana")
    assert kinds(rig.store.events) == both(EventKind.ACCEPTED)
    rig.observe(SERVING)
    assert await rig.run(6) == []
    assert rig.monitor.report().series[0].baseline == pytest.approx(80, rel=0.01)
    await rig.end()


async def test_slow_traffic_makes_a_probe_due_and_tells_nothing() -> None:
    """Real traffic a third slower brings at most three probes an interval, and no event."""
    async with watched() as rig:

        def traffic(tok_s: float, times: int = 1) -> None:
            for _ in range(times):
                sums = TrafficSums(
                    unix_s=rig.clock.unix_s(), output_tokens=600, decode_s=600 / tok_s
                )
                rig.monitor.add_traffic(sums)

        traffic(78.0, 20)
        for _ in range(12):
            traffic(50.0)
            await advance(75)
        triggered = [c for c in rig.prober.courses if c.kind is ProbeKind.TRIGGERED]
        assert 1 <= len(triggered) <= 3
        assert kinds(rig.store.events) == both(EventKind.ACCEPTED)
        assert sum(sums.output_tokens for sums in rig.store.traffic) >= 600 * 30


async def test_slow_moment_of_traffic_makes_one_probe_due() -> None:
    """One slow answer is looked into once, and sums are stored once a minute at most."""
    async with watched() as rig:
        sums = TrafficSums(unix_s=rig.clock.unix_s(), output_tokens=600, decode_s=600 / 78)
        for _ in range(20):
            rig.monitor.add_traffic(sums)
        rig.monitor.add_traffic(replace(sums, decode_s=600 / 50))
        for _ in range(12):
            rig.monitor.add_traffic(replace(sums, output_tokens=1))
            rig.observe(replace(SERVING, operation=True))
            await advance(5)
            rig.observe(SERVING)
            await advance(5)
        assert len(rig.store.traffic) <= 3
        await rig.run(2)
        kinds_made = [course.kind for course in rig.prober.courses]
        assert kinds_made.count(ProbeKind.TRIGGERED) == 1


async def test_late_warm_ups_are_no_readings() -> None:
    """Warm-ups that come long after the start, because of an operation, are discarded too."""
    async with watched() as rig:
        rig.restart_backend()
        rig.observe(replace(SERVING, operation=True))
        await rig.run(0.5)
        rates = rig.monitor.report().series[0].rates
        rig.prober.speed = 0.5
        rig.observe(SERVING)
        await advance(5)
        assert [course.kind for course in rig.prober.courses[-2:]] == [ProbeKind.WARM_UP] * 2
        assert rig.monitor.report().series[0].rates == rates


async def test_lost_prefix_cache_is_named() -> None:
    """A prefix cache that no longer holds real prompts is trouble, not an event."""
    async with watched() as rig:
        for cached in (*[3500] * 20, *[50] * 5):
            rig.monitor.add_traffic(
                TrafficSums(unix_s=rig.clock.unix_s(), prompt_tokens=5000, cached_tokens=cached)
            )
        report = rig.monitor.report()
        assert "the prefix cache holds" in report.trouble
        assert (report.cached_share or 1) < 0.1


@pytest.mark.parametrize("step_s", [-3 * HOUR_S, -60.0, 60.0, 26 * HOUR_S])
async def test_clock_that_is_set_tells_nothing(step_s: float) -> None:
    """A wall clock that jumps is no loss, and probes go on."""
    async with watched() as rig:
        rig.clock.step_s = step_s
        made = len(rig.prober.courses)
        assert await rig.run(3) == []
        assert 10 <= len(rig.prober.courses) - made <= 16


async def test_suspended_box_tells_nothing() -> None:
    """A probe in whose middle the box was suspended is repeated soon, and is no reading."""
    async with watched() as rig:
        rig.prober.outcomes = [ProbeOutcome.CLOCK]
        rig.clock.suspended_s += 9 * HOUR_S
        made = len(rig.prober.courses)
        assert await rig.run(1) == []
        assert len(rig.prober.courses) - made >= 5
        assert rig.monitor.report().last_outcome is ProbeOutcome.VALID


async def test_full_disk_loses_no_event() -> None:
    """Events and states wait for the disk; probes that could not be stored are missing."""
    async with watched() as rig:
        rig.store.full, rig.prober.speed = True, 0.7
        stored = len(rig.store.probes)
        assert kinds(await rig.run(3)) == both(EventKind.REGRESSION)
        assert len(rig.store.probes) == stored


async def test_accept_and_reset_are_told_with_who_did_it() -> None:
    """An accept takes over the level of a loss, and a reset forgets it."""
    async with watched() as rig:
        rig.prober.speed = 0.5
        await rig.run(2)
        row = rig.monitor.baseline().series[0]
        assert row.change == pytest.approx(-0.5, abs=0.01)
        await rig.monitor.accept("ana")
        assert kinds(rig.store.events[-2:]) == both(EventKind.ACCEPTED)
        assert "ana" in rig.store.events[-1].text
        assert await rig.run(6) == []
        assert rig.monitor.baseline().series[0].baseline == pytest.approx(40, rel=0.01)
        await rig.monitor.reset("ana")
        assert kinds(rig.store.events[-2:]) == both(EventKind.BASELINE_RESET)
        assert kinds(await rig.run(6)) == both(EventKind.ACCEPTED)


async def test_silent_drafts_are_told() -> None:
    """A profile that declares speculative decoding and drafts nothing is told once."""
    rig = Rig()
    rig.profile = replace(GENESIS, speculative=True)
    rig.prober.drafted = 0
    rig.begin()
    found = await rig.run(6)
    assert [event.kind for event in found].count(EventKind.DRAFTS_SILENT) == 1
    await rig.end()


@pytest.mark.parametrize("speed", [0.1, 0.03])
async def test_engine_that_is_far_slower_gets_short_probes(speed: float) -> None:
    """At a tenth of the speed answers are short, the long prompt is left out, and the loss is told."""
    async with watched() as rig:
        rig.prober.speed = speed
        found = await rig.run(2)
        assert (EventKind.REGRESSION, Series.DECODE) in kinds(found)
        course = rig.prober.courses[-1]
        assert len(course.prompts) == 1
        assert course.output_tokens == 16
        assert found[0].change == pytest.approx(speed - 1, abs=0.02)


async def test_long_prompt_that_does_not_fit_becomes_shorter() -> None:
    """An engine that refuses the long prompt gets half of it after the second time."""
    rig = Rig()
    rig.prober.refused = "prefill-1024"
    rig.begin()
    await rig.run(2)
    assert "prefill-512" in rig.prober.courses[-1].prompts
    await rig.end()


async def test_pieces_belong_to_the_baseline() -> None:
    """The size of pieces that was found first stays while the baseline does."""
    rig = Rig()
    rig.prober.pieces = 64
    rig.begin()
    await rig.run(1)
    rig.prober.pieces = 128
    await rig.run(1)
    names = {name for course in rig.prober.courses for name in course.prompts}
    assert {name for name in names if name.startswith("prefill")} == {"prefill-1024/p64"}
    await rig.kill()
    made = len(rig.prober.courses)
    await rig.monitor.accept("ana")
    await rig.run(1)
    later = rig.prober.courses[made:]
    assert [course.kind for course in later[:2]] == [ProbeKind.WARM_UP] * 2
    assert "prefill-1024/p128" in later[2].prompts
    await rig.end()


async def test_damaged_state_is_trouble() -> None:
    """A state that cannot be read is told, and a baseline is learned anew."""
    rig = Rig()
    rig.store.saved["decode"] = "{}"
    rig.monitor = rig.made()
    rig.begin()
    assert kinds(await rig.run(6)) == both(EventKind.ACCEPTED)
    assert "learned anew" in rig.monitor.report().trouble
    await rig.end()


async def test_trial_runs_faster() -> None:
    """At sixty times the speed a loss is told within minutes, and probes cost what they cost."""
    async with watched(0.15, trial_speed=60.0) as rig:
        assert kinds(rig.store.events) == both(EventKind.ACCEPTED)
        rig.prober.speed = 0.7
        found = await rig.run(0.05)
        assert kinds(found) == both(EventKind.REGRESSION)
        assert found[0].unix_s - (found[0].since_unix_s or 0) < 120
        await rig.kill()
        assert rig.monitor.report().trouble == ""
        assert rig.monitor.report().series[0].phase == "regressed"
