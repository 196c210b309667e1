"""Probes as a box with two GPUs makes them, for the tests and figures of the store."""

from appliance.model.measurements import (
    Evidence,
    GpuEvidence,
    Probe,
    ProbeKind,
    RawTimings,
    TimingSource,
)
from appliance.model.words import ProbeOutcome

EVIDENCE = Evidence(
    gpus=tuple(
        GpuEvidence(
            uuid=f"GPU-8d0c6f1e-6a5b-4c43-9e51-0d1b7f6a2c3{index}",
            sm_clock_mhz=1695,
            memory_clock_mhz=9501,
            power_w=287.4,
            temperature_c=64,
            throttle_reasons=(),
            pcie_width=16,
            pcie_generation=4,
            energy_j=81_233_411.2,
            memory_used_bytes=23_488_102_400,
        )
        for index in range(2)
    ),
    backend_vram_bytes=46_976_204_800,
    other_cpu_share=0.03,
    driver="550.127.05",
    engine_version="b4321",
    fingerprint="4f1c2a9d0b7e",
)


def probe(
    began_unix_s: float,
    *,
    profile: str = "genesis",
    decode_s: float = 4.0,
    kind: ProbeKind = ProbeKind.SCHEDULED,
    outcome: ProbeOutcome = ProbeOutcome.VALID,
) -> Probe:
    """Return a probe of 200 tokens."""
    return Probe(
        profile=profile,
        began_unix_s=began_unix_s,
        began_s=began_unix_s / 2,
        boot_id="5b1c0a6e-7a52-4a0e-9be0-6f1f3f0e9d11",
        kind=kind,
        prompt="refactor",
        outcome=outcome,
        raw=RawTimings(
            source=TimingSource.ENGINE,
            prompt_tokens=2000,
            cached_tokens=0,
            prefill_s=1.0,
            output_tokens=200,
            decoded_tokens=200,
            decode_s=decode_s,
            ttft_s=1.1,
            wall_s=decode_s + 1.2,
        ),
        evidence=EVIDENCE,
    )
