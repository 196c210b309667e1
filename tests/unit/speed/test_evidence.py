"""Evidence of a probe about GPUs, and the circumstances of many readings."""

import json
from dataclasses import asdict, replace

import pytest

from appliance.model.measurements import (
    BoxGpus,
    Evidence,
    ForeignHolder,
    GpuEvidence,
    GpuSample,
    GpuTenant,
)
from appliance.speed.evidence import (
    USUAL_READINGS,
    Circumstances,
    circumstances_of,
    gpu_evidence,
    joined,
)
from appliance.wire.typed_json import from_json
from tests.fakes.gpu_readings import GIB
from tests.fakes.probe_rows import EVIDENCE, probe
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
    use = gpu_evidence(
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
    use = gpu_evidence(
        ALL, before=box(10.0, 0.0), during=None, after=box(15.0, 1000.0), probe_s=4.0
    )
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
    assert gpu_evidence(ALL, before=before, during=None, after=after, probe_s=4.0).energy_j is None


def test_a_power_that_is_not_known_counts_as_none() -> None:
    """Energy is told without the correction for idle time then."""
    before, after = box(10.0, 0.0, power_w=None), box(15.0, 1000.0)
    use = gpu_evidence(ALL, before=before, during=None, after=after, probe_s=4.0)
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
    use = gpu_evidence(
        ALL, before=None, during=box(1.0, 1.0, tenants=tenants), after=None, probe_s=1.0
    )
    assert use.backend_vram_bytes == 22 * GIB
    assert use.foreign_holders[0] == ForeignHolder(pid=4, name="program 4", held_bytes=4 * GIB)
    assert len(use.foreign_holders) == 8
    assert 3 not in {holder.pid for holder in use.foreign_holders}


@pytest.mark.parametrize("tenants", [None, (), (tenant(1, None, "alpha"),)])
def test_memory_that_is_not_known_is_not_told(tenants: tuple[GpuTenant, ...] | None) -> None:
    """Without a list, or with a size that the driver keeps to itself, there is no figure."""
    after = box(1.0, 1.0, tenants=tenants)
    assert gpu_evidence(ALL, before=None, during=None, after=after, probe_s=1.0) == Evidence(
        gpus=tuple(gpu.evidence for gpu in after.gpus), driver="driver at 1.0"
    )


def test_readings_without_gpus_tell_nothing() -> None:
    """Where the driver hangs there is no evidence, and the one reading that has some is used."""
    nothing = BoxGpus(taken_s=1.0, problem="the driver hangs")
    assert gpu_evidence(ALL, before=nothing, during=None, after=None, probe_s=1.0) == Evidence()
    use = gpu_evidence(ALL, before=box(1.0, 1.0), during=nothing, after=nothing, probe_s=1.0)
    assert len(use.gpus) == 2
    assert replace(use, gpus=()).energy_j is None


RAW = probe(0.0).raw
ONE_GPU = replace(EVIDENCE, gpus=EVIDENCE.gpus[:1])


def after(*evidence: Evidence, most: int = USUAL_READINGS) -> Circumstances:
    found = None
    for one in evidence:
        found = joined(found, circumstances_of(one, RAW), most)
    assert found is not None
    return found


def with_gpu(**values: object) -> Evidence:
    return replace(ONE_GPU, gpus=(replace(ONE_GPU.gpus[0], **values),))  # type: ignore[arg-type]


def test_numbers_are_averages_and_facts_are_the_newest() -> None:
    """Of two readings the clock is the middle, and the driver that of the second."""
    found = after(
        with_gpu(sm_clock_mhz=1700), replace(with_gpu(sm_clock_mhz=1500), driver="560.35.03")
    )
    assert found.readings == 2
    assert found.gpus[0].sm_clock_mhz == 1600
    assert found.driver == "560.35.03"
    assert found.fingerprint == EVIDENCE.fingerprint


def test_later_readings_replace_earlier_ones() -> None:
    """After many readings with another clock, nothing is left of the clock before."""
    found = after(with_gpu(sm_clock_mhz=1700), *[with_gpu(sm_clock_mhz=1500)] * 100)
    assert found.readings == USUAL_READINGS
    assert found.gpus[0].sm_clock_mhz == pytest.approx(1500, abs=1)


def test_value_that_is_not_told_leaves_the_one_before() -> None:
    """A driver that does not answer once takes nothing away, and what comes later is taken."""
    found = after(ONE_GPU, Evidence(), with_gpu(temperature_c=70))
    assert 64 < (found.gpus[0].temperature_c or 0) < 70
    assert found.driver == EVIDENCE.driver
    late = after(with_gpu(power_w=None), with_gpu(power_w=250.0))
    assert late.gpus[0].power_w == 250.0


@pytest.mark.parametrize(
    ("reason", "field"),
    [
        ("sw_thermal_slowdown", "thermal"),
        ("hw_thermal_slowdown", "thermal"),
        ("hw_power_brake_slowdown", "power_brake"),
        ("sw_power_cap", "power_cap"),
        ("applications_clocks_setting", "setting"),
    ],
)
def test_reasons_to_throttle_are_counted_by_kind(reason: str, field: str) -> None:
    """A reason that is seen in one of two readings has a share of a half."""
    found = after(with_gpu(throttle_reasons=(reason,)), with_gpu(throttle_reasons=()))
    shares = {
        name: getattr(found.gpus[0], name)
        for name in ("thermal", "power_brake", "power_cap", "setting")
    }
    assert shares.pop(field) == 0.5
    assert set(shares.values()) == {0.0}
    assert after(with_gpu(throttle_reasons=None)).gpus[0].thermal is None


def test_largest_foreign_process_is_named() -> None:
    """Foreign memory is that of all processes together, and its holder the largest one."""
    holders = (
        ForeignHolder(pid=801, name="Xorg", held_bytes=400 << 20),
        ForeignHolder(pid=4121, name="python3", held_bytes=9 << 30),
    )
    found = circumstances_of(replace(EVIDENCE, foreign_holders=holders), RAW)
    assert found.foreign_holder == "python3 (pid 4121)"
    assert found.foreign_bytes == (9 << 30) + (400 << 20)
    assert circumstances_of(Evidence(), RAW).foreign_bytes is None


def test_drafts_are_counted_a_token() -> None:
    """Drafts are compared by their number a token, and by the share that stood."""
    assert RAW is not None
    drafting = replace(RAW, decoded_tokens=200, drafted_tokens=300, accepted_tokens=150)
    found = circumstances_of(EVIDENCE, drafting)
    assert (found.drafts_a_token, found.accepted_share) == (1.5, 0.5)
    silent = circumstances_of(EVIDENCE, replace(drafting, drafted_tokens=0, accepted_tokens=0))
    assert (silent.drafts_a_token, silent.accepted_share) == (0.0, None)
    assert circumstances_of(EVIDENCE, None).drafts_a_token is None


def test_circumstances_are_bounded_and_travel_as_json() -> None:
    """Texts and GPUs are cut, and JSON gives the same back."""
    many = tuple(GpuEvidence(uuid=f"GPU-{n}", sm_clock_mhz=1695) for n in range(40))
    found = after(replace(EVIDENCE, gpus=many, driver="9" * 1000), EVIDENCE)
    assert len(after(replace(EVIDENCE, gpus=many)).gpus) == 16
    assert len(found.driver or "") <= 80
    assert from_json(Circumstances, json.loads(json.dumps(asdict(found)))) == found
