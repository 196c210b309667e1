"""Likely causes of a loss: a table of rules that compare circumstances before and during it.

The rules are in the order of how much they explain: a model that has left the GPU explains a loss
whatever else has changed; then come changes that somebody made, which are the first suspects of
what remains, and after which a model may take less memory than before; then the state of the hardware. The first that applies is the likely cause, the
others are told after it. Where none applies, the cause is unknown and is called so. Thresholds are
beside their rules; docs/explanation/causes-of-a-loss.md has the reasons.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.speed.regression import signs
from appliance.speed.regression.signs import Comparison


class LossCause(StrEnum):
    """Key of a cause."""

    CPU_FALLBACK = "cpu-fallback"
    DRIVER_CHANGED = "driver-changed"
    ENGINE_CHANGED = "engine-changed"
    CPU_BACKEND_CHANGED = "cpu-backend-changed"
    PROFILE_CHANGED = "profile-changed"
    PARTIAL_OFFLOAD = "partial-offload"
    FOREIGN_HOLDER = "foreign-holder"
    THERMAL_THROTTLE = "thermal-throttle"
    POWER_THROTTLE = "power-throttle"
    PCIE = "pcie-link"
    CLOCK_CAPPED = "clock-capped"
    CPU_QUOTA = "cpu-quota"
    CPU_LOAD = "cpu-load"
    DRAFTS_SILENT = "drafts-silent"
    CONTEXT_DEPTH = "context-depth"
    PREFIX_CACHE = "prefix-cache"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRule:
    """Rule of one cause."""

    cause: LossCause
    find: Callable[[Comparison], str | None]
    """Function that returns the observation that speaks for the cause, in words; None: nothing does."""
    source: str
    """Origin of the figures that it compares."""
    command: str
    """Command to type first; ``NAME`` stands for the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Cause that an observation speaks for."""

    cause: LossCause
    text: str


_MOST_TOLD: Final = 3


def suspicions(comparison: Comparison) -> Sequence[Suspicion]:
    """Return what the loss may come from, the likeliest first, three at most; none: unknown."""
    found: list[Suspicion] = []
    for rule in RULES:
        text = rule.find(comparison)
        if text is not None and not (rule.cause in _CONSEQUENCES and found):
            found.append(Suspicion(cause=rule.cause, text=text))
    return found[:_MOST_TOLD]


def command_for(cause: str | None, name: str) -> str:
    """Return the command to type first for the cause of a profile's loss; None: it is unknown."""
    command = next((rule.command for rule in RULES if rule.cause == cause), _UNKNOWN_COMMAND)
    return command.replace("NAME", name)


_UNKNOWN_COMMAND: Final = "appliance history NAME"
_NVIDIA: Final = "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"
RULES: Final = (
    CauseRule(
        cause=LossCause.CPU_FALLBACK,
        find=signs.cpu_fallback,
        source="NVML nvmlDeviceGetComputeRunningProcesses: the backend's memory",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.DRIVER_CHANGED,
        find=signs.other_driver,
        source="NVML nvmlSystemGetDriverVersion",
        command="appliance history NAME",
    ),
    CauseRule(
        cause=LossCause.ENGINE_CHANGED,
        find=signs.other_engine,
        source="the engine's page of its version, or its wheel",
        command="appliance history NAME",
    ),
    CauseRule(
        cause=LossCause.CPU_BACKEND_CHANGED,
        find=signs.other_cpu_backend,
        source="libraries that the engine has loaded",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.PROFILE_CHANGED,
        find=signs.other_profile,
        source="fingerprint of the applied profile",
        command="appliance show NAME",
    ),
    CauseRule(
        cause=LossCause.PARTIAL_OFFLOAD,
        find=signs.partial_offload,
        source="NVML nvmlDeviceGetComputeRunningProcesses; llama.cpp fits layers into what is free",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.FOREIGN_HOLDER,
        find=signs.foreign_holder,
        source="NVML: processes with memory of the GPU that belong to no profile",
        command="appliance status",
    ),
    CauseRule(
        cause=LossCause.THERMAL_THROTTLE,
        find=signs.thermal_throttle,
        source="NVML nvmlDeviceGetCurrentClocksEventReasons: SW and HW thermal slowdown",
        command=_NVIDIA,
    ),
    CauseRule(
        cause=LossCause.POWER_THROTTLE,
        find=signs.power_throttle,
        source="NVML nvmlDeviceGetCurrentClocksEventReasons: power cap, power brake; power usage",
        command=_NVIDIA,
    ),
    CauseRule(
        cause=LossCause.PCIE,
        find=signs.slower_link,
        source="NVML nvmlDeviceGetCurrPcieLinkWidth and …Generation, under load",
        command="nvidia-smi --format=csv --query-gpu=pcie.link.width.current,pcie.link.gen.current",
    ),
    CauseRule(
        cause=LossCause.CLOCK_CAPPED,
        find=signs.lower_clock,
        source="NVML nvmlDeviceGetClockInfo, under load",
        command=_NVIDIA,
    ),
    CauseRule(
        cause=LossCause.CPU_QUOTA,
        find=signs.cpu_quota,
        source="cgroup cpu.stat: throttled time of the backend's unit",
        command="systemctl show -p CPUQuotaPerSecUSec appliance-backend-NAME",
    ),
    CauseRule(
        cause=LossCause.CPU_LOAD,
        find=signs.cpu_load,
        source="/proc/stat less cgroup cpu.stat of the backend's unit",
        command="systemd-cgtop",
    ),
    CauseRule(
        cause=LossCause.DRAFTS_SILENT,
        find=signs.silent_drafts,
        source="drafts in the engine's timings or metrics",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.CONTEXT_DEPTH,
        find=signs.longer_prompts,
        source="prompt tokens of the same prompts, in the engine's timings or usage",
        command="appliance show NAME",
    ),
    CauseRule(
        cause=LossCause.PREFIX_CACHE,
        find=signs.lost_prefix_cache,
        source="cached prompt tokens in the usage of real requests",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.RESTART,
        find=signs.slow_restart,
        source="start of the backend's unit; field notes: 80.3, 83 and 85.8 tok/s for one model",
        command="appliance restart NAME",
    ),
)
"""Rules in the order in which they are believed."""
_CONSEQUENCES: Final = frozenset({LossCause.CLOCK_CAPPED, LossCause.RESTART})
"""Causes that are told only where nothing else is found: they follow from the others."""
