"""The daemon's reader of the GPUs: the unmodified binding on a pretend driver library."""

import ctypes.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.model.gpus import GpuHardware
from appliance.model.measurements import GpuEvidence
from appliance.model.memory import GpuMemory, GpuState, Quality
from appliance.system.gpus.reader import GpuReader
from appliance.system.gpus.sampler_client import Sampler
from appliance.system.kernel import text_files
from tests.pretend.building import NAME, build
from tests.pretend.gpus import GIB, Gpus
from tests.programs import eventually

TOTAL = 24 * GIB
RESERVED = GIB // 2

no_real_driver = pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None,
    reason="a real driver library is installed: what happens without one stays unproved",
)


@dataclass(slots=True, kw_only=True)
class Box:
    """Two empty pretend GPUs and a reader of them, with a library that can be upgraded."""

    gpus: Gpus
    shared_object: Path
    reader: GpuReader

    def read(self, **changes: object) -> GpuMemory:
        """A reading with holders, after ``gpu0_free`` and the like have changed."""
        self.gpus.change({k.removeprefix("gpu").replace("_", "."): v for k, v in changes.items()})
        return self.reader.read(with_holders=True)


def totals(memory: GpuMemory) -> Mapping[int, int]:
    """Sizes of the GPUs that work, by index."""
    return {d.index: d.total_bytes for d in memory.devices if d.state is GpuState.OK}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    yield from _box(tmp_path, monkeypatch)


def _box(folder: Path, monkeypatch: pytest.MonkeyPatch, *defines: str) -> Iterator[Box]:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; the NVML readings stay unproved")
    library = folder / "lib" / NAME
    library.parent.mkdir()
    shutil.copy(build(*defines), library)
    gpus = Gpus(folder / "state")
    gpus.replace({"count": 2, "*.total": TOTAL, "*.reserved": RESERVED})
    for name, value in gpus.environment(library).items():
        monkeypatch.setenv(name, value)
    reader = GpuReader(timeout_s=1.0, first_timeout_s=4.0)
    yield Box(gpus=gpus, shared_object=library, reader=reader)
    reader.close()


def child_of(reader: GpuReader) -> int:
    assert reader._child is not None
    return reader._child.sampler._pid


def test_every_gpu_is_read(box: Box) -> None:
    """A reading has identity and sizes of each device, and holders where they are asked for."""
    box.gpus.change({"0.compute": f"1:{2 * GIB},4194304:{GIB}", "0.used": 4 * GIB})
    memory = box.reader.read()
    assert (memory.state, memory.reason) == (GpuState.OK, None)
    assert totals(memory) == {0: TOTAL, 1: TOTAL}
    assert [d.holders for d in memory.devices] == [None, None]
    first, second = box.read().devices
    assert first.quality is Quality.EXACT
    assert first.total_bytes == first.free_bytes + first.used_bytes + first.reserved_bytes
    assert (first.used_bytes, first.reserved_bytes) == (4 * GIB, RESERVED)
    assert first.holders is not None
    assert [(h.pid, h.held_bytes) for h in first.holders] == [(1, 2 * GIB), (4194304, GIB)]
    assert first.holders[0].user == "root"
    assert first.unattributed_bytes == GIB
    assert (second.holders, second.unattributed_bytes) == ((), 0)
    assert first.uuid != second.uuid


def test_an_old_driver_counts_what_it_reserves_as_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the second version of the memory call a reading is exact all the same."""
    for box in _box(tmp_path, monkeypatch, "-DOLD_DRIVER"):
        device = box.read(gpu0_compute=f"1:{GIB}").devices[0]
        assert (device.reserved_bytes, device.used_bytes) == (0, RESERVED)
        assert device.quality is Quality.EXACT
        assert device.holders is not None
        assert [h.pid for h in device.holders] == [1]


LOADED = {
    "0.sm_clock": 1695,
    "0.memory_clock": 9501,
    "0.power_mw": 287_400,
    "0.temperature": 64,
    "0.throttle": 0b10_0000_0100 | 1 << 40,
    "0.pcie_width": 16,
    "0.pcie_generation": 4,
    "0.energy_mj": 81_233_411_200,
}


def test_evidence_comes_with_processes(box: Box) -> None:
    """A reading of clocks, power, heat and link has the holders too; what a GPU lacks is None."""
    box.gpus.change({**LOADED, "0.compute": f"1:{GIB}", "driver": "580.95.05"})
    found = box.reader.read_evidence()
    assert found.driver == "580.95.05"
    assert [len(d.holders or ()) for d in found.memory.devices] == [1, 0]
    first, second = found.evidence
    assert first == GpuEvidence(
        uuid=found.memory.devices[0].uuid,
        sm_clock_mhz=1695,
        memory_clock_mhz=9501,
        power_w=287.4,
        temperature_c=64,
        throttle_reasons=("sw_power_cap", "bit_9", "bit_40"),
        pcie_width=16,
        pcie_generation=4,
        energy_j=81_233_411.2,
        memory_used_bytes=0,
    )
    assert second == GpuEvidence(uuid=found.memory.devices[1].uuid, memory_used_bytes=0)


def test_a_gpu_that_is_lost_has_no_evidence(box: Box) -> None:
    """The evidence of the others stays beside their own device; one failing figure is left out."""
    box.gpus.change({"0.lost": 1, "1.power_mw": 90_000, "1.throttle": 0, "1.pcie_width": 8})
    box.gpus.change({"1.fail.nvmlDeviceGetCurrPcieLinkWidth": 999})
    found = box.reader.read_evidence()
    assert found.memory.state is GpuState.LOST
    (second,) = found.evidence
    assert second.uuid == found.memory.devices[1].uuid
    assert (second.power_w, second.throttle_reasons, second.pcie_width) == (90.0, (), None)


def test_evidence_of_a_driver_that_hangs_is_given_up(box: Box) -> None:
    """A caller waits no longer than for the memory, and nothing is told."""
    assert box.reader.read_evidence().memory.state is GpuState.OK
    box.gpus.hang()
    found = box.reader.read_evidence(timeout_s=0.2)
    assert (found.memory.state, found.evidence, found.driver) == (GpuState.HUNG, (), None)


def test_an_old_driver_tells_its_throttling_by_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers before 535 call the reasons of a low clock throttle reasons."""
    for box in _box(tmp_path, monkeypatch, "-DOLD_DRIVER"):
        box.gpus.change({"*.throttle": 0b1100_0000})
        reasons = box.reader.read_evidence().evidence[0].throttle_reasons
        assert reasons == ("hw_thermal_slowdown", "hw_power_brake_slowdown")


def test_hardware_is_read_beside_the_memory(box: Box) -> None:
    """Compute capability and links are those of the driver; what it does not tell is None."""
    box.gpus.change({"0.capability": "12.0", "0.nvlinks": 4, "0.name": "NVIDIA RTX", "1.lost": 1})
    found = box.reader.read_hardware()
    assert found.hardware == (
        GpuHardware(index=0, name="NVIDIA RTX", compute_capability=(12, 0), nvlinks=4),
    )
    assert found.hardware[0].capability_text == "12.0"
    assert totals(found.memory) == {0: TOTAL}
    box.gpus.change({"1.lost": None, "*.fail.nvmlDeviceGetNvLinkState": 999})
    first, second = box.reader.read_hardware().hardware
    assert (first.compute_capability, first.nvlinks) == ((12, 0), None)
    assert (second.compute_capability, second.capability_text) == (None, "")


def test_a_gpu_without_links_has_none(box: Box) -> None:
    """A driver that says "not supported" of the first link tells that the GPU has no NVLink."""
    box.gpus.change({"*.capability": "8.6", "1.nvlinks": 0})
    assert [d.nvlinks for d in box.reader.read_hardware().hardware] == [0, 0]


def test_hardware_of_a_driver_that_hangs_is_given_up(box: Box) -> None:
    """A caller waits no longer than it said, also for the first answer of a new child."""
    box.gpus.hang()
    began_s = time.monotonic()
    found = box.reader.read_hardware(timeout_s=0.3)
    assert time.monotonic() - began_s < 2
    assert (found.memory.state, found.hardware) == (GpuState.HUNG, ())


def test_lists_of_every_kind_are_one(box: Box) -> None:
    """A process that computes, draws or computes through MPS is listed once, with what is known."""
    device = box.read(
        gpu0_compute=f"1:{GIB}", gpu0_mps="2:?", gpu0_graphics=f"1:{GIB},3:{GIB}"
    ).devices[0]
    assert device.holders is not None
    assert sorted((h.pid, h.held_bytes) for h in device.holders) == [(1, GIB), (2, None), (3, GIB)]
    assert device.unattributed_bytes is None


@pytest.mark.parametrize("code", [3, 4])
def test_a_list_that_the_driver_keeps_to_itself_is_unknown(box: Box, code: int) -> None:
    """No list, or not for this user, is not an empty list."""
    device = box.read(gpu0_listing=code).devices[0]
    assert (device.holders, device.quality) == (None, Quality.EXACT)


@pytest.mark.parametrize("changes", [{"gpu0_memory": 3}, {"gpu0_total": 0, "gpu0_reserved": 0}])
def test_memory_shared_with_the_host_is_the_hosts(box: Box, changes: dict[str, object]) -> None:
    """A device without memory of its own has what the host has, and says that it is so."""
    first, second = box.read(**changes).devices
    assert first.quality is Quality.UNIFIED
    assert first.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert 0 < first.free_bytes < first.total_bytes
    assert second.quality is Quality.EXACT


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"gpu0_mig": 1}, GpuState.OK, "MIG"),
        ({"gpu0_memory": 4}, GpuState.OK, "permit"),
        ({"gpu0_lost": 1}, GpuState.LOST, "lost"),
        ({"gpu0_memory": 15}, GpuState.LOST, "lost"),
        ({"gpu0_handle": 999}, GpuState.DEVICE, "NVIDIA driver answers"),
    ],
)
def test_a_device_that_tells_nothing_hides_no_other(
    box: Box, changes: dict[str, object], state: GpuState, words: str
) -> None:
    """One device's trouble is told as its own, and the other one's figures with it."""
    memory = box.read(**changes)
    first, second = memory.devices
    assert (memory.state, first.state, second.state) == (state, state, GpuState.OK)
    assert first.quality is Quality.OPAQUE
    assert words in first.problem
    assert (memory.reason is None) == (state is GpuState.OK)
    assert second.free_bytes == TOTAL - RESERVED
    assert 1 in totals(memory)
    assert (0 in totals(memory)) == (state is GpuState.OK)


def test_a_mode_that_is_off_is_no_problem(box: Box) -> None:
    """A GPU that could be divided and is not is read as any other."""
    assert box.read(gpu0_mig=0).devices[0].quality is Quality.EXACT


def test_a_node_with_processors_is_not_the_gpus(box: Box) -> None:
    """The host's own NUMA node is never taken for a device's memory."""
    assert box.read(gpu0_numa=0).devices[0].quality is Quality.EXACT


def test_a_lost_gpu_that_is_back_is_read_again(box: Box) -> None:
    """After a reset the device is as it was, through a fresh process."""
    assert box.read(gpu1_lost=1).state is GpuState.LOST
    assert box.reader._child is None
    assert box.read(gpu1_lost=None).state is GpuState.OK


@pytest.mark.parametrize(
    ("code", "state", "words"),
    [
        (9, GpuState.NO_DRIVER, "not loaded"),
        (12, GpuState.NO_LIBRARY, "no NVIDIA driver library"),
        (18, GpuState.MISMATCH, "reboot"),
    ],
)
def test_a_missing_driver_is_remembered(box: Box, code: int, state: GpuState, words: str) -> None:
    """No driver is an answer, given again for a while without asking."""
    memory = box.read(init=code)
    assert (memory.devices, memory.state) == ((), state)
    assert words in str(memory.reason)
    assert box.reader.read() is memory


@no_real_driver
def test_a_machine_without_the_library_is_an_answer(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real binding without any library gives the reason."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    memory = box.read()
    assert memory.state is GpuState.NO_LIBRARY
    assert "libnvidia-ml.so.1" in str(memory.reason)


def test_an_upgrade_under_the_reader_is_noticed(box: Box) -> None:
    """A child that mapped the library before an upgrade is replaced by a new process."""
    assert box.read().state is GpuState.OK
    before = child_of(box.reader)
    box.gpus.change({"init": 18})
    assert box.read().state is GpuState.OK
    assert child_of(box.reader) == before
    upgraded = box.shared_object.with_suffix(".new")
    shutil.copy(box.shared_object, upgraded)
    upgraded.rename(box.shared_object)
    assert box.read().state is GpuState.MISMATCH


def test_a_hang_is_a_state_that_ends(box: Box) -> None:
    """A hung driver costs the first caller the time-out, later ones little, and none at the end."""
    assert box.read().state is GpuState.OK
    box.gpus.hang()
    memory = box.read()
    assert (memory.state, memory.devices) == (GpuState.HUNG, ())
    assert "hangs" in str(memory.reason)
    assert box.reader._child is None, "one that answered before is killed after the time-out"
    box.reader._timeout_s = box.reader._first_timeout_s = 10.0
    began = time.monotonic()
    assert box.read().state is GpuState.HUNG
    assert time.monotonic() - began < 5
    box.gpus.recover()
    assert eventually(lambda: box.read().state is GpuState.OK)


def test_a_driver_that_initialises_slowly_is_not_started_over(box: Box) -> None:
    """A child that has not answered yet is kept, since killing it would lose its work."""
    box.gpus.change({"hang_init_s": 60})
    assert box.read().state is GpuState.HUNG
    before = child_of(box.reader)
    assert box.read().state is GpuState.HUNG
    assert child_of(box.reader) == before
    box.gpus.recover()
    assert eventually(lambda: box.read().state is GpuState.OK)
    assert child_of(box.reader) == before


def test_the_answer_to_an_impatient_caller_is_not_the_next_ones(box: Box) -> None:
    """A request that nobody waited for is not taken for the answer to another one."""
    box.read()
    box.gpus.hang()
    for _ in range(3):
        assert box.reader.read(timeout_s=0.02).state is GpuState.HUNG
    box.gpus.change({"0.used": GIB, "hang_s": None, "hang_init_s": None})
    answered: list[GpuMemory] = []

    def is_answered() -> bool:  # on a busy machine not at once
        answered.append(box.reader.read(with_holders=True))
        return answered[-1].state is GpuState.OK

    assert eventually(is_answered)
    device = answered[-1].devices[0]
    assert (device.used_bytes, device.holders) == (GIB, ())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_is_killed_or_stopped_is_replaced(box: Box, number: signal.Signals) -> None:
    """A child that died costs no reading; one that is silent costs the readings it delays."""
    box.read()
    before = child_of(box.reader)
    os.kill(before, number)
    if number == signal.SIGSTOP:
        assert box.read().state is GpuState.HUNG
        assert eventually(lambda: box.read().state is GpuState.OK)
    assert box.reader.read(with_holders=True, timeout_s=20.0).state is GpuState.OK
    assert child_of(box.reader) != before
    assert not Path(f"/proc/{before}").exists()


def test_a_reader_that_dies_each_time_is_told_as_such(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three children that die say that the reader fails, not that the GPUs do."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    memory = box.reader.read(timeout_s=20.0)
    assert (memory.state, memory.reason) == (
        GpuState.READER,
        "the program that reads the GPUs has died",
    )
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert box.reader.read(timeout_s=20.0).state is GpuState.READER


# A tracer that does not wait for what it traces keeps it from its parent after its death, as
# a driver does that holds it in the kernel.
_TRACER = """
import ctypes, sys
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_SEIZE = 0x4206
done = ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None)
print("no" if done else "yes", flush=True)
sys.stdin.read()
"""


def test_no_second_child_while_the_first_cannot_die(box: Box) -> None:
    """A killed child that stays is no reason to wait, nor to offer the driver another one."""
    box.read()
    first = child_of(box.reader)
    argv = [sys.executable, "-I", "-c", _TRACER, str(first)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        if tracer.stdout.readline() != b"yes\n":
            pytest.skip("no ptrace here: a child that cannot be reaped stays unproved")
        box.gpus.hang()
        assert box.read().state is GpuState.HUNG
        box.gpus.recover()
        box.reader._timeout_s = 10.0
        began = time.monotonic()
        memory = box.read()
        assert time.monotonic() - began < 5
        assert memory.state is GpuState.HUNG
        assert "cannot be killed" in str(memory.reason)
        assert box.reader._child is None
        tracer.communicate()
    assert eventually(lambda: box.read().state is GpuState.OK)


def test_closing_does_not_wait_for_the_dead(box: Box) -> None:
    """A child is gone with its close, also one that hangs."""
    box.gpus.hang()
    child = Sampler()
    child.ask()
    assert child.answer(0.2) is None
    assert not child.gone()
    began = time.monotonic()
    assert child.close()
    assert child.close()
    assert time.monotonic() - began < 5


def test_a_child_is_not_seen_as_outdated_for_nothing(box: Box) -> None:
    """While nothing was upgraded the same child answers."""
    box.read()
    before = child_of(box.reader)
    assert text_files.read(f"/proc/{before}/comm")
    for _ in range(3):
        box.read()
    assert child_of(box.reader) == before
