"""Evidence of a probe, read in virtual time."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict

import pytest

from appliance.health.measuring.evidence import EvidenceReader
from appliance.model.measurements import BoxGpus, Evidence, GpuEvidence, GpuSample
from appliance.system.kernel.usage import CpuCounters
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.profiles import applied
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

ON_GPU = applied("alpha", "gpu-0")
FRESH_S = 1.0


class Supervisor:
    """Supervisor that reads one GPU at most once a second; its model works from 2 s to 6 s."""

    def __init__(self) -> None:
        self.clock = VirtualHealthClock()
        self.began_s = self.clock.monotonic_s()
        self.readings = 0
        self.answers: list[Mapping[str, object] | None] = []
        """Answers instead of readings, one for each question."""
        self.hangs = False
        self._last = BoxGpus(taken_s=float("-inf"))

    async def gpus(self) -> Mapping[str, object] | None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.answers:
            return self.answers.pop(0)
        now_s = self.clock.monotonic_s()
        if now_s - self._last.taken_s >= FRESH_S:
            self.readings += 1
            self._last = self._read(now_s)
        document: Mapping[str, object] = json.loads(json.dumps(asdict(self._last)))
        return document

    def _read(self, now_s: float) -> BoxGpus:
        at_s = now_s - self.began_s
        worked_s = min(4.0, max(0.0, at_s - 2.0))
        evidence = GpuEvidence(
            uuid="GPU-0",
            power_w=300.0 if 2.0 <= at_s < 6.0 else 30.0,
            energy_j=30.0 * at_s + 270.0 * worked_s,
        )
        return BoxGpus(taken_s=now_s, gpus=(GpuSample(index=0, evidence=evidence),), driver="580")

    def reader(self) -> EvidenceReader:
        return EvidenceReader(self.gpus, self.clock, read_cpu=self.cpu)

    def cpu(self, group: str) -> CpuCounters:
        """Two CPUs; the unit uses one, and a quota keeps it from running as long again."""
        assert group.endswith("appliance.slice/appliance-backend-alpha.service")
        now_s = self.clock.monotonic_s()
        return CpuCounters(all_s=2 * now_s, busy_s=now_s, unit_s=now_s, throttled_s=now_s)


async def test_a_probe_is_between_its_readings() -> None:
    """The energy is the probe's, the state that under load, the power before it that of idling."""
    box = Supervisor()
    await advance(2.0)
    recording = await box.reader().begin(ON_GPU)
    await advance(0.5)
    sampling = asyncio.create_task(recording.sample())
    await advance(3.5)
    await sampling
    evidence = await recording.end(engine_version="0.32", with_energy=True)
    assert evidence.gpus[0].power_w == 300.0
    assert evidence.energy_j == pytest.approx(1200.0)
    assert (evidence.driver, evidence.engine_version) == ("580", "0.32")
    assert evidence.fingerprint == ON_GPU.fingerprint
    assert (evidence.other_cpu_share, evidence.cpu_throttled_share) == (0.0, 0.5)


async def test_a_reading_from_before_is_no_sample() -> None:
    """The supervisor's last reading shows an idle GPU: a sample waits for a new one."""
    box = Supervisor()
    await advance(1.9)
    recording = await box.reader().begin(ON_GPU)
    await advance(0.2)
    await recording.sample()
    assert box.readings == 2
    assert box.clock.monotonic_s() - box.began_s == pytest.approx(2.9)
    evidence = await recording.end(engine_version=None, with_energy=True)
    assert evidence.gpus[0].power_w == 300.0
    assert evidence.idle_power_w == 30.0


async def test_without_energy_the_last_reading_is_enough() -> None:
    """A probe of prefill does not wait for a reading from after its end."""
    box = Supervisor()
    await advance(2.0)
    recording = await box.reader().begin(ON_GPU)
    await advance(0.5)
    evidence = await recording.end(engine_version=None, with_energy=False)
    assert box.clock.monotonic_s() - box.began_s == pytest.approx(2.5)
    assert (len(evidence.gpus), evidence.energy_j, box.readings) == (1, None, 1)


@pytest.mark.parametrize("answer", [None, {"taken_s": "now"}, {}, {"taken_s": 1e9, "gpus": [1]}])
async def test_what_the_supervisor_does_not_tell_is_left_out(
    answer: Mapping[str, object] | None,
) -> None:
    """No answer, and one of another release, leave the evidence without GPUs."""
    box = Supervisor()
    box.answers = [answer] * 10
    recording = await box.reader().begin(ON_GPU)
    await recording.sample()
    await advance(1.0)
    evidence = await recording.end(engine_version=None, with_energy=True)
    assert (evidence.gpus, evidence.driver, evidence.energy_j) == ((), None, None)
    assert evidence.cpu_throttled_share == 0.5


async def test_a_supervisor_that_hangs_delays_a_probe_by_seconds() -> None:
    """Each reading is given up after 3 s."""
    box = Supervisor()
    box.hangs = True
    recording = await box.reader().begin(ON_GPU)
    await recording.end(engine_version=None, with_energy=True)
    assert box.clock.monotonic_s() - box.began_s == pytest.approx(6.0)


async def test_a_profile_without_gpus_has_no_reading_of_them() -> None:
    """The supervisor is not asked, and CPU time is told all the same."""
    box = Supervisor()
    recording = await box.reader().begin(applied("alpha"))
    await recording.sample()
    await advance(1.0)
    assert await recording.end(engine_version=None, with_energy=True) == Evidence(
        other_cpu_share=0.0, cpu_throttled_share=0.5, fingerprint="fingerprint of alpha"
    )
    assert box.readings == 0
