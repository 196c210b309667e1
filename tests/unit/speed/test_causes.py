"""Likely causes: each rule on evidence before and during a loss, and the sentence of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appliance.model.measurements import (
    EventKind,
    Evidence,
    ForeignHolder,
    MeasurementEvent,
    RawTimings,
)
from appliance.model.words import Series
from appliance.speed.causes import (
    RULES,
    Comparison,
    LossCause,
    command_for,
    loss_rates,
    loss_sentence,
    suspicions,
)
from appliance.speed.evidence import Circumstances, circumstances_of, joined
from tests.fakes.probe_rows import EVIDENCE, probe

GIB = 1 << 30
RAW = probe(0.0).raw
assert RAW is not None
DRAFTING = replace(RAW, decoded_tokens=200, drafted_tokens=300, accepted_tokens=180)
PYTHON = ForeignHolder(pid=4121, name="python3", held_bytes=int(9.8 * GIB))
XORG = ForeignHolder(pid=801, name="Xorg", held_bytes=400 << 20)


def on_gpus(**values: Any) -> Evidence:
    """The usual evidence with these values on its second GPU."""
    return replace(EVIDENCE, gpus=(EVIDENCE.gpus[0], replace(EVIDENCE.gpus[1], **values)))


def with_values(**values: Any) -> Evidence:
    return replace(EVIDENCE, **values)


def circumstances(evidence: Evidence, raw: RawTimings = RAW) -> Circumstances:
    """The circumstances of four readings with slightly other clocks each."""
    found = None
    for offset in (-15, 0, 15, 0):
        gpus = tuple(
            replace(
                gpu, sm_clock_mhz=None if gpu.sm_clock_mhz is None else gpu.sm_clock_mhz + offset
            )
            for gpu in evidence.gpus
        )
        found = joined(found, circumstances_of(replace(evidence, gpus=gpus), raw), 12)
    assert found is not None
    return found


def compared(
    now: Evidence,
    before: Evidence = EVIDENCE,
    *,
    raw: RawTimings = RAW,
    raw_before: RawTimings = RAW,
    **values: Any,
) -> Comparison:
    return Comparison(
        before=circumstances(before, raw_before), now=circumstances(now, raw), drop=0.3, **values
    )


EVIDENCE_OF_CAUSES: Mapping[str, tuple[Comparison, LossCause, str]] = {
    "a model that has left the GPU": (
        compared(with_values(backend_vram_bytes=300 << 20)),
        LossCause.CPU_FALLBACK,
        "runs on the CPU: GPU memory 43.7 → 0.3 GiB",
    ),
    "layers that have left the GPU, for others": (
        compared(with_values(backend_vram_bytes=34 * GIB, foreign_holders=(PYTHON,))),
        LossCause.PARTIAL_OFFLOAD,
        "part of the model runs on the CPU: GPU memory 43.7 → 34.0 GiB (9.8 GiB held by python3 (pid",
    ),
    "another process on the GPU": (
        compared(with_values(foreign_holders=(XORG, PYTHON)), with_values(foreign_holders=(XORG,))),
        LossCause.FOREIGN_HOLDER,
        "GiB of GPU memory held by python3 (pid 4121)",
    ),
    "a hot card": (
        compared(
            on_gpus(sm_clock_mhz=1200, temperature_c=91, throttle_reasons=("sw_thermal_slowdown",))
        ),
        LossCause.THERMAL_THROTTLE,
        "for its temperature at 91 °C: 1695 → 1200 MHz",
    ),
    "a hot card whose clocks are not told": (
        compared(
            on_gpus(
                sm_clock_mhz=None, temperature_c=None, throttle_reasons=("hw_thermal_slowdown",)
            ),
            on_gpus(sm_clock_mhz=None),
        ),
        LossCause.THERMAL_THROTTLE,
        "the GPU slows down for its temperature",
    ),
    "a weak power supply": (
        compared(on_gpus(sm_clock_mhz=900, throttle_reasons=("hw_power_brake_slowdown",))),
        LossCause.POWER_THROTTLE,
        "for its power supply: 1695 → 900 MHz",
    ),
    "a power limit that is reached": (
        compared(on_gpus(sm_clock_mhz=1500, throttle_reasons=("sw_power_cap",))),
        LossCause.POWER_THROTTLE,
        "has reached its power limit",
    ),
    "a power limit that was lowered": (
        compared(
            on_gpus(sm_clock_mhz=1500, power_w=220.0, throttle_reasons=("sw_power_cap",)),
            on_gpus(throttle_reasons=("sw_power_cap",)),
        ),
        LossCause.POWER_THROTTLE,
        "power limit was lowered: 287 → 220 W",
    ),
    "a card in a slot with fewer lanes": (
        compared(on_gpus(pcie_width=4)),
        LossCause.PCIE,
        "PCIe link has 4 lanes, 16 before",
    ),
    "a link of an older generation": (
        compared(on_gpus(pcie_generation=1)),
        LossCause.PCIE,
        "runs as generation 1, 4 before",
    ),
    "a clock that somebody has set": (
        compared(on_gpus(sm_clock_mhz=1200, throttle_reasons=("applications_clocks_setting",))),
        LossCause.CLOCK_CAPPED,
        "held down by a setting: 1695 → 1200 MHz",
    ),
    "memory in an idle state": (
        compared(on_gpus(memory_clock_mhz=5001)),
        LossCause.CLOCK_CAPPED,
        "memory runs slower: 9501 → 5001 MHz",
    ),
    "a CPU quota": (
        compared(with_values(cpu_throttled_share=0.42)),
        LossCause.CPU_QUOTA,
        "42% of the time",
    ),
    "other load on the CPU": (
        compared(with_values(other_cpu_share=0.55)),
        LossCause.CPU_LOAD,
        "other programs use 55% of the CPU, 3% before",
    ),
    "drafts that ended": (
        compared(
            EVIDENCE,
            raw=replace(DRAFTING, drafted_tokens=0, accepted_tokens=0),
            raw_before=DRAFTING,
        ),
        LossCause.DRAFTS_SILENT,
        "no longer drafts",
    ),
    "drafts that are refused": (
        compared(EVIDENCE, raw=replace(DRAFTING, accepted_tokens=30), raw_before=DRAFTING),
        LossCause.DRAFTS_SILENT,
        "60% → 10%",
    ),
    "a template that has grown": (
        compared(EVIDENCE, raw=replace(RAW, prompt_tokens=9000)),
        LossCause.CONTEXT_DEPTH,
        "2000 → 9000 tokens",
    ),
    "a prefix cache that no longer hits": (
        compared(EVIDENCE, cached_before=0.71, cached_now=0.03),
        LossCause.PREFIX_CACHE,
        "71% → 3% of real prompts",
    ),
    "another driver": (
        compared(with_values(driver="560.35.03")),
        LossCause.DRIVER_CHANGED,
        "550.127.05 → 560.35.03",
    ),
    "another engine": (
        compared(with_values(engine_version="b5000")),
        LossCause.ENGINE_CHANGED,
        "b4321 → b5000",
    ),
    "another library for the CPU": (
        compared(with_values(cpu_backend="cpu-sse42"), with_values(cpu_backend="cpu-avx512")),
        LossCause.CPU_BACKEND_CHANGED,
        "cpu-avx512 → cpu-sse42",
    ),
    "another profile": (
        compared(with_values(fingerprint="000000000000")),
        LossCause.PROFILE_CHANGED,
        "the profile was changed",
    ),
    "a restart": (
        replace(compared(EVIDENCE, restarted=True), drop=0.06),
        LossCause.RESTART,
        "came back slower from a restart",
    ),
}


@pytest.mark.parametrize(
    ("comparison", "cause", "text"), EVIDENCE_OF_CAUSES.values(), ids=EVIDENCE_OF_CAUSES.keys()
)
def test_cause_is_told_from_its_evidence(
    comparison: Comparison, cause: LossCause, text: str
) -> None:
    """The rule of each cause finds it, names what it has seen, and is the first to do so."""
    first = suspicions(comparison)[0]
    assert first.cause is cause
    assert text in first.text


def test_every_rule_has_evidence_and_a_source() -> None:
    """No rule is without a test, a source and a command."""
    assert {cause for _, cause, _ in EVIDENCE_OF_CAUSES.values()} == set(LossCause)
    assert [rule.cause for rule in RULES] == sorted(LossCause, key=list(LossCause).index)
    assert all(rule.source and rule.command for rule in RULES)


def small_changes() -> Evidence:
    """The usual evidence with the changes that healthy days bring."""
    return on_gpus(
        sm_clock_mhz=1650, power_w=270.0, temperature_c=78, throttle_reasons=("gpu_idle",)
    )


@pytest.mark.parametrize(
    "comparison",
    [
        compared(EVIDENCE),
        compared(small_changes()),
        compared(with_values(backend_vram_bytes=int(EVIDENCE.backend_vram_bytes or 0) * 97 // 100)),
        compared(with_values(other_cpu_share=0.15, cpu_throttled_share=0.02)),
        compared(with_values(foreign_holders=(XORG,)), with_values(foreign_holders=(XORG,))),
        compared(Evidence()),
        compared(EVIDENCE, Evidence()),
        compared(EVIDENCE, restarted=True),
        compared(EVIDENCE, cached_before=0.1, cached_now=0.0),
        compared(EVIDENCE, cached_before=0.7, cached_now=0.5),
        compared(EVIDENCE, raw=DRAFTING, raw_before=DRAFTING),
        compared(on_gpus(throttle_reasons=("sw_power_cap",))),
        compared(
            on_gpus(sm_clock_mhz=1600, throttle_reasons=("sw_power_cap",)),
            on_gpus(throttle_reasons=("sw_power_cap",)),
        ),
    ],
)
def test_unknown_cause_is_called_unknown(comparison: Comparison) -> None:
    """Changes that healthy days bring too, and values that are not known, are no cause."""
    assert suspicions(comparison) == []


def test_causes_that_explain_more_are_told_first() -> None:
    """A model on the CPU comes before the driver that put it there, and three are told at most."""
    now = replace(
        on_gpus(sm_clock_mhz=1200, throttle_reasons=("sw_thermal_slowdown",)),
        backend_vram_bytes=0,
        driver="560.35.03",
        other_cpu_share=0.9,
    )
    found = [suspicion.cause for suspicion in suspicions(compared(now))]
    assert found == [LossCause.CPU_FALLBACK, LossCause.DRIVER_CHANGED, LossCause.THERMAL_THROTTLE]


def test_changed_profile_comes_before_the_memory_that_it_takes() -> None:
    """A shorter context takes less memory, so the change is suspected before an offload."""
    now = with_values(backend_vram_bytes=30 * GIB, fingerprint="000000000000")
    found = [one.cause for one in suspicions(compared(now))]
    assert found == [LossCause.PROFILE_CHANGED, LossCause.PARTIAL_OFFLOAD]


def test_low_clock_is_not_told_beside_its_reason() -> None:
    """A card that throttles for heat has a low clock for that reason."""
    now = on_gpus(sm_clock_mhz=1200, throttle_reasons=("sw_thermal_slowdown",))
    assert [one.cause for one in suspicions(compared(now))] == [LossCause.THERMAL_THROTTLE]


def test_each_cause_has_a_command() -> None:
    """The command names the profile; that for an unknown cause shows the history."""
    assert command_for("cpu-quota", "genesis").endswith("appliance-backend-genesis")
    assert command_for(None, "genesis") == "appliance history genesis"


NOW = 1_800_000_000.0
LOSS = MeasurementEvent(
    unix_s=NOW,
    profile="genesis",
    kind=EventKind.REGRESSION,
    series=Series.DECODE,
    change=-0.34,
    cause="foreign-holder",
    rate=27.06,
    baseline=41.0,
    since_unix_s=NOW - 35 * 60,
    likely="9.8 GiB of GPU memory held by python3 (pid 4121)",
)


def test_sentence_says_what_how_long_why_and_what_to_type() -> None:
    """The sentence of a loss has no clock time in it."""
    assert loss_sentence(LOSS) == (
        "slow: 27.1 tok/s (was 41.0), −34 % for 35 min; likely: 9.8 GiB of GPU memory held by"  # noqa: RUF001
        " python3 (pid 4121); do: appliance status"
    )


def test_unknown_cause_is_said() -> None:
    """A loss without a cause says so, and names a command all the same."""
    unknown = LOSS.replaced(cause=None, likely="", since_unix_s=None)
    assert loss_sentence(unknown) == (
        "slow: 27.1 tok/s (was 41.0), −34 %; likely: unknown; do: appliance history genesis"  # noqa: RUF001
    )


def test_figures_say_what_is_known() -> None:
    """Figures without a series are empty, and those without a baseline have the rate alone."""
    assert loss_rates(None, 27.1, 41.0) == ""
    assert loss_rates(Series.PREFILL, 27.1, None) == "27.1 tok/s of prompts"
