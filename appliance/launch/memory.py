"""Whether memory has come back: decisions of the gate on readings, without I/O.

On a GPU that shares the host's memory one pool has to hold both needs.
"""

from __future__ import annotations

from appliance.domain.amounts import size, size_of
from appliance.launch.demand import (
    EXACT,
    NEVER_EMPTY_BYTES,
    UNIFIED,
    Demand,
    demands,
    has_numbers,
    is_guess,
    ram_demand,
    usable,
    used,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appliance.adapters.gpus.sampler_client import Device
    from appliance.launch.demand import Want

_BACKEND_UNITS = "appliance-backend-"


class Shortfall:
    """What is missing. `text` is for people."""

    __slots__ = ("broken", "final", "rival", "text")

    def __init__(
        self, text: str, *, final: bool = False, rival: bool = False, broken: str = ""
    ) -> None:
        self.text = text
        self.final = final
        """True: no wait can help, as the machine is."""
        self.rival = rival
        """True: processes of a backend that must not run beside this one."""
        self.broken = broken
        """The kind of error of a device that does not work; empty: it is no such thing."""


class Host:
    """Main memory: MemTotal and MemAvailable of proc(5)."""

    __slots__ = ("available", "total")

    def __init__(self, *, available: int, total: int) -> None:
        self.available = available
        self.total = total


def is_proved_at_once(want: Want, devices: Sequence[Device]) -> bool:
    """Whether one reading is proof; otherwise a second one has to agree with it."""
    return all(d.quality == EXACT for d in used(want, devices) if has_numbers(d))


def held(want: Want, devices: Sequence[Device], host: Host) -> int:
    """What somebody holds where this need has to go."""
    if not want.uses_gpus:
        return host.total - host.available
    return sum(d.used for d in used(want, devices) if has_numbers(d))


def shortfall(want: Want, devices: Sequence[Device], host: Host) -> Shortfall | None:
    """What the numbers say is missing; None: nothing. Who holds it is `in_the_way`.

    Args:
        want: The need.
        devices: Every GPU of the machine; none are needed for a backend that uses none.
        host: Main memory at the same moment.
    """
    ours = used(want, devices)
    if want.uses_gpus:
        short = _missing(want, devices) or _unreadable(want, ours)
        if short is not None:
            return short
    pooled = any(d.quality == UNIFIED for d in ours)
    ram = ram_demand(want, host.total, devices)
    margin = Demand(want.margin, certain=want.margin)
    if ram is not None and not pooled and (short := _ram_shortfall(ram + margin, host)):
        return short
    wanted = demands(want, devices)
    if wanted is None:
        # In a pool the need for main memory counts at least.
        return _ram_shortfall(ram + margin, host) if pooled and ram is not None else None
    return (
        _too_large(want, ours)
        or _pool_shortfall(ours, wanted, ram)
        or _vram_shortfall(ours, wanted, guessed=is_guess(want, devices))
    )


def _missing(want: Want, devices: Sequence[Device]) -> Shortfall | None:
    """A used device that is not there."""
    missing = sorted(set(want.gpus or ()) - {d.index for d in devices})
    if devices and not missing:
        return None
    which = f"GPU {missing[0]}" if missing else "a GPU"
    return Shortfall(f"{which} is claimed, the driver shows {len(devices)} in all")


def _unreadable(want: Want, ours: Sequence[Device]) -> Shortfall | None:
    """A device that does not work, or whose numbers mean nothing: it is not known to be free."""
    for device in ours:
        if device.error_kind:
            return Shortfall(f"GPU {device.index}: {device.problem}", broken=device.error_kind)
        if not has_numbers(device) and not want.assume_free:
            why = device.problem or "its memory cannot be read"
            text = f"GPU {device.index}: {why} (need.assume_free = true starts it all the same)"
            return Shortfall(text, final=True)
    return None


def _ram_shortfall(demand: Demand, host: Host) -> Shortfall | None:
    if demand.certain > host.total:
        wanted, total = size(demand.certain), size(host.total)
        text = f"needs {wanted} of RAM with its margin, the machine has {total}"
        return Shortfall(text, final=True)
    wanted_bytes = demand.within(host.total)
    if host.available >= wanted_bytes:
        return None
    return Shortfall(f"{size_of(host.available, wanted_bytes)} of RAM free")


def _too_large(want: Want, ours: Sequence[Device]) -> Shortfall | None:
    """An estimate whose weights alone cannot be held by all GPUs together."""
    if want.least is None or not is_guess(want, ours) or not all(map(has_numbers, ours)):
        return None
    most = sum(map(usable, ours))
    if want.least <= most:
        return None
    where = f"GPU {ours[0].index} has" if len(ours) == 1 else f"{len(ours)} GPUs together have"
    text = f"the weights alone need {size(want.least)}, {where} {size(most)}"
    return Shortfall(text, final=True)


def _pool_shortfall(
    ours: Sequence[Device], wanted: Sequence[Demand], ram: Demand | None
) -> Shortfall | None:
    """Memory that GPUs and host share: every need that goes there, in one sum."""
    pool = [(d, w) for d, w in zip(ours, wanted, strict=True) if d.quality == UNIFIED]
    if not pool:
        return None
    device = min((d for d, _ in pool), key=lambda d: d.free)
    demand = sum((w for _, w in pool), ram or Demand(0))
    where = f"the memory that GPU {device.index} shares with the host"
    if demand.certain > device.total:
        wanted_text, total = size(demand.certain), size(device.total)
        text = f"needs {wanted_text} with its margin in {where}, which is {total}"
        return Shortfall(text, final=True)
    wanted_bytes = demand.within(device.total)
    if device.free >= wanted_bytes:
        return None
    return Shortfall(f"{size_of(device.free, wanted_bytes)} free in {where}")


def _vram_shortfall(
    ours: Sequence[Device], wanted: Sequence[Demand], *, guessed: bool
) -> Shortfall | None:
    own = [
        (d, w) for d, w in zip(ours, wanted, strict=True) if has_numbers(d) and d.quality != UNIFIED
    ]
    for device, demand in own:
        if demand.certain > usable(device):
            text = (
                f"needs {size(demand.certain)} with its margin on GPU {device.index},"
                f" which has {size(usable(device))}"
            )
            return Shortfall(text, final=True)
    for device, demand in own:
        wanted_bytes = demand.within(device.total)
        if device.free < wanted_bytes:
            text = f"{size_of(device.free, wanted_bytes)} free on GPU {device.index}"
            return Shortfall(f"{text}, by an estimate" if guessed else text)
    return None


def needs_lists(want: Want, devices: Sequence[Device]) -> bool:
    """Whether the processes on the used devices can stand in the way."""
    return bool(want.rivals or want.own) or demands(want, devices) is None


def in_the_way(
    want: Want, devices: Sequence[Device], unit_of: Callable[[int], str]
) -> Shortfall | None:
    """Processes on the used devices that forbid a start although enough is free; None: none.

    Rivals, and an earlier run, must hold nothing. With an unknown need nobody else may compute
    there either, but backends that are no rivals: those share the GPU on purpose.

    Args:
        want: The need.
        devices: A reading with process lists.
        unit_of: The systemd unit of a process; empty for none.
    """
    unknown = demands(want, devices) is None
    for device in used(want, devices):
        if device.processes is None:  # a virtual GPU's driver does not list them
            if unknown and has_numbers(device) and device.used > NEVER_EMPTY_BYTES:
                return Shortfall(f"{size(device.used)} still in use on GPU {device.index}")
            continue
        units = [unit_of(p.pid) for p in device.processes]
        found = [(u, p.compute) for u, p in zip(units, device.processes, strict=True)]
        for unit, _ in found:
            if unit and (unit in want.rivals or unit == want.own):
                text = f"{unit} still has memory on GPU {device.index}"
                return Shortfall(text, rival=unit != want.own)
        if unknown and want.strangers:
            if short := _ownerless(device, units):
                return short
            continue
        strangers = sum(c and not u.startswith(_BACKEND_UNITS) for u, c in found)
        if unknown and strangers:
            count = f"{strangers} process{'es' if strangers > 1 else ''}"
            return Shortfall(f"{count} still on GPU {device.index}")
    return None


def _ownerless(device: Device, units: Sequence[str]) -> Shortfall | None:
    """Memory of processes that are gone, or that nobody lists: it is still being given back."""
    processes = device.processes or []
    held = [p.held_bytes for p, unit in zip(processes, units, strict=True) if unit]
    sizes = [h for h in held if h is not None]
    rest = device.used - sum(sizes)
    if not has_numbers(device) or len(sizes) < len(held) or rest <= NEVER_EMPTY_BYTES:
        return None
    return Shortfall(f"{size(rest)} without an owner still on GPU {device.index}")
