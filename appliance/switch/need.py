"""Need of a profile on this box by the best source, GPU by GPU, and the parts of its estimate.

`requirement_of` is for gate and preflight, `resolve` and `estimate_row` for people.

===============  ===========================================================================
source           where the figure comes from, best first
===============  ===========================================================================
``observed``     the most that this very configuration was seen to hold, and an allowance
``declared``     ``need`` in its profile
``utilisation``  the share of each GPU, or of RAM, that the engine takes whatever the model is
``estimate``     the headers of the model's files
``unknown``      nothing says it
===============  ===========================================================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from appliance.model.amounts import size
from appliance.model.memory import DeviceMemory, GpuState
from appliance.model.memory_parts import MemoryParts, SettingChange
from appliance.model.names import unit_of
from appliance.model.profile import Applied
from appliance.switch.memory.peak import ObservedPeak, with_allowance
from appliance.switch.memory.requirement import (
    MemoryRequirement,
    gpu_demands,
    observed_demand,
    observed_ram_bytes,
    parts_of,
    source_of,
    usable_bytes,
    used,
)

_MOST_BYTES: Final = 1 << 62
"""Main memory that is assumed for a box whose size is not known, in bytes."""


class Source(StrEnum):
    """Source of the figure of a need. The order of definition is the order of preference."""

    OBSERVED = "observed"
    DECLARED = "declared"
    UTILISATION = "utilisation"
    ESTIMATE = "estimate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxNeed:
    """Memory that the gate asks for, in bytes, without the margin."""

    source: Source | None
    """Source of the VRAM's figure; None: the profile uses no GPU."""
    gpus: Mapping[int, int] = field(default_factory=dict)
    """Bytes needed on each GPU by NVML index; empty: the need or the GPUs are unknown."""
    least_gpus: Mapping[int, int] = field(default_factory=dict)
    """Bytes on each GPU without which the model can never run; empty: not known."""
    vram_bytes: int | None = None
    """Bytes over all GPUs; None: unknown."""
    ram_source: Source = Source.UNKNOWN
    ram_bytes: int | None = None
    """Bytes of main memory; None: unknown."""
    notes: tuple[str, ...] = ()
    """Phrases that say what the source leaves out or rounds up."""
    problem: str = ""
    """Reason why the need is unknown, as a phrase."""
    fraction: float | None = None
    """Share of each GPU, where the need is a share."""

    @property
    def amount(self) -> str:
        """Return the VRAM as a sentence names it: ``≈18.6 GiB``."""
        if self.vram_bytes is not None:
            return f"≈{size(self.vram_bytes)}"
        return "an unknown amount" if self.fraction is None else _percent(self.fraction)

    @property
    def label(self) -> str:
        """Return the source of the VRAM's figure: ``estimate: sliding window, upper bound``."""
        if self.source is Source.UNKNOWN:
            return self.problem or "not declared"
        why = "; ".join(self.notes)
        if self.fraction is not None and self.vram_bytes is not None:
            why = _percent(self.fraction)
        return f"{self.source}: {why}" if why else str(self.source)

    @property
    def text(self) -> str:
        """Return the VRAM for people: ``≈18.6 GiB (observed)``."""
        if self.source is None:
            return "none"
        amount = "unknown" if self.source is Source.UNKNOWN else self.amount
        return f"{amount} ({self.label})"

    @property
    def ram_text(self) -> str:
        """Return the RAM for people."""
        if self.ram_bytes is None:
            return f"unknown ({self.problem})" if self.problem else "unknown"
        return f"≈{size(self.ram_bytes)} ({self.ram_source})"


def _percent(fraction: float) -> str:
    return f"{round(fraction * 100, 1):g} % of each GPU"


def used_gpus(applied: Applied, present: Sequence[int]) -> tuple[int, ...]:
    """Return the indexes of the GPUs that a profile uses, in the profile's order."""
    return tuple(sorted(present)) if applied.gpus == "all" else applied.gpus


def requirement_of(
    applied: Applied,
    peak: ObservedPeak | None = None,
    *,
    margin_bytes: int | None = None,
    rivals: Sequence[str] | None = None,
) -> MemoryRequirement:
    """Return the requirement of `applied`, as the gate's arguments state it.

    Args:
        applied: The profile.
        peak: The most that it was seen to hold, of whatever configuration; None: never seen.
        margin_bytes: To be free beyond its need; None: the gate's own margin.
        rivals: Profiles whose memory is not foreign; None: all that it conflicts with, which may be hundreds.
    """
    uses_gpus = applied.gpus != ()
    declared = applied.need.vram_bytes if uses_gpus else None
    fraction = applied.vram_fraction if uses_gpus and declared is None else None
    unsaid = uses_gpus and declared is None and fraction is None
    estimate = applied.estimate if unsaid else None
    return MemoryRequirement(
        ram_bytes=applied.need.ram_bytes,
        vram_bytes=declared,
        fraction=fraction,
        estimate_bytes=None if estimate is None else estimate.vram_bytes,
        least_bytes=None if estimate is None else estimate.least_vram_bytes,
        peak=None if peak is None else peak.of(applied.fingerprint),
        gpus=None if applied.gpus == "all" else applied.gpus,
        split=applied.gpu_split,
        margin_bytes=margin_bytes,
        rivals=frozenset(map(unit_of, applied.conflicts if rivals is None else rivals)),
        own=unit_of(applied.name),
        assume_free=applied.assume_free,
    )


def resolve(
    applied: Applied,
    peak: ObservedPeak | None,
    devices: Sequence[DeviceMemory],
    ram_total_bytes: int = 0,
) -> BoxNeed:
    """Return the need of `applied` here: observed, declared, utilisation, estimate, or unknown.

    Args:
        applied: The profile.
        peak: The most that it was seen to hold, of whatever configuration; None: never seen.
        devices: Every GPU of the box; empty: they cannot be read.
        ram_total_bytes: Of the box; 0: unknown.
    """
    requirement = requirement_of(applied, peak, rivals=())
    ram_source, ram_bytes = _ram(applied, requirement, devices, ram_total_bytes)
    if not requirement.uses_gpus:
        problem = applied.estimate_problem
        return BoxNeed(source=None, ram_source=ram_source, ram_bytes=ram_bytes, problem=problem)
    ours = used(requirement, [d for d in devices if d.state is GpuState.OK])
    source, vram_bytes, gpus = _vram(requirement, devices, ours)
    estimate = applied.estimate
    least = None if estimate is None else estimate.least_vram_bytes
    return BoxNeed(
        source=source,
        gpus=gpus,
        least_gpus={} if least is None else _by_index(ours, parts_of(requirement, least, ours)),
        vram_bytes=vram_bytes,
        ram_source=ram_source,
        ram_bytes=ram_bytes,
        notes=() if estimate is None or source is not Source.ESTIMATE else estimate.notes,
        problem=applied.estimate_problem,
        fraction=applied.vram_fraction if source is Source.UTILISATION else None,
    )


def _by_index(ours: Sequence[DeviceMemory], parts: Sequence[int]) -> Mapping[int, int]:
    return {d.index: part for d, part in zip(ours, parts, strict=True)}


def _vram(
    requirement: MemoryRequirement, devices: Sequence[DeviceMemory], ours: Sequence[DeviceMemory]
) -> tuple[Source, int | None, Mapping[int, int]]:
    if not devices and requirement.peak is not None and requirement.peak.gpus:
        # Without a list of GPUs the need is only shown.
        return Source.OBSERVED, sum(map(with_allowance, requirement.peak.gpus.values())), {}
    source, needs = Source(source_of(requirement, ours)), gpu_demands(requirement, ours) or ()
    if source in {Source.OBSERVED, Source.UTILISATION}:
        weighed = ((d, n) for d, n in zip(ours, needs, strict=True) if n.need_bytes)
        asked = {d.index: n.asked_bytes(usable_bytes(d)) for d, n in weighed}
        return source, sum(asked.values()) if asked else None, asked
    whole = requirement.estimate_bytes if requirement.vram_bytes is None else requirement.vram_bytes
    return source, whole, _by_index(ours, [n.need_bytes for n in needs]) if needs else {}


def _ram(
    applied: Applied,
    requirement: MemoryRequirement,
    devices: Sequence[DeviceMemory],
    ram_total_bytes: int,
) -> tuple[Source, int | None]:
    total_bytes = ram_total_bytes or _MOST_BYTES
    if requirement.uses_gpus and not devices:
        seen = None if requirement.peak is None else requirement.peak.ram_bytes
    else:
        seen = observed_ram_bytes(requirement, total_bytes, devices)
    if seen is not None:
        return Source.OBSERVED, observed_demand(seen).asked_bytes(total_bytes)
    if applied.need.ram_bytes is not None:
        return Source.DECLARED, applied.need.ram_bytes
    if applied.ram_fraction is not None and ram_total_bytes:
        return Source.UTILISATION, int(applied.ram_fraction * ram_total_bytes)
    if applied.estimate is not None:
        return Source.ESTIMATE, applied.estimate.ram_bytes
    return Source.UNKNOWN, None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedParts:
    """Parts of the memory in each place."""

    vram: MemoryParts
    """Parts on all GPUs together."""
    gpus: Mapping[str, MemoryParts]
    """Parts by the index of each GPU; empty: the GPUs are not known."""
    ram: MemoryParts


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeRow(PlacedParts):
    """Parts with one setting of the profile changed."""

    change: SettingChange
    setting: str
    """Change as the profile would have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow(PlacedParts):
    """Estimate of a profile from the headers of its model."""

    least_vram_bytes: int
    """Bytes with less than which the model can never run on its GPUs."""
    notes: tuple[str, ...]
    """Phrases that say what the figures leave out or round up."""
    alternatives: tuple[AlternativeRow, ...]


def estimate_row(applied: Applied, devices: Sequence[DeviceMemory]) -> EstimateRow | None:
    """Return the parts of a profile's estimate; None: it has none, or an older release made it.

    Args:
        applied: The profile.
        devices: Every GPU of the box; empty: they cannot be read.
    """
    estimate = applied.estimate
    if estimate is None or not estimate.vram.total_bytes + estimate.ram.total_bytes:
        return None
    requirement = requirement_of(applied)
    ours = used(requirement, [d for d in devices if d.state is GpuState.OK])
    return EstimateRow(
        vram=estimate.vram,
        gpus=_spread(requirement, ours, estimate.vram),
        ram=estimate.ram,
        least_vram_bytes=estimate.least_vram_bytes,
        notes=estimate.notes,
        alternatives=tuple(
            AlternativeRow(
                vram=one.vram,
                gpus=_spread(requirement, ours, one.vram),
                ram=one.ram,
                change=one.change,
                setting=one.setting,
            )
            for one in estimate.alternatives
        ),
    )


def _spread(
    requirement: MemoryRequirement, ours: Sequence[DeviceMemory], vram: MemoryParts
) -> Mapping[str, MemoryParts]:
    """Return the parts on each GPU; empty: none are there."""
    if not vram.total_bytes:
        return {}
    counts = {each.name: getattr(vram, each.name) for each in fields(vram)}
    spread = {name: parts_of(requirement, count, ours) for name, count in counts.items()}
    return {
        str(device.index): MemoryParts(**{name: parts[place] for name, parts in spread.items()})
        for place, device in enumerate(ours)
    }
