"""Health of the GPUs: the unmodified binding on a pretend driver in which each fault is planted."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.gpus import GpuHealth
from appliance.model.memory import DeviceMemory, GpuMemory, GpuState
from appliance.system.gpus.reader import GpuEvidenceReading, GpuReader, HealthRecord
from appliance.system.gpus.sampler_client import Device, Reading
from tests.pretend.building import NAME, build
from tests.pretend.gpus import GIB, Gpus

SUPPORTED = {
    "*.xids": "",
    "*.recovery_action": 0,
    "*.ecc_uncorrected": 0,
    "*.remap_pending": 0,
    "*.remap_failed": 0,
    "*.busy": 97,
    "*.memory_busy": 61,
}


class Box:
    """Two pretend GPUs and a reader of them."""

    def __init__(self, gpus: Gpus, library: Path) -> None:
        self.gpus = gpus
        self.driver = library
        self.reader = GpuReader(timeout_s=2.0, first_timeout_s=6.0)

    def read(self, **changes: object) -> GpuEvidenceReading:
        """Return a reading, after ``gpu0_xids`` and the like have changed."""
        self.gpus.change(
            {k.removeprefix("gpu").replace("_", ".", 1): v for k, v in changes.items()}
        )
        return self.reader.read_evidence()

    def health(self, **changes: object) -> GpuHealth:
        """Return the health of the first GPU."""
        return self.read(**changes).health[0]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; the health of GPUs stays unproved")
    library = tmp_path / "lib" / NAME
    library.parent.mkdir()
    shutil.copy(build(), library)
    gpus = Gpus(tmp_path / "state")
    gpus.replace({"count": 2, "*.total": 24 * GIB, "*.reserved": GIB // 2, **SUPPORTED})
    for name, value in gpus.environment(library).items():
        monkeypatch.setenv(name, value)
    box = Box(gpus, library)
    yield box
    box.reader.close()


def xids(health: GpuHealth) -> list[int] | None:
    """Return the errors of a GPU."""
    return None if health.errors is None else [event.xid for event in health.errors]


def test_a_healthy_gpu_says_so(box: Box) -> None:
    """Each figure of a GPU without a fault is known, and good."""
    first, second = box.read().health
    assert replace(first, index=1, uuid=second.uuid, name=second.name) == second
    assert (first.state, first.problem, first.errors) == (GpuState.OK, "", ())
    assert (first.recovery_action, first.uncorrected_errors) == ("none", 0)
    assert (first.remap_pending, first.remap_failed) == (False, False)
    assert (first.busy_share, first.memory_busy_share) == (0.97, 0.61)
    assert (first.foreign, first.unattributed_bytes) == ((), 0)


def test_a_gpu_that_tells_nothing_is_unknown(box: Box) -> None:
    """NOT_SUPPORTED is neither healthy nor failed, whatever is asked."""
    health = box.health(**{key.replace("*.", "gpu*_"): None for key in SUPPORTED}, gpu0_listing=3)
    assert health == GpuHealth(index=0, uuid=health.uuid, name=health.name)


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"gpu0_recovery_action": 1}, "recovery_action", "gpu-reset"),
        ({"gpu0_recovery_action": 2}, "recovery_action", "node-reboot"),
        ({"gpu0_recovery_action": 4}, "recovery_action", "drain-and-reset"),
        ({"gpu0_recovery_action": 99}, "recovery_action", "action-99"),
        ({"gpu0_ecc_uncorrected": 3}, "uncorrected_errors", 3),
        ({"gpu0_remap_pending": 1}, "remap_pending", True),
        ({"gpu0_remap_failed": 1}, "remap_failed", True),
        ({"gpu0_busy": 100, "gpu0_memory_busy": 0}, "memory_busy_share", 0.0),
        ({"gpu0_used": 2 * GIB}, "unattributed_bytes", 2 * GIB),
        ({"gpu0_memory": 3}, "unattributed_bytes", None),  # memory that the host shares
        ({"gpu0_fail.nvmlDeviceGetFieldValues": 13}, "recovery_action", None),
    ],
    ids=str,
)
def test_a_fault_is_told_by_its_figure(
    box: Box, change: dict[str, object], field: str, expected: object
) -> None:
    """Each planted fault changes its figure, and is over when the driver says so."""
    before = getattr(box.health(), field)
    assert getattr(box.health(**change), field) == expected
    assert before != expected
    whole = {f"gpu{key.replace('.', '_', 1)}": value for key, value in SUPPORTED.items()}
    gone = dict.fromkeys(change)
    assert getattr(box.health(**{**gone, **whole}), field) == before


def test_throttle_and_width_come_with_the_evidence(box: Box) -> None:
    """Reasons of the clocks and the width of the link are those of the same reading."""
    (evidence, _) = box.read(gpu0_throttle=0x40, gpu0_pcie_width=8).evidence
    assert (evidence.throttle_reasons, evidence.pcie_width) == (("hw_thermal_slowdown",), 8)


def test_errors_are_told_once_and_kept(box: Box) -> None:
    """Errors before the first reading are not told; later ones are, in order, with their GPU."""
    box.gpus.change({"0.xids": "31"})
    assert xids(box.health()) == []
    began = time.time()
    first, second = box.read(gpu0_xids="31,13,48", gpu1_xids="79").health
    assert (xids(first), xids(second)) == ([13, 48], [79])
    assert first.errors is not None
    assert all(began <= event.unix_s <= time.time() for event in first.errors)
    assert xids(box.health()) == [13, 48]
    box.reader.read()  # a reading of memory alone takes errors too
    assert xids(box.health(gpu0_xids="31,13,48,94")) == [13, 48, 94]


def test_errors_outlive_the_child(box: Box) -> None:
    """A child that is replaced for its age tells its errors first, and the next one watches at once."""
    short = box.reader = GpuReader(timeout_s=2.0, first_timeout_s=6.0, life_s=0.5)
    assert xids(box.health()) == []
    box.gpus.change({"0.xids": "48"})
    time.sleep(0.6)  # real time: the age of a child process
    assert short.read().state is GpuState.OK  # the next child is asked for memory alone
    assert xids(box.health(gpu0_xids="48,62")) == [48, 62]


def test_errors_come_with_the_answer_that_nothing_works(box: Box) -> None:
    """A driver that fails as a whole has told its errors before, and the child ends with its answer."""
    assert xids(box.health()) == []
    box.gpus.change({"0.xids": "79", "fail.nvmlDeviceGetCount_v2": 999})
    assert box.read().memory.state is GpuState.DEVICE
    box.gpus.change({"fail.nvmlDeviceGetCount_v2": None})
    assert xids(box.health()) == [79]


def test_a_lost_gpu_keeps_its_name_and_its_errors(box: Box) -> None:
    """A GPU that fell off the bus is told by its identity, with the error that came with it."""
    uuid = box.health().uuid
    lost, other = box.read(gpu0_xids="79", gpu0_lost=1).health
    assert (lost.uuid, lost.name) == (uuid, "Pretend GPU 0")
    assert (lost.state, xids(lost)) == (GpuState.LOST, [79])
    assert "fell off the bus" in lost.problem
    assert (lost.recovery_action, lost.foreign, lost.unattributed_bytes) == (None, None, None)
    assert (other.state, other.recovery_action) == (GpuState.OK, "none")
    back = box.health(gpu0_lost=None)
    assert (back.state, xids(back)) == (GpuState.OK, [79])


def test_a_gpu_that_is_listed_no_more_is_lost(box: Box) -> None:
    """A GPU that was read and that the driver leaves out is told, not forgotten."""
    uuid = box.read().health[1].uuid
    reading = _with_count(box, 1)
    assert [(h.uuid, h.state) for h in reading.health[1:]] == [(uuid, GpuState.LOST)]
    assert reading.health[1].problem == "the driver lists it no more"
    assert [h.state for h in _with_count(box, 2).health] == [GpuState.OK, GpuState.OK]


def _with_count(box: Box, count: int) -> GpuEvidenceReading:
    box.gpus.change({"count": count})
    return box.reader.read_evidence()


def test_a_process_that_draws_is_not_foreign(box: Box) -> None:
    """A process that computes is told with its size; a desktop is part of a machine."""
    health = box.health(gpu0_compute=f"1:{GIB}", gpu0_graphics=f"2:{GIB}")
    assert health.foreign is not None
    assert [(p.pid, p.user, p.held_bytes) for p in health.foreign] == [(1, "root", GIB)]
    unknown = box.health(gpu0_compute="1:?").foreign
    assert unknown is not None
    assert unknown[0].held_bytes is None


def test_a_driver_that_was_upgraded_is_told(box: Box) -> None:
    """A library that differs from the driver is met by a new child, however well the old one answers."""
    assert box.read().memory.state is GpuState.OK
    box.gpus.change({"init": 18})
    assert box.read().memory.state is GpuState.OK
    box.driver.unlink()  # an upgrade: the old mapping goes on answering
    shutil.copy(build(), box.driver)
    reading = box.reader.read_evidence()
    assert (reading.memory.state, reading.health) == (GpuState.MISMATCH, ())


def test_records_are_bounded() -> None:
    """A driver that tells errors without end, or ever new GPUs, fills no memory."""
    record = HealthRecord()
    for number in range(200):
        reading = Reading([_device(number)])
        reading.watched = [f"GPU-{number}", "GPU-0", "GPU-unknown"]
        reading.errors = [("GPU-0", 13)] * 100 + [("GPU-unknown", 13)] * 100
        record.take(reading, 1.0)
    device = DeviceMemory(
        index=0, uuid="GPU-0", name="x", total_bytes=0, free_bytes=0, used_bytes=0
    )
    health = record.health(GpuMemory(devices=(device,)), Reading([_device(0)]))
    assert len(health) == 64
    assert len(health[0].errors or ()) == 32


def _device(number: int) -> Device:
    """A GPU as the sampler tells it."""
    sizes = dict.fromkeys(("total", "free", "used", "reserved"), 0)
    words = {"name": "x", "quality": "exact", "kind": "", "problem": ""}
    return Device({"index": number, "uuid": f"GPU-{number}", "processes": None, **sizes, **words})
