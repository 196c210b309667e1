"""Parts of a profile's estimated need on this box, GPU by GPU, as JSON values."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypedDict

from appliance.model.memory import DeviceMemory, GpuState
from appliance.model.memory_parts import MemoryParts, SettingChange
from appliance.model.profile import Applied
from appliance.switch.memory.requirement import MemoryRequirement, parts_of, used
from appliance.switch.need import requirement_of


class PartsRow(TypedDict):
    """Parts of the memory in one place."""

    weights_bytes: int
    """Weights, with those of a projector and of a draft model."""
    cache_bytes: int
    """Keys and values of every token of the context."""
    state_bytes: int
    """Recurrent states, which do not grow with the context."""
    compute_bytes: int
    """Buffers for one batch, and libraries: an allowance."""
    checkpoints_bytes: int
    """Checkpoints of requests, once all of them are taken."""


class PlacedParts(TypedDict):
    """Parts of the memory in each place."""

    vram: PartsRow
    """Parts on all GPUs together."""
    gpus: Mapping[str, PartsRow]
    """Parts by the index of each GPU; empty: the GPUs are not known."""
    ram: PartsRow


class AlternativeRow(PlacedParts):
    """Parts with one setting of the profile changed."""

    change: SettingChange
    setting: str
    """Change as the profile would have it."""


class EstimateRow(PlacedParts):
    """Estimate of a profile from the headers of its model."""

    least_vram_bytes: int
    """Bytes with less than which the model can never run on its GPUs."""
    notes: list[str]
    """Phrases that say what the figures leave out or round up."""
    alternatives: list[AlternativeRow]


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
    return {
        **_placed(requirement, ours, estimate.vram, estimate.ram),
        "least_vram_bytes": estimate.least_vram_bytes,
        "notes": list(estimate.notes),
        "alternatives": [
            {
                **_placed(requirement, ours, one.vram, one.ram),
                "change": one.change,
                "setting": one.setting,
            }
            for one in estimate.alternatives
        ],
    }


def _placed(
    requirement: MemoryRequirement,
    ours: Sequence[DeviceMemory],
    vram: MemoryParts,
    ram: MemoryParts,
) -> PlacedParts:
    spread = {name: parts_of(requirement, count, ours) for name, count in _bytes(vram).items()}
    gpus = {
        str(device.index): _row(
            MemoryParts(**{name: parts[place] for name, parts in spread.items()})
        )
        for place, device in enumerate(ours)
    }
    return {"vram": _row(vram), "gpus": gpus if vram.total_bytes else {}, "ram": _row(ram)}


def _bytes(parts: MemoryParts) -> dict[str, int]:
    return {one.name: getattr(parts, one.name) for one in fields(parts)}


def _row(parts: MemoryParts) -> PartsRow:
    return {
        "weights_bytes": parts.weights_bytes,
        "cache_bytes": parts.cache_bytes,
        "state_bytes": parts.state_bytes,
        "compute_bytes": parts.compute_bytes,
        "checkpoints_bytes": parts.checkpoints_bytes,
    }
