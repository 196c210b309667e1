"""Fit of a requirement to readings of memory: missing memory, and processes that prevent a start.

The gate passes what it reads, the preflight what it predicts. On a GPU that shares the
host's memory one pool has to hold both needs.
"""

from __future__ import annotations

from appliance.switch.memory.requirement import (
    ESTIMATE,
    NEVER_EMPTY_BYTES,
    Demand,
    gpu_demands,
    has_sizes,
    ram_demand,
    source_of,
    spread_over,
    usable_bytes,
    used,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from appliance.switch.memory.readings import DeviceReading, HostReading
    from appliance.switch.memory.requirement import MemoryRequirement

EXACT = "exact"
UNIFIED = "unified"
"""Qualities of a reading that this rule distinguishes (`appliance.system.gpus.states`)."""
_BACKEND_UNITS = "appliance-backend-"

# Kinds of a shortfall.
MISSING = "missing"
"""Shortfall: a used GPU is missing."""
BROKEN = "broken"
"""Shortfall: a used GPU does not work."""
UNREADABLE = "unreadable"
"""Shortfall: the sizes of a used GPU mean nothing."""
RAM = "ram"
WEIGHTS = "weights"
"""Shortfall: the least that the model needs exceeds the GPUs: weights, and what is certain of the cache."""
POOL = "pool"
"""Shortfall of memory that GPUs and host share."""
VRAM = "vram"
REMAINS = "remains"
"""Shortfall: a unit that must hold nothing on a used GPU holds memory there."""
IN_USE = "in use"
"""Shortfall with an unknown need: memory is in use on a GPU without a list of processes."""
STRANGERS = "strangers"
"""Shortfall with an unknown need: other processes compute on a used GPU."""
OWNERLESS = "ownerless"
"""Shortfall with an unknown need: no living process holds the memory in use."""


class Shortfall:
    """Shortfall: memory that is missing, or a process that prevents the start."""

    __slots__ = (
        "count",
        "error_kind",
        "final",
        "guessed",
        "index",
        "kind",
        "present_bytes",
        "problem",
        "unit",
        "wanted_bytes",
    )

    def __init__(
        self,
        kind: str,
        *,
        index: int = -1,
        count: int = 0,
        wanted_bytes: int = 0,
        present_bytes: int = 0,
        final: bool = False,
        guessed: bool = False,
        unit: str = "",
        problem: str = "",
        error_kind: str = "",
    ) -> None:
        self.kind = kind
        """Kind of the shortfall: one of the constants above."""
        self.index = index
        """Index of the GPU, or of the first of several; -1: no GPU can be named."""
        self.count = count
        """Count of processes (STRANGERS), of GPUs present (MISSING) or of GPUs that get weights
        (WEIGHTS)."""
        self.wanted_bytes = wanted_bytes
        """Bytes that must be free, margin included."""
        self.present_bytes = present_bytes
        """Bytes that are free; if `final`, the size of the memory; of IN_USE and OWNERLESS, bytes
        in use."""
        self.final = final
        """Whether no wait can help on this machine."""
        self.guessed = guessed
        """Whether the figure is an estimate's."""
        self.unit = unit
        """Unit that still holds memory (REMAINS)."""
        self.problem = problem
        """Phrase about a BROKEN or UNREADABLE GPU; empty: not known."""
        self.error_kind = error_kind
        """Kind of error of a BROKEN GPU, as the reading has it."""


def is_proved_at_once(requirement: MemoryRequirement, devices: Sequence[DeviceReading]) -> bool:
    """Tell whether one reading is proof; otherwise a second one has to agree with it."""
    return all(d.quality == EXACT for d in used(requirement, devices) if has_sizes(d))


def held_bytes(
    requirement: MemoryRequirement, devices: Sequence[DeviceReading], host: HostReading
) -> int:
    """Return the bytes in use where this need has to be met."""
    if not requirement.uses_gpus:
        return host.total_bytes - host.available_bytes
    return sum(d.used_bytes for d in used(requirement, devices) if has_sizes(d))


def shortfalls(
    requirement: MemoryRequirement, devices: Sequence[DeviceReading], host: HostReading
) -> Iterator[Shortfall]:
    """Return the shortfalls by the figures; empty: enough is free. `in_the_way` names holders.

    Args:
        requirement: The need.
        devices: Every GPU of the machine; none are needed for a backend that uses none.
        host: Main memory at the same moment.
    """
    ours = used(requirement, devices)
    if requirement.uses_gpus and (short := _unusable(requirement, devices, ours)) is not None:
        yield short
        return
    pooled = any(d.quality == UNIFIED for d in ours)
    ram = ram_demand(requirement, host.total_bytes, devices)
    needs = gpu_demands(requirement, devices)
    # Where the need of a GPU is unknown, the need of main memory still counts in a shared pool.
    if ram is not None and (not pooled or needs is None):
        yield from _shortfall(RAM, ram, host.available_bytes, host.total_bytes)
    if needs is None:
        return
    guessed = source_of(requirement, devices) == ESTIMATE
    if guessed and (short := _too_large(requirement, ours)) is not None:
        yield short
        return
    yield from _pool_shortfall(ours, needs, ram)
    yield from _vram_shortfalls(ours, needs, guessed=guessed)


def _unusable(
    requirement: MemoryRequirement, devices: Sequence[DeviceReading], ours: Sequence[DeviceReading]
) -> Shortfall | None:
    """Return the shortfall of a used GPU that is absent, broken or unreadable; None: none."""
    missing = sorted(set(requirement.gpus or ()) - {d.index for d in devices})
    if missing or not devices:
        return Shortfall(MISSING, index=missing[0] if missing else -1, count=len(devices))
    for device in ours:
        index, problem = device.index, device.problem
        if device.error_kind:
            return Shortfall(BROKEN, index=index, problem=problem, error_kind=device.error_kind)
        if not has_sizes(device) and not requirement.assume_free:
            return Shortfall(UNREADABLE, index=index, problem=problem, final=True)
    return None


def _shortfall(
    kind: str,
    need: Demand,
    free_bytes: int,
    most_bytes: int,
    *,
    index: int = -1,
    guessed: bool = False,
) -> Iterator[Shortfall]:
    """Return the shortfall of one memory, too small or with too little free; None: neither."""
    certain, asked = need.certain_bytes, need.asked_bytes(most_bytes)
    if certain > most_bytes:
        yield Shortfall(
            kind, index=index, wanted_bytes=certain, present_bytes=most_bytes, final=True
        )
    elif free_bytes < asked:
        yield Shortfall(
            kind, index=index, wanted_bytes=asked, present_bytes=free_bytes, guessed=guessed
        )


def _too_large(requirement: MemoryRequirement, ours: Sequence[DeviceReading]) -> Shortfall | None:
    """Return the shortfall of a model whose least is larger than its GPUs; None: it fits."""
    least = requirement.least_bytes
    if least is None or not all(map(has_sizes, ours)):
        return None
    spread = spread_over(requirement, ours)
    room = sum(map(usable_bytes, spread))
    if least <= room:
        return None
    return Shortfall(
        WEIGHTS,
        index=spread[0].index,
        count=len(spread),
        wanted_bytes=least,
        present_bytes=room,
        final=True,
    )


def _pool_shortfall(
    ours: Sequence[DeviceReading], needs: Sequence[Demand], ram: Demand | None
) -> Iterator[Shortfall]:
    """Yield the shortfall of memory that GPUs and host share, for the sum of all needs there."""
    pool = [(d, n) for d, n in zip(ours, needs, strict=True) if d.quality == UNIFIED]
    if not pool:
        return
    device = min((d for d, _ in pool), key=lambda d: d.free_bytes)
    parts = [need for _, need in pool]
    if ram is not None:  # the margin of one of them is enough
        certain = max(0, ram.certain_bytes - ram.margin_bytes)
        parts.append(Demand(ram.need_bytes, certain_bytes=certain))
    whole = Demand(
        sum(n.need_bytes for n in parts),
        margin_bytes=sum(n.margin_bytes for n in parts),
        certain_bytes=sum(n.certain_bytes for n in parts),
    )
    most = usable_bytes(device)
    yield from _shortfall(POOL, whole, device.free_bytes, most, index=device.index)


def _vram_shortfalls(
    ours: Sequence[DeviceReading], needs: Sequence[Demand], *, guessed: bool
) -> Iterator[Shortfall]:
    """Yield the shortfalls of GPUs with memory of their own, first those that no wait can end."""
    found = [
        short
        for d, n in zip(ours, needs, strict=True)
        if has_sizes(d) and d.quality != UNIFIED
        for short in _shortfall(
            VRAM, n, d.free_bytes, usable_bytes(d), index=d.index, guessed=guessed
        )
    ]
    yield from sorted(found, key=lambda short: not short.final)


def needs_lists(requirement: MemoryRequirement, devices: Sequence[DeviceReading]) -> bool:
    """Tell whether processes on the used GPUs can prevent the start."""
    named = bool(requirement.rivals or requirement.own)
    return named or gpu_demands(requirement, devices) is None


def in_the_way(
    requirement: MemoryRequirement,
    devices: Sequence[DeviceReading],
    unit_of: Callable[[int], str],
) -> Shortfall | None:
    """Return the processes on the used GPUs that prevent a start although enough is free.

    Rivals, and an earlier run, must hold nothing. With an unknown need no other process may compute
    there either, except backends that are no rivals: those share the GPU on purpose.

    Args:
        requirement: The need.
        devices: A reading with process lists.
        unit_of: The systemd unit of a process; empty for none.
    """
    unknown = gpu_demands(requirement, devices) is None
    for device in used(requirement, devices):
        if device.processes is None:  # a virtual GPU's driver does not list them
            if unknown and has_sizes(device) and device.used_bytes > NEVER_EMPTY_BYTES:
                return Shortfall(IN_USE, index=device.index, present_bytes=device.used_bytes)
            continue
        units = [unit_of(p.pid) for p in device.processes]
        for unit in units:
            if unit and (unit in requirement.rivals or unit == requirement.own):
                return Shortfall(REMAINS, index=device.index, unit=unit)
        if not unknown:
            continue
        if requirement.strangers:
            if (short := _ownerless(device, units)) is not None:
                return short
            continue
        found = zip(device.processes, units, strict=True)
        if count := sum(is_stranger(unit, compute=p.compute) for p, unit in found):
            return Shortfall(STRANGERS, index=device.index, count=count)
    return None


def is_stranger(unit: str, *, compute: bool) -> bool:
    """Tell whether a process prevents the start of a backend whose need is unknown."""
    return compute and not unit.startswith(_BACKEND_UNITS)


def _ownerless(device: DeviceReading, units: Sequence[str]) -> Shortfall | None:
    """Return the shortfall of memory whose processes have ended or are not listed; None: none."""
    processes = device.processes or ()
    held = [p.held_bytes for p, unit in zip(processes, units, strict=True) if unit]
    sizes = [h for h in held if h is not None]
    rest = device.used_bytes - sum(sizes)
    if not has_sizes(device) or len(sizes) < len(held) or rest <= NEVER_EMPTY_BYTES:
        return None
    return Shortfall(OWNERLESS, index=device.index, present_bytes=rest)
