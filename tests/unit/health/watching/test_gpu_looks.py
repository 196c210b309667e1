"""Looks at the GPUs."""

from dataclasses import replace

import pytest

from appliance.alerts.snapshot import GpuError, GpuHolder, GpuLook
from appliance.health.watching.gpu_looks import foreign_pids, gpu_looks, held_bytes, is_on_its_gpus
from appliance.model.gpus import ForeignProcess, GpuHealth, XidEvent
from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample, GpuTenant
from appliance.model.memory import GpuState
from tests.fakes.profiles import applied

GIB = 1 << 30
ENGINE = GpuTenant(profile="a", pid=41, name="vllm", held_bytes=8 * GIB)
OTHER = GpuTenant(profile=None, pid=7, name="miner", held_bytes=GIB)


def gpus(*tenants: tuple[GpuTenant, ...] | None, hidden: int | None = 0) -> BoxGpus:
    """GPUs that work, each with its processes."""
    return BoxGpus(
        taken_s=1.0,
        gpus=tuple(
            GpuSample(index=i, evidence=GpuEvidence(uuid=f"GPU-{i}"), tenants=listed)
            for i, listed in enumerate(tenants)
        ),
        state=GpuState.OK,
        health=tuple(
            GpuHealth(index=i, uuid=f"GPU-{i}", unattributed_bytes=hidden)
            for i in range(len(tenants))
        ),
    )


def test_a_gpu_is_told_with_its_evidence() -> None:
    """Errors, verdicts and processes come with the state of the same GPU."""
    health = GpuHealth(
        index=3,
        uuid="GPU-3",
        name="RTX",
        errors=(XidEvent(xid=48, unix_s=5.0),),
        recovery_action="gpu-reset",
        uncorrected_errors=2,
        remap_pending=True,
        remap_failed=False,
        busy_share=0.9,
        memory_busy_share=0.1,
        foreign=(ForeignProcess(pid=7, name="miner", user="bob", held_bytes=GIB),),
        unattributed_bytes=4,
    )
    evidence = GpuEvidence(
        uuid="GPU-3",
        power_w=250.0,
        temperature_c=70,
        throttle_reasons=("hw_slowdown",),
        pcie_width=8,
    )
    found = BoxGpus(taken_s=1.0, gpus=(GpuSample(index=3, evidence=evidence),), health=(health,))
    looks = gpu_looks(found)
    assert looks == (
        GpuLook(
            uuid="GPU-3",
            index=3,
            name="RTX",
            errors=(GpuError(xid=48, unix_s=5.0),),
            recovery_action="gpu-reset",
            uncorrected_errors=2,
            remap_pending=True,
            remap_failed=False,
            throttle_reasons=("hw_slowdown",),
            temperature_c=70,
            power_w=250.0,
            busy_share=0.9,
            memory_busy_share=0.1,
            pcie_width=8,
            holders=(GpuHolder(pid=7, name="miner", user="bob", held_bytes=GIB),),
            unattributed_bytes=4,
        ),
    )
    assert foreign_pids(looks) == (7,)


def test_a_lost_gpu_is_told_without_evidence() -> None:
    """Of a GPU that fell off the bus only that is known."""
    lost = GpuHealth(index=1, uuid="GPU-1", state=GpuState.LOST)
    assert gpu_looks(BoxGpus(taken_s=1.0, health=(lost,))) == (
        GpuLook(uuid="GPU-1", index=1, is_lost=True),
    )


def test_without_a_reading_there_are_no_gpus() -> None:
    """No answer, no driver, or an older supervisor: nothing is known."""
    assert gpu_looks(None) is None
    assert gpu_looks(BoxGpus(taken_s=1.0, state=GpuState.NO_DRIVER)) is None
    assert foreign_pids(None) == ()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, None),
        (BoxGpus(taken_s=1.0), None),
        (gpus((ENGINE, OTHER), (ENGINE,)), 16 * GIB),
        (gpus((OTHER,), ()), 0),
        (gpus((ENGINE,), None), None),
        (gpus((replace(ENGINE, held_bytes=None),), ()), None),
    ],
)
def test_memory_of_a_profile_is_known_where_all_is_listed(
    found: BoxGpus | None, expected: int | None
) -> None:
    """A size or a list that the driver does not tell makes the sum unknown."""
    assert held_bytes("a", found) == expected


@pytest.mark.parametrize(
    ("devices", "found", "expected"),
    [
        (("gpu-all",), gpus((ENGINE,), ()), True),
        (("gpu-0",), gpus((ENGINE,), ()), True),
        (("gpu-1",), gpus((ENGINE,), ()), False),
        (("gpu-0",), gpus((), (ENGINE,)), False),
        (("gpu-0",), gpus((ENGINE,), (ENGINE,)), False),
        (("gpu-all",), gpus((OTHER,), ()), False),
        (("gpu-all",), gpus((OTHER,), (), hidden=GIB), None),  # a driver that lists not all
        (("gpu-all",), gpus((OTHER,), (), hidden=None), False),
        (("gpu-all",), gpus((ENGINE,), None), None),
        (("gpu-2",), gpus((ENGINE,), ()), None),
        (("gpu-all",), replace(gpus((ENGINE,), ()), state=GpuState.LOST), None),
        (("gpu-all",), BoxGpus(taken_s=1.0, state=GpuState.OK), None),
        (("cpu",), gpus((), ()), None),
        (("gpu-all",), None, None),
    ],
)
def test_a_model_is_where_its_processes_hold_memory(
    *, devices: tuple[str, ...], found: BoxGpus | None, expected: bool | None
) -> None:
    """A model lies on its GPUs, beside them, or that is not known: it is never assumed."""
    assert is_on_its_gpus(applied("a", *devices), found) is expected
