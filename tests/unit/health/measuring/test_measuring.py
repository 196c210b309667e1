"""Monitor and prober together, on an engine in virtual time: from the lane to the event."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.health.box_view import ProfileView
from appliance.health.measuring.evidence import EvidenceReader
from appliance.health.measuring.prober import Prober
from appliance.health.measuring.profile_monitor import ProfileMonitor
from appliance.model.measurements import (
    EventKind,
)
from appliance.model.profile import WarmUp
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_prompts import MOST_PIECE_S
from appliance.speed.probe_schedule import Cadence, ProbeConditions
from appliance.system.kernel.usage import CpuCounters
from tests.fakes.course_prober import FakeProbeStore
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeProbeLane
from tests.fakes.probed_engine import LlamaCppModel
from tests.fakes.profiles import applied
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

HOUR_S = 3600.0
LEARNED_S = 3 * HOUR_S
GENESIS = replace(applied("genesis", warm_up=WarmUp.CHAT), engine="llama-server")


class Measured:
    """A profile on an engine, its monitor with the real prober, and what was stored."""

    def __init__(self) -> None:
        self.clock = VirtualHealthClock()
        self.model = LlamaCppModel(prefill_tok_s=2000.0, decode_tok_s=40.0)
        self.store = FakeProbeStore()
        self.throttled = 0.0
        """Share of the time in which a quota keeps the engine from running."""
        evidence = EvidenceReader(self._no_gpus, self.clock, read_cpu=lambda _: self._cpu())
        lane = FakeProbeLane(self.model.answer)
        self.monitor = ProfileMonitor(
            "genesis",
            prober=Prober(lane, evidence, self.clock),
            store=self.store,
            clock=self.clock,
            cadence=Cadence(),
            states={},
        )
        view = ProfileView(
            name="genesis",
            applied=GENESIS,
            serving=True,
            started_unix_s=self.clock.unix_s(),
            main_pid=7,
            mark=None,
            held=False,
        )
        self.monitor.observe(view, ProbeConditions(serving=True))

    async def _no_gpus(self) -> Mapping[str, object] | None:
        raise AssertionError("a profile without GPUs needs none of them")

    def _cpu(self) -> CpuCounters:
        now_s = self.clock.monotonic_s()
        return CpuCounters(
            all_s=4 * now_s,
            busy_s=1.5 * now_s,
            unit_s=now_s,
            throttled_s=now_s * self.throttled / (1 - self.throttled),
        )


@asynccontextmanager
async def measuring() -> AsyncIterator[Measured]:
    """A profile whose first baseline is learned."""
    box = Measured()
    task = asyncio.create_task(box.monitor.run())
    try:
        await advance(LEARNED_S)
        assert [event.kind for event in box.store.events] == [EventKind.ACCEPTED] * 2
        yield box
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_speed_of_an_engine_is_measured() -> None:
    """Both rates, the version and the times are those of the engine, and its pieces are short."""
    async with measuring() as box:
        decode, prefill = box.monitor.report().series
        assert decode.baseline == pytest.approx(40.0, rel=0.01)
        assert prefill.baseline == pytest.approx(2000.0, rel=0.1)
        assert {probe.outcome for probe in box.store.probes} == {ProbeOutcome.VALID}
        last = next(p for p in reversed(box.store.probes) if p.prompt.startswith("prefill"))
        assert last.evidence.engine_version == box.model.version
        _, _, piece = last.prompt.partition("/p")
        assert 16 <= int(piece) <= MOST_PIECE_S * 2000


async def test_probing_takes_half_a_per_cent_of_the_time() -> None:
    """Six hours of probes take less than their share."""
    async with measuring() as box:
        before = len(box.store.probes)
        await advance(6 * HOUR_S)
        took_s = [probe.raw.wall_s for probe in box.store.probes[before:] if probe.raw is not None]
        assert sum(took_s) < 0.005 * 6 * HOUR_S
        assert len(took_s) >= 2 * 22


async def test_quota_on_the_engine_is_told_with_its_size() -> None:
    """An engine that a CPU quota makes a quarter slower is a loss of that size and cause, until it ends."""
    async with measuring() as box:
        box.model.decode_tok_s, box.model.prefill_tok_s = 30.0, 1500.0
        box.throttled = 0.25
        await advance(2 * HOUR_S)
        lost = box.store.events[2:]
        assert sorted((event.kind, event.series) for event in lost) == [
            (EventKind.REGRESSION, Series.DECODE),
            (EventKind.REGRESSION, Series.PREFILL),
        ]
        for event in lost:
            assert event.change == pytest.approx(-0.25, abs=0.02)
            assert event.cause == "cpu-quota"
        box.model.decode_tok_s, box.model.prefill_tok_s = 40.0, 2000.0
        await advance(2 * HOUR_S)
        assert [event.kind for event in box.store.events[4:]] == [EventKind.RECOVERED] * 2


async def test_engine_without_timings_is_measured_by_its_stream() -> None:
    """Where the engine tells no times, those of its stream count, and a loss shows in them too."""
    box = Measured()
    box.model.tells_timings = False
    task = asyncio.create_task(box.monitor.run())
    await advance(LEARNED_S)
    box.model.decode_tok_s = 28.0
    await advance(2 * HOUR_S)
    lost = [event for event in box.store.events if event.kind is EventKind.REGRESSION]
    assert [event.series for event in lost] == [Series.DECODE]
    assert lost[0].change == pytest.approx(-0.3, abs=0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
