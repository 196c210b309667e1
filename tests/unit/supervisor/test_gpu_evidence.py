"""Evidence of the GPUs for the health agent."""

import asyncio
import json
import threading
from dataclasses import replace

from appliance.model.gpus import ForeignProcess, GpuHealth, XidEvent
from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample, GpuTenant
from appliance.model.memory import GpuMemory, GpuState, Holder
from appliance.supervisor.gpu_evidence import GpuEvidenceSource
from appliance.system.gpus.reader import GpuEvidenceReading
from appliance.wire.typed_json import from_json
from tests.fakes.clock import FakeClock
from tests.fakes.gpu_readings import GIB, card
from tests.waiting import PATIENCE_S, settle

ENGINE = Holder(
    pid=41, held_bytes=8 * GIB, comm="vllm", user="u", unit="appliance-backend-a.service"
)
DESKTOP = Holder(
    pid=7, held_bytes=None, comm="Xorg", user="root", unit="gdm.service", compute=False
)
LOST = replace(card(1), state=GpuState.LOST)
READING = GpuEvidenceReading(
    memory=GpuMemory(
        devices=(card(0, [DESKTOP, ENGINE]), LOST, card(2)),
        state=GpuState.LOST,
        reason="GPU 1: lost",
    ),
    evidence=(GpuEvidence(uuid="GPU-0", power_w=250.0), GpuEvidence(uuid="GPU-2")),
    driver="580.95.05",
    health=(
        GpuHealth(
            index=0,
            uuid="GPU-0",
            errors=(XidEvent(xid=48, unix_s=5.0),),
            foreign=(ForeignProcess(pid=9, name="miner", user="bob", held_bytes=None),),
        ),
        GpuHealth(index=1, uuid="GPU-1", state=GpuState.LOST),
    ),
)


class Time:
    """Time of a fake clock."""

    now_s = 100.0


class SlowDriver:
    """Driver whose readings are counted, and may wait for the test."""

    def __init__(self) -> None:
        self.readings = 0
        self.free = threading.Event()
        self.free.set()

    def read(self) -> GpuEvidenceReading:
        """Return the same GPUs each time."""
        self.readings += 1
        assert self.free.wait(60)
        return READING


async def told(source: GpuEvidenceSource) -> BoxGpus:
    return from_json(BoxGpus, json.loads(json.dumps(await source.document())))


async def test_processes_are_told_with_their_profiles() -> None:
    """Each GPU that works has its evidence and its processes, the largest first."""
    source = GpuEvidenceSource(FakeClock(Time()), SlowDriver().read)
    assert await told(source) == BoxGpus(
        taken_s=100.0,
        gpus=(
            GpuSample(
                index=0,
                evidence=GpuEvidence(uuid="GPU-0", power_w=250.0),
                tenants=(
                    GpuTenant(profile="a", pid=41, name="vllm", held_bytes=8 * GIB),
                    GpuTenant(profile=None, pid=7, name="Xorg", held_bytes=None),
                ),
            ),
            GpuSample(index=2, evidence=GpuEvidence(uuid="GPU-2"), tenants=None),
        ),
        driver="580.95.05",
        problem="GPU 1: lost",
        state=GpuState.LOST,
        health=READING.health,
    )


async def test_the_driver_is_asked_once_a_second() -> None:
    """Callers within a second, and those of the same moment, share a reading."""
    time, driver = Time(), SlowDriver()
    source = GpuEvidenceSource(FakeClock(time), driver.read)
    driver.free.clear()
    callers = [asyncio.create_task(source.document()) for _ in range(3)]
    await settle()
    driver.free.set()
    await asyncio.gather(*callers)
    time.now_s += 0.9
    assert (await told(source)).taken_s == 100.0
    assert driver.readings == 1
    time.now_s += 0.1
    assert (await told(source)).taken_s == 101.0
    assert driver.readings == 2


async def test_a_driver_that_hangs_is_told() -> None:
    """A caller waits for a while only, and one that comes later does not ask the driver again."""
    driver = SlowDriver()
    hasty = GpuEvidenceSource(FakeClock(Time()), driver.read, patience_s=0.01)
    driver.free.clear()
    try:
        for _ in range(2):
            found = await told(hasty)
            assert (found.gpus, found.problem) == ((), "the GPUs' driver does not answer")
            assert found.state is GpuState.HUNG
    finally:
        driver.free.set()
    async with asyncio.timeout(PATIENCE_S):
        while not (await told(hasty)).gpus:
            pass  # each turn waits for the reading a little
    assert driver.readings == 1
