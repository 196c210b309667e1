"""Likely causes of a loss of speed: a table of rules that compare the circumstances before and during it.

The rules are in the order of how much they explain: a model that has left the GPU explains a loss
whatever else has changed; then come changes that a person made, which are the first suspects of
what remains, and after which a model may take less memory than before; then the state of the
hardware. The first rule that applies names the likely cause, and the others follow it in the text. Where
none applies, the cause is called unknown. Each rule's function returns its observation in words for
people, None where there is none or a figure is not known; the thresholds are beside it.
docs/explanation/causes-of-a-loss.md has the reasons.

The sentences about a loss have no clock times, since they may be read in any time zone, days later;
the message to a phone is made when it is sent (`alerts.messages`), from what
`alerts.engine_rules` finds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.model.amounts import age, size, size_change
from appliance.model.measurements import MeasurementEvent
from appliance.model.words import Series
from appliance.speed.evidence import Circumstances, GpuCircumstances
from appliance.status.speed_figures import change_text, rate_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Circumstances of a loss beside those of the time before."""

    before: Circumstances
    now: Circumstances
    drop: float
    """Share of speed that is lost."""
    restarted: bool = False
    """Whether the loss began with a start of the backend."""
    cached_before: float | None = None
    """Usual share of the prompt tokens of real traffic that the prefix cache holds; None: not known."""
    cached_now: float | None = None

    @property
    def gpus(self) -> Iterator[tuple[GpuCircumstances, GpuCircumstances]]:
        """Yield each GPU that both know: before, now."""
        known = {gpu.uuid: gpu for gpu in self.before.gpus}
        for gpu in self.now.gpus:
            if gpu.uuid in known:
                yield known[gpu.uuid], gpu


# ── Where the model is ──────────────────────────────────────────────────────

_LEAST_VRAM: Final = 256 << 20
"""Less GPU memory is that of a context without a model."""
_GONE: Final = 0.1
_PART_GONE: Final = 0.05
"""Shares of the backend's GPU memory: caches and graphs move it by 1 to 3 % from start to start,
one of 32 layers by 3 % and, with the least memory above, more."""


def cpu_fallback(c: Comparison) -> str | None:
    """Find a model that has left the GPU."""
    before, now = c.before.vram_bytes, c.now.vram_bytes
    if before is None or now is None or before < _LEAST_VRAM or now >= _GONE * before:
        return None
    return f"the model runs on the CPU: GPU memory {size_change(before, now)}{_held_by_others(c)}"


def partial_offload(c: Comparison) -> str | None:
    """Find layers that have left the GPU."""
    before, now = c.before.vram_bytes, c.now.vram_bytes
    if before is None or now is None or now < _GONE * before:
        return None
    if before - now < max(_LEAST_VRAM, _PART_GONE * before):
        return None
    return f"part of the model runs on the CPU: GPU memory {size_change(before, now)}{_held_by_others(c)}"


def _held_by_others(c: Comparison) -> str:
    holder, held = c.now.foreign_holder, c.now.foreign_bytes or 0
    return f" ({size(held)} held by {holder})" if holder and held >= _FOREIGN_LEAST else ""


# ── Changes that a person made ───────────────────────────────────────────────


def _changed(what: str, before: str | None, now: str | None) -> str | None:
    if before is None or now is None or before == now:
        return None
    return f"{what} changed: {before} → {now}"


def other_driver(c: Comparison) -> str | None:
    """Find another driver."""
    return _changed("the driver", c.before.driver, c.now.driver)


def other_engine(c: Comparison) -> str | None:
    """Find another version of the engine."""
    return _changed("the engine", c.before.engine_version, c.now.engine_version)


def other_cpu_backend(c: Comparison) -> str | None:
    """Find another library of the engine for the CPU."""
    return _changed("the engine's CPU library", c.before.cpu_backend, c.now.cpu_backend)


def other_profile(c: Comparison) -> str | None:
    """Find another profile of the same name."""
    if _changed("", c.before.fingerprint, c.now.fingerprint) is None:
        return None
    return "the profile was changed"


# ── State of the hardware ───────────────────────────────────────────────────

_FOREIGN_LEAST: Final = 256 << 20
"""A desktop's memory moves by less; a process that computes has a context of at least 300 MiB."""
_OFTEN: Final = 0.4
_SELDOM: Final = 0.2
"""Shares of readings in which a reason to throttle was seen: now, and before."""
_CLOCK_FELL: Final = 0.07
_MEMORY_CLOCK_FELL: Final = 0.05
"""Clocks under load differ by 1 to 3 % between readings with temperature; a cap takes more, and
memory clocks go in steps of a tenth and more."""
_POWER_FELL: Final = 0.10
_LINK_FELL: Final = 0.75
"""A link that loses width loses half of it or more; a generation is a step of one."""


def foreign_holder(c: Comparison) -> str | None:
    """Find a process on the GPUs that belongs to no profile."""
    before, now = c.before.foreign_bytes or 0, c.now.foreign_bytes
    if now is None or now - before < _FOREIGN_LEAST or c.now.foreign_holder is None:
        return None
    return f"{size(now)} of GPU memory held by {c.now.foreign_holder}"


def _began(before: float | None, now: float | None) -> bool:
    """Tell whether a reason to throttle is seen often now, and was not."""
    return now is not None and now >= _OFTEN and (before or 0.0) <= _SELDOM


def _fell(before: float | None, now: float | None, share: float) -> bool:
    return before is not None and now is not None and now < (1 - share) * before


def thermal_throttle(c: Comparison) -> str | None:
    """Find a GPU that is too hot."""
    for before, now in c.gpus:
        if _began(before.thermal, now.thermal):
            degrees = "" if now.temperature_c is None else f" at {now.temperature_c:.0f} °C"
            return f"the GPU slows down for its temperature{degrees}{_clocks(before, now)}"
    return None


def power_throttle(c: Comparison) -> str | None:
    """Find a GPU that lacks power."""
    for before, now in c.gpus:
        if _began(before.power_brake, now.power_brake):
            return f"the GPU slows down for its power supply{_clocks(before, now)}"
        slower = _fell(before.sm_clock_mhz, now.sm_clock_mhz, _CLOCK_FELL / 2)
        if slower and _began(before.power_cap, now.power_cap):
            return f"the GPU has reached its power limit{_clocks(before, now)}"
        capped = (now.power_cap or 0) >= _OFTEN
        if slower and capped and _fell(before.power_w, now.power_w, _POWER_FELL):
            watts = f"{before.power_w:.0f} → {now.power_w:.0f} W"
            return f"the GPU's power limit was lowered: {watts}{_clocks(before, now)}"
    return None


def slower_link(c: Comparison) -> str | None:
    """Find a PCIe link with fewer lanes, or of an older generation."""
    for before, now in c.gpus:
        if _fell(before.pcie_width, now.pcie_width, 1 - _LINK_FELL):
            return f"the GPU's PCIe link has {now.pcie_width:.0f} lanes, {before.pcie_width:.0f} before"
        generation = (before.pcie_generation or 0) - (now.pcie_generation or 99)
        if generation >= _LINK_FELL:
            return (
                f"the GPU's PCIe link runs as generation {now.pcie_generation:.0f},"
                f" {before.pcie_generation:.0f} before"
            )
    return None


def lower_clock(c: Comparison) -> str | None:
    """Find a lower clock, for whatever reason."""
    for before, now in c.gpus:
        if _fell(before.memory_clock_mhz, now.memory_clock_mhz, _MEMORY_CLOCK_FELL):
            clocks = f"{before.memory_clock_mhz:.0f} → {now.memory_clock_mhz:.0f} MHz"
            return f"the GPU's memory runs slower: {clocks}"
        if _fell(before.sm_clock_mhz, now.sm_clock_mhz, _CLOCK_FELL):
            who = " by a setting" if _began(before.setting, now.setting) else ""
            return f"the GPU's clock is held down{who}{_clocks(before, now)}"
    return None


def _clocks(before: GpuCircumstances, now: GpuCircumstances) -> str:
    if before.sm_clock_mhz is None or now.sm_clock_mhz is None:
        return ""
    return f": {before.sm_clock_mhz:.0f} → {now.sm_clock_mhz:.0f} MHz"


_CPU_QUOTA: Final = 0.05
_CPU_LOAD: Final = 0.15
"""Shares beyond those of before: of the time in which a quota keeps the backend from running, and of
the box's CPU time that others use. Housekeeping takes some per cent."""


def cpu_quota(c: Comparison) -> str | None:
    """Find a CPU quota that holds the backend back."""
    before, now = c.before.cpu_throttled_share or 0.0, c.now.cpu_throttled_share
    if now is None or now - before < _CPU_QUOTA:
        return None
    return f"a CPU quota keeps the model from running {now:.0%} of the time"


def cpu_load(c: Comparison) -> str | None:
    """Find other programs that use the CPU."""
    before, now = c.before.other_cpu_share or 0.0, c.now.other_cpu_share
    if now is None or now - before < _CPU_LOAD:
        return None
    return f"other programs use {now:.0%} of the CPU, {before:.0%} before"


# ── The model's work ────────────────────────────────────────────────────────

_DRAFTS_LEAST: Final = 0.1
_DRAFTS_LEFT: Final = 0.2
_ACCEPTED_LEFT: Final = 0.5
"""Acceptance moves by a fifth between prompts; what falls by half has another reason."""
_DEEPER: Final = 1.5
_DEEPER_TOKENS: Final = 1024
"""A context of 1000 tokens costs decoding a few per cent, and one of 200 nothing that is seen."""
_CACHE_USUAL: Final = 0.2
_CACHE_LEFT: Final = 0.33


def silent_drafts(c: Comparison) -> str | None:
    """Find speculative decoding that ended, or whose drafts are refused."""
    before, now = c.before.drafts_a_token, c.now.drafts_a_token
    if before is not None and now is not None and before >= _DRAFTS_LEAST:
        if now < _DRAFTS_LEFT * before:
            return "speculative decoding no longer drafts"
        if _fell(c.before.accepted_share, c.now.accepted_share, 1 - _ACCEPTED_LEFT):
            shares = f"{c.before.accepted_share:.0%} → {c.now.accepted_share:.0%}"
            return f"fewer drafts of speculative decoding stand: {shares}"
    return None


def longer_prompts(c: Comparison) -> str | None:
    """Find prompts that take more tokens than before."""
    before, now = c.before.prompt_tokens, c.now.prompt_tokens
    if before is None or now is None or now < max(_DEEPER * before, before + _DEEPER_TOKENS):
        return None
    return f"prompts became longer: {before:.0f} → {now:.0f} tokens for the same text"


def is_cache_lost(before: float | None, now: float | None) -> bool:
    """Tell whether the prefix cache holds much less of real prompts than it used to."""
    if before is None or now is None:
        return False
    return before >= _CACHE_USUAL and now < _CACHE_LEFT * before


def lost_prefix_cache(c: Comparison) -> str | None:
    """Find a prefix cache that no longer holds real prompts."""
    if not is_cache_lost(c.cached_before, c.cached_now):
        return None
    return f"the prefix cache no longer hits: {c.cached_before:.0%} → {c.cached_now:.0%} of real prompts"


_MOST_BY_RESTART: Final = 0.08
"""Levels of one model differ by 3 to 7 % from start to start on some boxes: 80.3, 83 and 85.8 tok/s."""


def slow_restart(c: Comparison) -> str | None:
    """Find a start since which the model is a few per cent slower."""
    if not c.restarted or c.drop > _MOST_BY_RESTART:
        return None
    return (
        "it came back slower from a restart, and nothing else is seen; another restart may mend it"
    )


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


_MOST_SUSPICIONS: Final = 3


def suspicions(comparison: Comparison) -> Sequence[Suspicion]:
    """Return what the loss may come from, the likeliest first, three at most; none: unknown."""
    found: list[Suspicion] = []
    for rule in RULES:
        text = rule.find(comparison)
        if text is not None and not (rule.cause in _CONSEQUENCES and found):
            found.append(Suspicion(cause=rule.cause, text=text))
    return found[:_MOST_SUSPICIONS]


def command_for(cause: str | None, name: str) -> str:
    """Return the command to type first for the cause of a profile's loss; None: it is unknown."""
    command = next((rule.command for rule in RULES if rule.cause == cause), _UNKNOWN_COMMAND)
    return command.replace("NAME", name)


_UNKNOWN_COMMAND: Final = "appliance history NAME"
_NVIDIA: Final = "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"
RULES: Final = (
    CauseRule(
        cause=LossCause.CPU_FALLBACK,
        find=cpu_fallback,
        source="NVML nvmlDeviceGetComputeRunningProcesses: the backend's memory",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.DRIVER_CHANGED,
        find=other_driver,
        source="NVML nvmlSystemGetDriverVersion",
        command="appliance history NAME",
    ),
    CauseRule(
        cause=LossCause.ENGINE_CHANGED,
        find=other_engine,
        source="the engine's page of its version, or its wheel",
        command="appliance history NAME",
    ),
    CauseRule(
        cause=LossCause.CPU_BACKEND_CHANGED,
        find=other_cpu_backend,
        source="libraries that the engine has loaded",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.PROFILE_CHANGED,
        find=other_profile,
        source="fingerprint of the applied profile",
        command="appliance show NAME",
    ),
    CauseRule(
        cause=LossCause.PARTIAL_OFFLOAD,
        find=partial_offload,
        source="NVML nvmlDeviceGetComputeRunningProcesses; llama.cpp fits layers into what is free",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.FOREIGN_HOLDER,
        find=foreign_holder,
        source="NVML: processes with memory of the GPU that belong to no profile",
        command="appliance status",
    ),
    CauseRule(
        cause=LossCause.THERMAL_THROTTLE,
        find=thermal_throttle,
        source="NVML nvmlDeviceGetCurrentClocksEventReasons: SW and HW thermal slowdown",
        command=_NVIDIA,
    ),
    CauseRule(
        cause=LossCause.POWER_THROTTLE,
        find=power_throttle,
        source="NVML nvmlDeviceGetCurrentClocksEventReasons: power cap, power brake; power usage",
        command=_NVIDIA,
    ),
    CauseRule(
        cause=LossCause.PCIE,
        find=slower_link,
        source="NVML nvmlDeviceGetCurrPcieLinkWidth and …Generation, under load",
        command="nvidia-smi --format=csv --query-gpu=pcie.link.width.current,pcie.link.gen.current",
    ),
    CauseRule(
        cause=LossCause.CLOCK_CAPPED,
        find=lower_clock,
        source="NVML nvmlDeviceGetClockInfo, under load",
        command=_NVIDIA,
    ),
    CauseRule(
        cause=LossCause.CPU_QUOTA,
        find=cpu_quota,
        source="cgroup cpu.stat: throttled time of the backend's unit",
        command="systemctl show -p CPUQuotaPerSecUSec appliance-backend-NAME",
    ),
    CauseRule(
        cause=LossCause.CPU_LOAD,
        find=cpu_load,
        source="/proc/stat less cgroup cpu.stat of the backend's unit",
        command="systemd-cgtop",
    ),
    CauseRule(
        cause=LossCause.DRAFTS_SILENT,
        find=silent_drafts,
        source="drafts in the engine's timings or metrics",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.CONTEXT_DEPTH,
        find=longer_prompts,
        source="prompt tokens of the same prompts, in the engine's timings or usage",
        command="appliance show NAME",
    ),
    CauseRule(
        cause=LossCause.PREFIX_CACHE,
        find=lost_prefix_cache,
        source="cached prompt tokens in the usage of real requests",
        command="appliance logs NAME",
    ),
    CauseRule(
        cause=LossCause.RESTART,
        find=slow_restart,
        source="start of the backend's unit; field notes: 80.3, 83 and 85.8 tok/s for one model",
        command="appliance restart NAME",
    ),
)
"""Rules in the order in which they are believed."""
_CONSEQUENCES: Final = frozenset({LossCause.CLOCK_CAPPED, LossCause.RESTART})
"""Causes that are reported only where nothing else is found: they follow from the others."""


_UNKNOWN: Final = "unknown"
_UNITS: Final = {Series.DECODE: "tok/s", Series.PREFILL: "tok/s of prompts"}


def loss_rates(series: Series | None, tok_s: float | None, baseline_tok_s: float | None) -> str:
    """Return a rate beside its baseline: ``27.1 tok/s (was 41.0)``; empty: unknown."""
    if series is None or tok_s is None:
        return ""
    was = "" if baseline_tok_s is None else f" (was {rate_text(baseline_tok_s)})"
    return f"{rate_text(tok_s)} {_UNITS[series]}{was}"


def loss_sentence(event: MeasurementEvent) -> str:
    """Return the sentence of a loss: how much, for how long, likely cause, command."""
    lasted = "" if event.since_unix_s is None else f" for {age(event.unix_s - event.since_unix_s)}"
    change = "" if event.change is None else f", {change_text(event.change)}{lasted}"
    return (
        f"slow: {loss_rates(event.series, event.rate, event.baseline)}{change};"
        f" likely: {event.likely or _UNKNOWN}; do: {command_for(event.cause, event.profile)}"
    )
