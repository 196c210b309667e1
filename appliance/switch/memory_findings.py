"""Findings on memory: whether GPUs and main memory have what a start needs, once the leaving profiles have ended.

The rule is the gate's (`switch.memory`), applied to the predicted box: what is refused here would
have been refused by the gate, after the old model had been stopped (in the words of `launch.shortfall_text`). Two rules are the preflight's own:

- A model whose least is larger than its GPUs is refused, even where a declared figure or the engine's
  share is small enough for the gate.
- The needs of all profiles that run together must fit into main memory, estimates and the share of an
  engine on the CPU included: a profile that runs may still take memory up to its need.

Prediction:

=========================================  ====================================================
what leaves                                is given back
=========================================  ====================================================
nothing on this GPU                        nothing: the reading itself counts
processes of known size                    that, and up to 1 GiB without a holder: what a driver
                                           counts a process for is not all that it had
a process of unknown size, or a profile    everything that no staying process is known to hold
that runs and that no driver lists
backends without GPUs                      main memory that the kernel cannot drop, and up to
                                           1 GiB beside it: page tables, buffers
backends with GPUs                         all main memory: what the driver pins for them, no
                                           process shows
=========================================  ====================================================

Where a row is a guess, the larger guess counts: the gate sees what really came back, and decides.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.model.amounts import size, size_of_total
from appliance.model.memory import DeviceMemory, GpuState, GroupMemory, Holder, HostMemory, Quality
from appliance.model.names import profile_of
from appliance.model.observed import Observed
from appliance.model.operations import Goal
from appliance.model.profile import Applied, Catalogue
from appliance.model.wording import joined
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.requirement import (
    NEVER_EMPTY_BYTES,
    MemoryRequirement,
    applicable_peak,
    has_sizes,
    spread_over,
    usable_bytes,
    used,
)
from appliance.switch.need import BoxNeed, Source, used_gpus
from appliance.switch.preflight_facts import (
    GIB,
    BoxFacts,
    Level,
    PreflightFinding,
    amount_of,
    fine,
    named,
    refuse,
    warn,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Profiles that end before the start."""

    names: AbstractSet[str] = frozenset()
    """Names of all leaving profiles."""
    running: Sequence[Applied] = ()
    """Leaving profiles that have a unit which is not idle."""
    groups: Mapping[str, GroupMemory] = field(default_factory=dict)
    """Main memory of leaving profiles, by profile; absent: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Memory as the gate will find it, by prediction."""

    devices: tuple[DeviceMemory, ...]
    """GPUs by index; `holders` are those that stay."""
    host: HostMemory

    def unit_of(self, pid: int) -> str:
        """Return the systemd unit of a process that holds memory of a GPU; empty: none."""
        holders = (h for d in self.devices for h in d.holders or ())
        return next((h.unit for h in holders if h.pid == pid), "")


def prediction_of(box: BoxFacts, leaving: Leaving) -> Prediction:
    """Return the memory of the box once `leaving` has ended."""
    now = HostMemory(
        total_bytes=box.ram_total_bytes,
        available_bytes=box.ram_total_bytes
        if box.ram_available_bytes is None
        else box.ram_available_bytes,
    )
    host = replace(now, available_bytes=_available(now, leaving))
    gained = host.available_bytes - now.available_bytes
    return Prediction(
        devices=tuple(_device(d, box, leaving, gained) for d in box.devices.values()), host=host
    )


def _available(now: HostMemory, leaving: Leaving) -> int:
    if not leaving.running:
        return now.available_bytes
    if any(applied.gpus or applied.name not in leaving.groups for applied in leaving.running):
        return now.total_bytes
    back = sum(leaving.groups[applied.name].pinned_bytes for applied in leaving.running)
    return min(now.total_bytes, now.available_bytes + back + NEVER_EMPTY_BYTES)


def _device(
    device: DeviceMemory, box: BoxFacts, leaving: Leaving, gained_bytes: int
) -> DeviceMemory:
    staying = tuple(h for h in device.holders or () if profile_of(h.unit) not in leaving.names)
    if device.quality is Quality.UNIFIED:
        back = gained_bytes
    else:
        back = min(_given_back(device, staying, box, leaving), device.used_bytes)
    return replace(
        device,
        used_bytes=max(0, device.used_bytes - back),
        free_bytes=max(device.free_bytes, min(usable_bytes(device), device.free_bytes + back)),
        holders=None if device.holders is None else staying,
    )


def _given_back(
    device: DeviceMemory, staying: Sequence[Holder], box: BoxFacts, leaving: Leaving
) -> int:
    going = [h for h in device.holders or () if h not in staying]
    sizes = [h.held_bytes for h in going]
    if None in sizes or any(_is_unlisted(applied, device, box) for applied in leaving.running):
        return device.used_bytes - sum(h.held_bytes or 0 for h in staying)
    back = sum(size or 0 for size in sizes)
    rest = device.unattributed_bytes or 0
    return back + rest if going and rest <= NEVER_EMPTY_BYTES else back


def _is_unlisted(applied: Applied, device: DeviceMemory, box: BoxFacts) -> bool:
    """Tell whether a profile uses this GPU and no list says how much memory it has there."""
    if not (applied.gpus == "all" or device.index in applied.gpus):
        return False
    listed = (h for d in box.devices.values() for h in d.holders or ())
    return device.holders is None or all(profile_of(h.unit) != applied.name for h in listed)


NOWHERE: Final = frozenset({GpuState.NO_LIBRARY, GpuState.NO_DRIVER})
"""States of a machine that has no GPU that could be used."""


def readiness(applied: Applied, box: BoxFacts) -> tuple[PreflightFinding, ...]:
    """Return findings on the GPUs of `applied`; after a refusal no figure means anything."""
    if box.gpu_state is GpuState.MISMATCH:
        return (refuse("driver/library mismatch after an upgrade: reboot needed"),)
    if box.gpu_state is GpuState.HUNG:
        text = f"{box.gpu_error or 'the GPU driver hangs'}: wait, or reboot (appliance status)"
        return (refuse(text),)
    if failure := reader_failure(box):
        return (refuse(failure),)
    if box.gpu_state in NOWHERE or (box.gpu_error is not None and not box.gpu_total_bytes):
        error = box.gpu_error or box.gpu_state
        return (
            refuse(
                f"{applied.name} needs a GPU, and none can be read: {error}{_remedy(applied, box)}"
            ),
        )
    return tuple(_device_findings(applied, box))


def _remedy(applied: Applied, box: BoxFacts) -> str:
    """Return what to do where no GPU is to be expected; empty: a driver is there and fails."""
    if box.gpu_state not in NOWHERE and box.gpu_error is not None:
        return ""
    file = applied.source_path.rpartition("/")[2]
    shared = ", beside shared = true" if not applied.claim.devices else ""
    return f"; to run it on the CPU: gpus = []{shared} in {file}, then sudo appliance apply"


def reader_failure(box: BoxFacts) -> str:
    """Return the refusal while the program that reads the GPUs fails; empty: it does not fail."""
    if box.gpu_state is not GpuState.READER:
        return ""
    return f"{box.gpu_error or 'no reading of the GPUs'}; a new reading may succeed: try again"


def _device_findings(applied: Applied, box: BoxFacts) -> Iterator[PreflightFinding]:
    present = sorted({*box.gpu_total_bytes, *box.devices})
    if not present:
        yield refuse(f"{applied.name} needs a GPU, the box has none{_remedy(applied, box)}")
        return
    used = used_gpus(applied, present)
    if missing := sorted(set(used) - set(present)):
        yield refuse(f"{applied.name} claims GPU {missing[0]}, the box has {len(present)}")
        return
    yield from _broken(used, box)
    yield from _opaque(applied, used, box)


def _broken(used: Iterable[int], box: BoxFacts) -> Iterator[PreflightFinding]:
    for index in used:
        device = box.devices.get(index)
        if device is not None and device.state is not GpuState.OK:
            yield refuse(f"GPU {index} cannot be used: {device.problem or device.state}")


def _opaque(applied: Applied, used: Iterable[int], box: BoxFacts) -> Iterator[PreflightFinding]:
    for index in used:
        device = box.devices.get(index)
        if device is None or device.quality is not Quality.OPAQUE:
            continue
        if device.state is not GpuState.OK:
            continue
        why = f" ({device.problem})" if device.problem else ""
        if applied.assume_free:
            yield warn(f"memory of GPU {index} cannot be read{why}: it is assumed to be free")
        else:
            file = applied.source_path.rpartition("/")[2]
            yield refuse(
                f"memory of GPU {index} cannot be read{why}: to start {applied.name} all the same, set"
                f" need.assume_free = true in {file}, then sudo appliance apply"
            )


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
    text = f"needs {need.amount} of VRAM ({need.label})"
    if need.source is Source.UNKNOWN:
        yield fine(text, need.source)
    elif need.source is Source.ESTIMATE and (need.vram_bytes or 0) > total:
        text = f"{text}, the GPUs have {_gib(total)}: it may not fit"
        yield warn(text, need.source, need.vram_bytes)
    else:
        yield fine(f"{text}, {_gib(total)} total", need.source, need.vram_bytes)
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
        *_of_unknown(readable, say=refuse if short else warn),
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


def _of_unknown(
    readable: Sequence[DeviceMemory], *, say: Callable[[str], PreflightFinding]
) -> Iterator[PreflightFinding]:
    for device in readable:
        # For a GPU with unified memory, the figure is what is used of the host's memory.
        unified = device.quality is Quality.UNIFIED
        unowned = 0 if unified else device.unattributed_bytes or 0
        if unowned > _SIGNIFICANT_BYTES:
            yield say(
                f"{_gib(unowned)} GiB of GPU {device.index} held by no listed process:"
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


_NOTHING: Final[Mapping[str, Shortfall]] = {}


def staying(goal: Goal, catalogue: Catalogue, observed: Observed) -> tuple[str, ...]:
    """Return the profiles that run now and that `goal` neither stops nor starts."""
    changed = {*goal.stop, *goal.start}
    return tuple(n for n in observed.busy() if n in catalogue and n not in changed)


def ram_findings(
    goal: Goal,
    needs: Mapping[str, BoxNeed],
    together: tuple[str, ...],
    box: BoxFacts,
    lacking: Mapping[str, Shortfall] = _NOTHING,
) -> Iterator[PreflightFinding]:
    """Return findings against starting `goal` beside the profiles that stay.

    Args:
        goal: What is to run.
        needs: Of every profile in `together`.
        together: What runs afterwards, the started ones first.
        box: Facts about the host.
        lacking: What the gate would find missing of main memory, by started profile.
    """
    if not goal.start:
        return
    known = {n: needs[n] for n in together if needs[n].ram_bytes}
    certain = _sum(n for n in known.values() if n.ram_source is not Source.ESTIMATE)
    whole = _sum(known.values())
    have = f"{box.ram_total_bytes / GIB:.1f}"
    who = f"{joined(together)} {'need' if together[1:] else 'needs'}"
    shared = " together" if together[1:] else ""
    if certain > box.ram_total_bytes:
        yield refuse(f"{who} ≈{certain / GIB:.1f} GiB of RAM{shared}, the box has {have}")
    elif lacking:
        yield from (refuse(_ram_sentence(n, s, box)) for n, s in lacking.items())
    elif whole > box.ram_total_bytes:
        text = f"{who} ≈{whole / GIB:.1f} GiB of RAM{shared} ({Source.ESTIMATE})"
        yield warn(f"{text}, the box has {have}: it may not fit", Source.ESTIMATE, whole)
    elif whole:
        sources = sorted({n.ram_source for n in known.values()}, key=list(Source).index)
        label = joined([str(source) for source in sources])
        text = f"needs ≈{whole / GIB:.1f} GiB of RAM ({label}), {have} total"
        yield fine(text, sources[-1], whole)


def _sum(needs: Iterable[BoxNeed]) -> int:
    return sum(n.ram_bytes or 0 for n in needs)


def _ram_sentence(name: str, short: Shortfall, box: BoxFacts) -> str:
    present = f"{short.present_bytes / GIB:.1f}"
    if not short.final:
        wanted = f"{short.wanted_bytes / GIB:.1f}"
        return (
            f"{name} needs ≈{wanted} GiB of RAM free, {present} GiB would be free:"
            " stop the programs that hold the rest"
        )
    need = f"{(short.wanted_bytes - box.margin_bytes) / GIB:.1f}"
    reserve = f"of which {size(box.margin_bytes)} stay free"
    return f"{name} needs ≈{need} GiB of RAM, the box has {present}, {reserve}"
