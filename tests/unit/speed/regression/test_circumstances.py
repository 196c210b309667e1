"""Circumstances of readings: averages, facts, bounds."""

import json
from dataclasses import asdict, replace

import pytest

from appliance.model.measurements import Evidence, ForeignHolder, GpuEvidence
from appliance.speed.regression.circumstances import (
    USUAL_READINGS,
    Circumstances,
    circumstances_of,
    joined,
)
from appliance.wire.typed_json import from_json
from tests.fakes.probe_rows import EVIDENCE, probe

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
