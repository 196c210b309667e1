"""Check that the GPUs have the memory that a profile needs, and will have it free.

The rule is the gate's (`switch.memory`), applied to the predicted box: what is refused here would
have been refused by the gate, after the old model had been stopped. One rule is the preflight's own:
a model whose least is larger than its GPUs is refused, even where a declared figure or the engine's
share is small enough for the gate.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from appliance.model.amounts import size, size_of_total
from appliance.model.memory import DeviceMemory, Holder, Quality
from appliance.model.names import profile_of
from appliance.model.profile import Applied
from appliance.switch.admission.findings import (
    GIB,
    Level,
    PreflightFinding,
    amount_of,
    fine,
    named,
    refuse,
    warn,
)
from appliance.switch.admission.prediction import Prediction
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.requirement import (
    MemoryRequirement,
    applicable_peak,
    has_sizes,
    spread_over,
    usable_bytes,
    used,
)
from appliance.switch.need import BoxNeed, Source

_OF_GPUS: Final = frozenset({fit.WEIGHTS, fit.POOL, fit.VRAM})
_SIGNIFICANT_BYTES: Final = 256 << 20
"""Memory without a known holder that is not reported: the driver itself holds about as much."""


def vram_findings(
    applied: Applied,
    need: BoxNeed,
    requirement: MemoryRequirement,
    prediction: Prediction,
    lacking: Iterable[Shortfall],
) -> Iterator[PreflightFinding]:
    """Yield findings on the GPU memory for `applied`, whose GPUs can be read.

    Args:
        applied: The profile.
        need: What it needs here, for people.
        requirement: The same for the gate.
        prediction: The box once what leaves has ended.
        lacking: What the figures of the prediction lack.
    """
    ours = used(requirement, prediction.devices)
    readable = [d for d in ours if has_sizes(d)]
    short = [s for s in lacking if s.kind in _OF_GPUS]
    if (trouble := _too_large(applied, need, requirement, ours, short)) is not None:
        yield refuse(trouble)
        return
    yield from _holder_findings(requirement, prediction, readable, short)
    if not readable:
        return
    total = sum(map(usable_bytes, readable))
    told = f"needs {need.amount} of VRAM ({need.label})"
    if need.source is Source.UNKNOWN:
        yield fine(told, need.source)
    elif need.source is Source.ESTIMATE and (need.vram_bytes or 0) > total:
        text = f"{told}, the GPUs have {_gib(total)}: it may not fit"
        yield warn(text, need.source, need.vram_bytes)
    else:
        yield fine(f"{told}, {_gib(total)} total", need.source, need.vram_bytes)
    if (tight := _no_cache(applied, need, requirement, ours)) is not None:
        yield warn(tight)


def _no_cache(
    applied: Applied,
    need: BoxNeed,
    requirement: MemoryRequirement,
    ours: Sequence[DeviceMemory],
) -> str | None:
    """Return why the engine's share may not hold the context of the profile; None: it does."""
    if need.fraction is None or applied.estimate is None or not _is_untried(requirement, ours):
        return None
    wanted, room = applied.estimate.vram_bytes, _room(need, requirement, ours)
    if wanted <= room:
        return None
    limit = _limit(applied, need, room)
    return f"weights and cache need ≈{_gib(wanted)} GiB of VRAM (estimate), {limit}: lower ctx"


def _is_untried(requirement: MemoryRequirement, ours: Sequence[DeviceMemory]) -> bool:
    """Tell whether the profile was never seen on these GPUs, all of which can be read."""
    return all(map(has_sizes, ours)) and applicable_peak(requirement, ours) is None


def _gib(count_bytes: float) -> str:
    return f"{count_bytes / GIB:.1f}"


def _too_large(
    applied: Applied,
    need: BoxNeed,
    requirement: MemoryRequirement,
    ours: Sequence[DeviceMemory],
    short: Sequence[Shortfall],
) -> str | None:
    """Return why the profile cannot fit even on empty GPUs; None: it can, or need unknown."""
    final = next((s for s in short if s.final), None)
    if final is not None:
        return _impossible(need, requirement, ours, final)
    if applied.estimate is None or not _is_untried(requirement, ours):
        return None
    least, room = applied.estimate.least_vram_bytes, _room(need, requirement, ours)
    return None if least <= room else _at_least(least, _limit(applied, need, room))


def _impossible(
    need: BoxNeed,
    requirement: MemoryRequirement,
    ours: Sequence[DeviceMemory],
    short: Shortfall,
) -> str:
    wanted, present, margin = short.wanted_bytes, short.present_bytes, requirement.margin_bytes
    if short.kind == fit.WEIGHTS:
        return _at_least(wanted, f"the GPUs have {_gib(present)}")
    if short.kind == fit.POOL:
        where = f"the memory that GPU {short.index} shares with the host"
        return f"needs ≈{_gib(wanted)} GiB with its margin in {where}, which is {_gib(present)}"
    total = sum(map(usable_bytes, ours))
    if all(map(has_sizes, ours)) and (need.vram_bytes or 0) > total:
        return f"needs ≈{_gib(need.vram_bytes or 0)} GiB of VRAM, the GPUs have {_gib(total)}"
    share = wanted - margin
    reserve = "" if share > present else f", of which {size(margin)} stay free"
    where = f"GPU {short.index}, which has {_gib(present)}"
    return f"needs ≈{_gib(share)} GiB on {where}{reserve}"


def _at_least(least_bytes: int, limit: str) -> str:
    return f"needs at least ≈{_gib(least_bytes)} GiB of VRAM, {limit}"


def _room(need: BoxNeed, requirement: MemoryRequirement, ours: Sequence[DeviceMemory]) -> int:
    """Return the most that the engine takes of the GPUs it spreads over."""
    whole = sum(map(usable_bytes, spread_over(requirement, ours)))
    return whole if need.fraction is None else int(need.fraction * whole)


def _limit(applied: Applied, need: BoxNeed, room: int) -> str:
    if need.fraction is None:
        return f"the GPUs have {_gib(room)}"
    return f"{applied.engine} takes at most {_gib(room)} of the GPUs"


def _holder_findings(
    requirement: MemoryRequirement,
    prediction: Prediction,
    readable: Sequence[DeviceMemory],
    short: Sequence[Shortfall],
) -> Iterator[PreflightFinding]:
    """Yield findings on memory that no operation frees, with its process where that is known."""
    lists = prediction.devices, prediction.unit_of
    block = short[0] if short else fit.in_the_way(requirement, *lists)
    found = [
        *_of_holders(readable, block),
        *_of_nobody(readable, say=refuse if short else warn),
    ]
    yield from found
    if block is not None and not any(f.level is Level.REFUSE for f in found):
        yield refuse(_sentence(block))


def _of_holders(
    readable: Sequence[DeviceMemory], block: Shortfall | None
) -> Iterator[PreflightFinding]:
    for holder in _merged(readable):
        say = refuse if block is not None and _blocks(holder, block) else warn
        amount, profile = amount_of(holder), profile_of(holder.unit)
        if profile is not None:
            yield say(f"{amount} held by {profile}, which keeps it: appliance stop {profile}")
        else:
            yield say(f"{amount} held by {named(holder)}: stop it or wait")


def _blocks(holder: Holder, block: Shortfall) -> bool:
    """Tell whether this process prevents the start."""
    if block.kind == fit.REMAINS:
        return holder.unit == block.unit
    if block.kind == fit.STRANGERS:
        return fit.is_stranger(holder.unit, compute=holder.compute)
    return True


def _of_nobody(
    readable: Sequence[DeviceMemory], *, say: Callable[[str], PreflightFinding]
) -> Iterator[PreflightFinding]:
    for device in readable:
        # For a GPU with unified memory, the figure is what is used of the host's memory.
        unified = device.quality is Quality.UNIFIED
        nobodys = 0 if unified else device.unattributed_bytes or 0
        if nobodys > _SIGNIFICANT_BYTES:
            yield say(
                f"{_gib(nobodys)} GiB of GPU {device.index} held by no listed process:"
                " look with nvidia-smi, or reboot"
            )


def _sentence(block: Shortfall) -> str:
    """Return a sentence on the missing memory, where no holder is known."""
    gpu = f"GPU {block.index}"
    if block.kind == fit.REMAINS:
        return f"{block.unit} still has memory on {gpu}: stop it or wait"
    if block.kind == fit.STRANGERS:
        return f"the need is not known, and other processes compute on {gpu}: stop them or wait"
    if block.kind == fit.IN_USE:
        held = _gib(block.present_bytes)
        return f"the need is not known, and {held} GiB of {gpu} are in use: stop the programs that hold them"
    free = size_of_total(block.present_bytes, block.wanted_bytes)
    if block.kind == fit.POOL:
        return f"{free} would be free in the memory that {gpu} shares with the host"
    return f"{free} would be free on {gpu}"


def _merged(readable: Sequence[DeviceMemory]) -> tuple[Holder, ...]:
    """Return one entry for each process, however many GPUs it uses."""
    found: dict[int, Holder] = {}
    for holder in (h for device in readable for h in device.holders or ()):
        known = found.get(holder.pid)
        found[holder.pid] = holder if known is None else _together(known, holder)
    return tuple(found.values())


def _together(one: Holder, other: Holder) -> Holder:
    amounts = [h.held_bytes for h in (one, other) if h.held_bytes is not None]
    return replace(
        one,
        held_bytes=sum(amounts) if amounts else None,
        compute=one.compute or other.compute,
    )
