"""Whether the GPUs have, and can get, the memory that a profile needs.

The rule is the gate's: a figure that is certain must fit, one that may be too large (an estimate,
the allowance on a peak) asks for at most the whole GPU less 1 GiB. So what is refused here would
have been refused by the gate, after the old model had been stopped.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from appliance.domain.memory import Holder, Quality
from appliance.domain.names import profile_of
from appliance.domain.need import Source
from appliance.domain.profile import Applied
from appliance.planning.admission.findings import (
    GIB,
    BoxFacts,
    Finding,
    amount_of,
    fine,
    named,
    refuse,
    warn,
)
from appliance.planning.need import BoxNeed, used_gpus
from appliance.planning.wording import size

NEVER_EMPTY_BYTES: Final = 1 << 30
"""What the driver and a desktop may hold of a GPU without a model."""
_SIGNIFICANT_BYTES: Final = 256 << 20
"""Less than this without an owner is the driver's own."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Memory of one GPU that will not come back by itself."""

    holders: tuple[Holder, ...]
    nobodys: int
    """Bytes of no process that is listed."""

    @property
    def held_bytes(self) -> int:
        return self.nobodys + sum(h.held_bytes or 0 for h in self.holders)


def vram_findings(
    applied: Applied, need: BoxNeed, box: BoxFacts, leaving: AbstractSet[str]
) -> Iterator[Finding]:
    """What speaks against starting `applied`, whose GPUs can be read.

    Args:
        applied: The profile.
        need: What it needs here.
        box: The box.
        leaving: Profiles whose memory is back before it starts.
    """
    present = box.gpu_total_bytes
    readable = [i for i in used_gpus(applied, tuple(present)) if _has_numbers(i, box)]
    capacity = {i: _capacity(i, box) for i in readable}
    total = sum(capacity.values())
    if (trouble := _too_large(applied, need, box, capacity)) is not None:
        yield refuse(trouble)
        return
    held = {i: _held(i, box, leaving) for i in readable}
    yield from _holder_findings(need, box, capacity, held)
    if not readable:
        return
    told = f"needs {need.amount} of VRAM ({need.label})"
    if need.source is Source.UNKNOWN:
        yield fine(told, need.source)
    elif need.source is Source.ESTIMATE and (need.vram_bytes or 0) > total:
        text = f"{told}, the GPUs have {_gib(total)}: it may not fit"
        yield warn(text, need.source, need.vram_bytes)
    else:
        yield fine(f"{told}, {_gib(total)} total", need.source, need.vram_bytes)
    if (tight := _no_cache(applied, need, capacity)) is not None:
        yield warn(tight)


def _no_cache(applied: Applied, need: BoxNeed, capacity: Mapping[int, int]) -> str | None:
    """Why the share that the engine takes may not hold the context that the profile asks for."""
    if need.fraction is None or applied.estimate is None:
        return None
    wanted, room = applied.estimate.vram_bytes, _room(need, capacity)
    if wanted <= room or not set(need.least_gpus) <= set(capacity):
        return None
    limit = _limit(applied, need, room)
    return f"weights and cache need ≈{_gib(wanted)} GiB of VRAM (estimate), {limit}: lower ctx"


def _gib(count_bytes: float) -> str:
    return f"{count_bytes / GIB:.1f}"


def _has_numbers(index: int, box: BoxFacts) -> bool:
    device = box.devices.get(index)
    return device is None or device.quality is not Quality.OPAQUE


def _capacity(index: int, box: BoxFacts) -> int:
    """What an empty GPU can give."""
    device = box.devices.get(index)
    reserved = 0 if device is None else device.reserved_bytes
    return box.gpu_total_bytes[index] - reserved


def _too_large(
    applied: Applied, need: BoxNeed, box: BoxFacts, capacity: Mapping[int, int]
) -> str | None:
    """Why it cannot fit even where nothing else is; None: it can, or nobody knows."""
    total = sum(capacity.values())
    if need.source is Source.DECLARED and set(need.gpus) <= set(capacity):
        wanted = need.vram_bytes or 0
        if wanted > total:
            return f"needs ≈{_gib(wanted)} GiB of VRAM, the GPUs have {_gib(total)}"
        for index, share in need.gpus.items():
            if share and share + box.margin_bytes > capacity[index]:
                return _one_too_small(index, share, capacity[index], box.margin_bytes)
    if need.source is Source.OBSERVED or not set(need.least_gpus) <= set(capacity):
        return None  # it has run here
    least, room = sum(need.least_gpus.values()), _room(need, capacity)
    if least <= room:
        return None
    return f"needs ≈{_gib(least)} GiB of VRAM for the weights alone, {_limit(applied, need, room)}"


def _room(need: BoxNeed, capacity: Mapping[int, int]) -> int:
    """What the engine will take at most of the GPUs it spreads over."""
    whole = sum(capacity.get(i, 0) for i, part in need.least_gpus.items() if part)
    return whole if need.fraction is None else int(need.fraction * whole)


def _limit(applied: Applied, need: BoxNeed, room: int) -> str:
    if need.fraction is None:
        return f"the GPUs have {_gib(room)}"
    return f"{applied.engine} takes at most {_gib(room)} of the GPUs"


def _one_too_small(index: int, share: int, capacity: int, margin: int) -> str:
    reserve = "" if share > capacity else f", of which {size(margin)} stay free"
    return f"needs ≈{_gib(share)} GiB on GPU {index}, which has {_gib(capacity)}{reserve}"


def _held(index: int, box: BoxFacts, leaving: AbstractSet[str]) -> _Held:
    holders = box.gpu_holders.get(index, ())
    staying = tuple(h for h in holders if profile_of(h.unit) not in leaving)
    device = box.devices.get(index)
    nobodys = 0 if device is None else device.unattributed_bytes or 0
    # What a driver counts a process for is not all that comes back when it ends.
    excused = NEVER_EMPTY_BYTES if len(staying) < len(holders) else _SIGNIFICANT_BYTES
    return _Held(staying, nobodys if nobodys > excused else 0)


def _holder_findings(
    need: BoxNeed, box: BoxFacts, capacity: Mapping[int, int], held: Mapping[int, _Held]
) -> Iterator[Finding]:
    """Each process whose memory no operation of ours gives back, and the rest."""
    enough = _fits(need, box, capacity, held)
    say = warn if enough else refuse
    for holder in _merged(held):
        amount = amount_of(holder)
        profile = profile_of(holder.unit)
        if profile is not None:
            yield say(f"{amount} held by {profile}, which keeps it: appliance stop {profile}")
        else:
            yield say(f"{amount} held by {named(holder)}: stop it or wait")
    for index, one in held.items():
        if one.nobodys:
            yield say(
                f"{_gib(one.nobodys)} GiB of GPU {index} held by no process that is listed:"
                " look with nvidia-smi, or reboot"
            )


def _merged(held: Mapping[int, _Held]) -> tuple[Holder, ...]:
    """One entry a process, whatever number of GPUs it is on."""
    found: dict[int, Holder] = {}
    for holder in (h for one in held.values() for h in one.holders):
        known = found.get(holder.pid)
        found[holder.pid] = holder if known is None else _together(known, holder)
    return tuple(found.values())


def _together(one: Holder, other: Holder) -> Holder:
    amounts = [h.held_bytes for h in (one, other) if h.held_bytes is not None]
    return Holder(
        pid=one.pid,
        held_bytes=sum(amounts) if amounts else None,
        comm=one.comm,
        user=one.user,
        unit=one.unit,
    )


def _fits(
    need: BoxNeed, box: BoxFacts, capacity: Mapping[int, int], held: Mapping[int, _Held]
) -> bool:
    """Whether it fits beside what stays. An estimate counts for its weights only."""
    if need.source is Source.UNKNOWN:
        return True  # the gate decides, which sees who computes
    room = {i: capacity[i] - one.held_bytes for i, one in held.items()}
    if need.source is Source.ESTIMATE:
        return sum(need.least_gpus.get(i, 0) for i in room) <= sum(room.values())
    margin = box.margin_bytes if need.source is Source.DECLARED else 0
    return all(
        _asked(need, wanted + margin, capacity[i]) <= room[i]
        for i, wanted in need.gpus.items()
        if i in room and wanted
    )


def _asked(need: BoxNeed, wanted: int, capacity: int) -> int:
    if need.source is Source.DECLARED:
        return wanted
    return min(wanted, capacity - NEVER_EMPTY_BYTES)
