"""The ledger's loop on a box in virtual time: when it asks, what it keeps, how it fails."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

import pytest

from appliance.model.errors import UnitError
from appliance.model.memory import DeviceMemory, GpuMemory, GpuState, GroupMemory, Holder
from appliance.model.names import unit_of
from appliance.model.profile import Catalogue
from appliance.settings.tables import MemorySettings, Settings
from appliance.switch.memory.peak import ObservedPeak
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import settle, until

GIB = 1 << 30
BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))
CPU_BOX = catalogue(applied("mini", "cpu"))
EVERY_S = 5.0


def card(*holders: tuple[str, int | None]) -> GpuMemory:
    listed = [
        Holder(pid=i, held_bytes=held, comm="x", user="x", unit=unit)
        for i, (unit, held) in enumerate(holders)
    ]
    return GpuMemory(
        devices=(
            DeviceMemory(
                index=0,
                uuid="GPU-0",
                name="card",
                total_bytes=24 * GIB,
                free_bytes=4 * GIB,
                used_bytes=20 * GIB,
                holders=listed,
            ),
        )
    )


def group(resident: int) -> GroupMemory:
    return GroupMemory(resident_bytes=resident, locked_bytes=0, pinned_bytes=resident, pids=(1,))


class Box:
    """A box, its sampler, and time that passes between turns."""

    def __init__(self, profiles: Catalogue = BOX) -> None:
        self.profiles = profiles
        self.fakes = FakePorts(profiles)
        self.host = self.fakes.host
        self.peaks = self.fakes.peaks
        self.sampler = self.fakes.memory_sampler(
            lambda: (self.profiles, self.fakes.systemd.observed(self.profiles)),
            settings=Settings(memory=MemorySettings(sample_every_s=EVERY_S)),
        )

    async def turns(self, count: int = 1) -> None:
        for _ in range(count):
            systemd = self.fakes.systemd
            systemd.advance(systemd.now_s + EVERY_S)
            await self.sampler.turn()


async def test_nothing_is_asked_while_nothing_runs() -> None:
    """An idle box is left alone; what goes is looked at once more when it has gone."""
    box = Box()
    await box.turns(20)
    assert (box.host.gpu_readings, box.sampler._ledger) == (0, None)
    box.fakes.serve("genesis")
    await box.turns(3)
    assert box.host.gpu_readings == 3
    box.fakes.systemd.stop("genesis")
    box.fakes.systemd.advance(box.fakes.systemd.now_s + 60)
    await box.turns(20)
    assert box.host.gpu_readings == 4


async def test_a_box_whose_profiles_use_no_gpu_never_asks_a_driver() -> None:
    """On a CPU box only the backend's own processes are read."""
    box = Box(CPU_BOX)
    box.host.groups["mini"] = group(20 * GIB)
    box.fakes.serve("mini")
    await box.turns(5)
    assert box.host.gpu_readings == 0
    assert box.peaks.kept["mini"].ram_bytes == 20 * GIB
    assert box.peaks.writes == ["mini"]


async def test_peaks_of_profiles_that_are_removed_go() -> None:
    """The first turn and the one after an apply remove them, also while nothing runs."""
    box = Box()
    for name in ("aeon", "genesis", "removed"):
        await box.peaks.record(name, ObservedPeak(fingerprint="f"))
    await box.turns()
    assert sorted(box.peaks.kept) == ["aeon", "genesis"]
    box.profiles = catalogue(applied("genesis", "gpu-all"))
    await box.turns()
    assert sorted(box.peaks.kept) == ["genesis"]


async def test_a_missing_driver_is_asked_for_rarely() -> None:
    """Each question for it starts a program: once in ten minutes is enough."""
    box = Box()
    box.host.gpu_memory = GpuMemory(state=GpuState.NO_LIBRARY, reason="no library")
    box.fakes.serve("genesis")
    await box.turns(100)
    assert box.host.gpu_readings == 1
    await box.turns(21)
    assert box.host.gpu_readings == 2


async def test_a_peak_is_kept_once_it_has_served_for_a_while() -> None:
    """Memory of the load counts; the record waits until the first requests are over."""
    box = Box()
    box.fakes.processes.behaviour["genesis"].load_s = 12.0
    box.host.gpu_memory = card((unit_of("genesis"), 20 * GIB))
    box.host.groups["genesis"] = group(2 * GIB)
    box.fakes.systemd.start("genesis")
    await box.turns(3)
    box.host.gpu_memory = card((unit_of("genesis"), 18 * GIB))
    assert box.peaks.writes == []
    await box.turns(2)
    kept = box.peaks.kept["genesis"]
    assert (kept.gpus, kept.ram_bytes) == ({"GPU-0": 20 * GIB}, 2 * GIB)
    await box.turns(10)
    assert box.peaks.writes == ["genesis"]


async def test_a_load_that_failed_leaves_no_peak() -> None:
    """A profile that never served was perhaps not loaded whole, and leaves no peak."""
    box = Box()
    box.fakes.processes.behaviour["genesis"].start_result = "exit-code"
    box.host.gpu_memory = card((unit_of("genesis"), 3 * GIB))
    box.fakes.systemd.start("genesis")
    await box.turns(20)
    assert box.peaks.writes == []


async def test_growth_is_written_again() -> None:
    """A larger peak replaces the one on disk, also that of an earlier supervisor."""
    box = Box()
    box.host.gpu_memory = card((unit_of("genesis"), 10 * GIB))
    box.fakes.serve("genesis")
    await box.turns(5)
    box.host.gpu_memory = card((unit_of("genesis"), 11 * GIB))
    again = Box()
    again.fakes.peaks.kept = dict(box.peaks.kept)
    again.host.gpu_memory = box.host.gpu_memory
    again.fakes.serve("genesis")
    for one in (box, again):
        await one.turns(5)
        assert one.peaks.kept["genesis"].gpus == {"GPU-0": 11 * GIB}


async def test_what_was_edited_under_a_running_backend_is_not_attributed() -> None:
    """An apply changes the profile, not the process: its peak is that of nothing applied."""
    box = Box()
    box.fakes.serve("genesis")
    box.host.gpu_memory = card((unit_of("genesis"), 10 * GIB))
    box.profiles = {**BOX, "genesis": replace(BOX["genesis"], fingerprint="new")}
    box.host.installed["genesis"] = box.fakes.systemd.now_s
    await box.turns(5)
    assert box.peaks.writes == []
    box.fakes.systemd.stop("genesis")
    box.fakes.systemd.advance(box.fakes.systemd.now_s + 60)
    await box.turns()
    box.fakes.serve("genesis")
    await box.turns(5)
    assert box.peaks.kept["genesis"].fingerprint == "new"


async def test_a_full_disk_is_tried_again_later() -> None:
    """A peak that cannot be kept is tried again after a minute, not with each sample."""
    box = Box(CPU_BOX)
    box.host.groups["mini"] = group(GIB)
    box.peaks.full = True
    box.fakes.serve("mini")
    await box.turns(12)
    assert len(box.peaks.writes) == 1
    box.peaks.full = False
    await box.turns(5)
    assert box.peaks.kept["mini"].ram_bytes == GIB


async def test_a_hung_driver_is_told_when_it_begins_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two lines for a hang of any length; meanwhile the last sample says that it hangs."""
    caplog.set_level(logging.INFO)
    box = Box()
    box.fakes.serve("genesis")
    box.host.gpu_memory = GpuMemory(state=GpuState.HUNG, reason="the GPU driver hangs")
    await box.turns(10)
    seen = await box.sampler.latest()
    assert seen is not None
    assert seen.gpus.state is GpuState.HUNG
    box.host.gpu_memory = card()
    await box.turns(10)
    assert [r.getMessage() for r in caplog.records if "memory_sampler" in r.name] == [
        "GPUs: the GPU driver hangs",
        "all GPUs can be read again",
    ]


async def test_a_silent_systemd_costs_a_sample_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error is told once, the last sample stays, and the next one is taken."""
    box = Box(CPU_BOX)
    box.host.groups["mini"] = group(GIB)
    box.fakes.serve("mini")
    box.fakes.units.deaf = True
    await box.turns(3)
    assert [r.getMessage() for r in caplog.records] == [
        f"memory cannot be sampled: {UnitError('systemd does not answer')}"
    ]
    box.fakes.units.deaf = False
    await box.turns()
    seen = await box.sampler.latest()
    assert seen is not None
    assert seen.groups["mini"].resident_bytes == GIB


async def test_processes_that_moved_are_found_again() -> None:
    """A control group that is empty is asked for anew."""
    box = Box(CPU_BOX)
    box.fakes.serve("mini")
    await box.turns()
    assert box.sampler._ledger is not None
    assert box.sampler._ledger.groups == {}
    box.host.groups["mini"] = group(GIB)
    await box.turns(2)
    assert list(box.sampler._ledger.groups) == ["mini"]


async def test_who_wants_to_see_is_shown() -> None:
    """On an idle box a status gets a sample of its own, and the next one within it the same."""
    box = Box()
    box.host.gpu_memory = card(("x.service", GIB))
    running = asyncio.create_task(box.sampler.run())
    await settle()
    assert box.host.gpu_readings == 0
    first = await box.sampler.latest()
    assert first is not None
    assert [h.unit for h in first.holders["GPU-0"]] == ["x.service"]
    assert await box.sampler.latest() is first
    assert box.host.gpu_readings == 1
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.virtual_time
async def test_who_wants_to_see_does_not_wait_for_a_hung_driver() -> None:
    """Without an answer in a quarter of a second the last sample is shown, or none."""
    box = Box()
    box.host.driver_answers.clear()
    running = asyncio.create_task(box.sampler.run())
    assert await box.sampler.latest() is None
    box.host.driver_answers.set()
    await until(lambda: box.sampler._ledger is not None)
    assert await box.sampler.latest() is not None
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
