"""Use of GPUs during a probe."""

from dataclasses import replace

import pytest

from appliance.model.measurements import (
    BoxGpus,
    ForeignHolder,
    GpuEvidence,
    GpuSample,
    GpuTenant,
)
from appliance.speed.probing.gpu_use import GpuUse, gpu_use
from tests.fakes.gpu_readings import GIB
from tests.fakes.profiles import applied

SECOND = applied("alpha", "gpu-1")
ALL = applied("alpha", "gpu-all")


def tenant(pid: int, held_bytes: int | None, profile: str | None = None) -> GpuTenant:
    return GpuTenant(profile=profile, pid=pid, name=f"program {pid}", held_bytes=held_bytes)


def box(
    taken_s: float,
    energy_j: float | None,
    power_w: float | None = 20.0,
    tenants: tuple[GpuTenant, ...] | None = (),
) -> BoxGpus:
    """Two GPUs, of which the second has half of the energy and power."""
    shares = ((0, 1.0), (1, 0.5))
    return BoxGpus(
        taken_s=taken_s,
        gpus=tuple(
            GpuSample(
                index=index,
                evidence=GpuEvidence(
                    uuid=f"GPU-{index}",
                    energy_j=None if energy_j is None else energy_j * share,
                    power_w=None if power_w is None else power_w * share,
                ),
                tenants=tenants,
            )
            for index, share in shares
        ),
        driver=f"driver at {taken_s}",
    )


def test_the_reading_under_load_shows_the_state() -> None:
    """Clocks are those of the middle of the probe, of the profile's own GPUs alone."""
    use = gpu_use(
        SECOND,
        before=box(10.0, 1000.0),
        during=box(12.0, 1500.0, power_w=300.0),
        after=box(14.0, 2000.0),
        probe_s=4.0,
    )
    assert [gpu.uuid for gpu in use.gpus] == ["GPU-1"]
    assert use.gpus[0].power_w == 150.0
    assert (use.idle_power_w, use.driver) == (10.0, "driver at 12.0")
    assert use.energy_j == 500.0


def test_idle_time_between_the_readings_is_not_the_probes() -> None:
    """The energy of the time before and after the probe is taken off at the idle power."""
    use = gpu_use(ALL, before=box(10.0, 0.0), during=None, after=box(15.0, 1000.0), probe_s=4.0)
    assert use.energy_j == pytest.approx(1500.0 - 30.0)
    assert use.idle_power_w == 30.0
    assert use.driver == "driver at 15.0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (box(10.0, None), box(14.0, 900.0)),
        (box(10.0, 900.0), box(14.0, None)),
        (box(10.0, 900.0), box(14.0, 0.0)),
        (box(10.0, 900.0), box(10.0, 900.0)),
        (box(10.0, 900.0), box(13.9, 1900.0)),
        (None, box(14.0, 900.0)),
        (box(10.0, 900.0), None),
    ],
)
def test_an_energy_that_is_not_known_is_not_told(
    before: BoxGpus | None, after: BoxGpus | None
) -> None:
    """A counter that is missing, began anew or stands still tells nothing."""
    assert gpu_use(ALL, before=before, during=None, after=after, probe_s=4.0).energy_j is None


def test_a_power_that_is_not_known_counts_as_none() -> None:
    """Energy is told without the correction for idle time then."""
    before, after = box(10.0, 0.0, power_w=None), box(15.0, 1000.0)
    use = gpu_use(ALL, before=before, during=None, after=after, probe_s=4.0)
    assert (use.energy_j, use.idle_power_w) == (1500.0, None)


def test_memory_is_told_by_holder() -> None:
    """Foreign processes count once over all GPUs, the largest first; the backend's add up."""
    tenants = (
        tenant(1, 8 * GIB, "alpha"),
        tenant(2, 3 * GIB, "alpha"),
        tenant(3, 1 * GIB, "other"),
        tenant(4, 2 * GIB),
        tenant(5, None),
        *(tenant(pid, 1) for pid in range(10, 20)),
    )
    use = gpu_use(ALL, before=None, during=box(1.0, 1.0, tenants=tenants), after=None, probe_s=1.0)
    assert use.backend_vram_bytes == 22 * GIB
    assert use.foreign_holders[0] == ForeignHolder(pid=4, name="program 4", held_bytes=4 * GIB)
    assert len(use.foreign_holders) == 8
    assert 3 not in {holder.pid for holder in use.foreign_holders}


@pytest.mark.parametrize("tenants", [None, (), (tenant(1, None, "alpha"),)])
def test_memory_that_is_not_known_is_not_told(tenants: tuple[GpuTenant, ...] | None) -> None:
    """Without a list, or with a size that the driver keeps to itself, there is no figure."""
    after = box(1.0, 1.0, tenants=tenants)
    assert gpu_use(ALL, before=None, during=None, after=after, probe_s=1.0) == GpuUse(
        gpus=tuple(gpu.evidence for gpu in after.gpus), driver="driver at 1.0"
    )


def test_readings_without_gpus_tell_nothing() -> None:
    """Where the driver hangs there is no evidence, and the one reading that has some is used."""
    nothing = BoxGpus(taken_s=1.0, problem="the driver hangs")
    assert gpu_use(ALL, before=nothing, during=None, after=None, probe_s=1.0) == GpuUse()
    use = gpu_use(ALL, before=box(1.0, 1.0), during=nothing, after=nothing, probe_s=1.0)
    assert len(use.gpus) == 2
    assert replace(use, gpus=()).energy_j is None
