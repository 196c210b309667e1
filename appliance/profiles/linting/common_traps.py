"""Traps of profiles with any engine: memory, priority, patches, the order of units, and drafting by own layers (MTP)."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import LlamaCppLoading, PytorchLoading
from appliance.model.memory import DeviceMemory, GpuState, HostMemory, Quality
from appliance.model.operations import Goal
from appliance.model.trap_names import TrapName
from appliance.model.wording import joined
from appliance.profiles.linting.trap import FIELD, GpuFacts, LintFacts, Trap
from appliance.switch.memory import fit
from appliance.switch.memory.requirement import usable_bytes
from appliance.switch.memory_findings import Prediction, ram_findings, vram_findings
from appliance.switch.need import requirement_of, resolve, used_gpus
from appliance.switch.preflight_facts import BoxFacts, Level, PreflightFinding

_PRIORITY: Final = ("--prio", "--prio-batch")
LARGE_SHARE: Final = 0.5
"""Part of main memory from which on weights that are not locked have been seen to leave it (18.15 of 32 GB)."""


def _unchecked_patch(facts: LintFacts) -> str | None:
    patch = facts.profile.patch
    return "patch.expect is empty" if patch is not None and not patch.expect else None


def _raised_priority(facts: LintFacts) -> str | None:
    for override in facts.profile.unit:
        if override.name == "Service.Nice" and any(
            value.startswith("-") for value in override.values
        ):
            return f"{override.name} is {override.values[-1]}"
    arguments = facts.profile.extra_args
    for option, value in pairwise(arguments):
        if option in _PRIORITY and value in {"1", "2", "3"}:
            return f"{option} is {value}"
    return None


def _pinned_cpus(facts: LintFacts) -> str | None:
    if facts.profile.gpus == ():
        return None
    names = [o.name for o in facts.profile.unit if o.name == "Service.CPUAffinity"]
    return f"{names[0]} is set" if names else None


def _memlock_limit(facts: LintFacts) -> str | None:
    if not facts.applied.locks_memory:
        return None
    limits = [o.values[-1] for o in facts.profile.unit if o.name == "Service.LimitMEMLOCK"]
    return f"Service.LimitMEMLOCK is {limits[0]}" if limits and limits[0] != "infinity" else None


def _needs_vram(facts: LintFacts) -> str | None:
    applied = facts.applied
    is_known = applied.estimate is not None or applied.need.vram_bytes is not None
    return "" if applied.gpus != () and is_known else None


def _beyond_gpus(facts: LintFacts, gpus: GpuFacts) -> str | None:
    """Return what the preflight would say if nothing else ran on the GPUs; None also if one cannot be read."""
    applied = facts.applied
    used = used_gpus(applied, [device.index for device in gpus.memory])
    if any(
        device.state is not GpuState.OK or device.quality is Quality.OPAQUE
        for device in gpus.memory
        if device.index in used
    ):
        return None
    empty = tuple(map(_emptied, gpus.memory))
    host = HostMemory(total_bytes=facts.ram_bytes or 0, available_bytes=facts.ram_bytes or 0)
    requirement = requirement_of(applied, rivals=())
    return _told(
        vram_findings(
            applied,
            resolve(applied, None, empty, facts.ram_bytes or 0),
            requirement,
            Prediction(devices=empty, host=host),
            [s for s in fit.shortfalls(requirement, empty, host) if s.kind != fit.RAM],
        )
    )


def _emptied(device: DeviceMemory) -> DeviceMemory:
    """Return a GPU as it is while no program uses it."""
    return replace(device, free_bytes=usable_bytes(device), used_bytes=0, holders=())


def _beyond_ram(facts: LintFacts) -> str | None:
    """Return what the preflight would say if the profile ran alone."""
    if not facts.ram_bytes:
        return None
    name = facts.applied.name
    need = resolve(facts.applied, None, (), facts.ram_bytes)
    box = BoxFacts(ram_total_bytes=facts.ram_bytes)
    return _told(ram_findings(Goal(start=(name,)), {name: need}, (name,), box))


def _told(findings: Iterable[PreflightFinding]) -> str | None:
    return next((f.text for f in findings if f.level is not Level.OK), None)


def _unlocked(facts: LintFacts) -> str | None:
    applied = facts.applied
    if applied.gpus != () or applied.locks_memory or not facts.ram_bytes or not applied.estimate:
        return None
    weights = applied.estimate.ram.weights_bytes
    if weights < LARGE_SHARE * facts.ram_bytes:
        return None
    return f"weights of {weights / _GIB:.1f} GiB, {facts.ram_bytes / _GIB:.1f} GiB of RAM"


_GIB: Final = 1 << 30


_MOST_TOKENS: Final = 3


def _own_tokens(facts: LintFacts) -> int:
    """Return the tokens that the model's own layers draft in each step; 0: they draft none."""
    if facts.profile.speculative is None:
        return 0
    match ENGINES[facts.profile.engine].memory(facts.profile).loading:
        case LlamaCppLoading(draft=draft) if draft is not None and draft.own_layers:
            return draft.tokens if draft.model is None else 0
        case PytorchLoading(drafts=tokens):
            return tokens
        case _:
            return 0


def _too_long(facts: LintFacts) -> str | None:
    tokens = _own_tokens(facts)
    return f"speculative.tokens is {tokens}" if tokens > _MOST_TOKENS else None


def _without_weights(facts: LintFacts) -> str | None:
    lacks = facts.traits is not None and facts.traits.drafts is False
    return f"{facts.profile.model} has none" if lacks and _own_tokens(facts) else None


COMMON_TRAPS: Final = (
    Trap(
        name=TrapName.UNCHECKED_PATCH,
        statement="a patch that no longer applies is skipped without an error, and nobody sees what is slower or wrong",
        keys=("patch.expect",),
        advice="name what its output must report as applied",
        source=f"{FIELD}: anchors that no longer match are skipped",
        checked="2026-11-25",
        finds=_unchecked_patch,
    ),
    Trap(
        name=TrapName.RAISED_PRIORITY,
        statement="an engine of high priority starves the threads of the GPU driver",
        keys=("unit.Service.Nice", "extra_args"),
        advice="remove it",
        source=f"{FIELD}: 67.4 tokens a second with it, 70 and more without",
        checked="2026-11-25",
        finds=_raised_priority,
    ),
    Trap(
        name=TrapName.PINNED_CPUS,
        statement="an affinity of the whole unit also pins the threads of the GPU driver, and generation on a GPU gains"
        " nothing by it",
        keys=("unit.Service.CPUAffinity",),
        advice="remove it, or pin the engine's own threads (cpus of llama-server)",
        source=f"{FIELD}: affinity did nothing for generation",
        checked="2026-11-25",
        finds=_pinned_cpus,
    ),
    Trap(
        name=TrapName.MEMLOCK_LIMIT,
        statement="weights beyond the limit are not locked, the engine only warns, and they go to swap",
        keys=("unit.Service.LimitMEMLOCK", "mlock"),
        advice="remove it: the unit's own limit is infinity",
        source=f"{FIELD}; systemd.exec(5), setrlimit(2)",
        checked="2026-11-25",
        finds=_memlock_limit,
    ),
    Trap(
        name=TrapName.MISSING_UNIT,
        statement="systemd says nothing of a unit that does not exist, and waits for nothing",
        keys=("order.after", "unit.Unit.After", "unit.Unit.Wants"),
        advice="correct the name, or remove it",
        source=f"{FIELD}: a wrong name in After= kept a box unreachable; systemd.unit(5)",
        checked="2026-11-25",
        finds=lambda facts: joined(facts.missing_units, nothing="") or None,
    ),
    Trap(
        name=TrapName.VRAM_TOO_SMALL,
        statement="the model does not fit, with nothing else on the GPUs",
        keys=("model", "ctx", "kv", "need.vram"),
        advice="use a smaller quantisation, lower ctx, or keep layers in host RAM",
        source=f"{FIELD}: 30.6 GB on disk, 28 GB loaded, no room for a cache on 2 x 16 GB",
        checked="2026-11-25",
        finds=_needs_vram,
        on_gpus=_beyond_gpus,
    ),
    Trap(
        name=TrapName.RAM_TOO_SMALL,
        statement="the model does not fit into main memory, with nothing else beside it",
        keys=("model", "ctx", "cache_ram", "mlock", "need.ram"),
        advice="use a smaller quantisation, lower ctx or cache_ram",
        source=f"{FIELD}: an mlocked model and the prompt cache on 32 GB",
        checked="2026-11-25",
        finds=_beyond_ram,
    ),
    Trap(
        name=TrapName.UNLOCKED_WEIGHTS,
        statement="weights that are not locked leave main memory under pressure, and are read from disk again",
        keys=("mlock",),
        advice="set mlock = true",
        source=f"{FIELD}: 18.15 GiB on a box of 32 GB went to swap",
        checked="2026-11-25",
        finds=_unlocked,
    ),
    Trap(
        name=TrapName.MTP_TOO_LONG,
        statement="a model's own layers draft few tokens well: four and more cost speed, and time out on some builds",
        keys=("speculative.tokens",),
        advice="set 3, and measure 2",
        source=f"{FIELD}: 3 best, 2 costs 4.3 tokens a second, 4 costs 6; 4 and 5 time out with NVFP4",
        checked="2026-11-25",
        finds=_too_long,
    ),
    Trap(
        name=TrapName.NO_MTP_WEIGHTS,
        statement="the model's own layers are to draft, and its files have none: nothing is drafted, or it does not start",
        keys=("speculative", "model"),
        advice="use a conversion that kept the MTP weights, or remove speculative",
        source=f"{FIELD}: 17.9 tokens a second instead of 80",
        checked="2026-11-25",
        finds=_without_weights,
    ),
)
