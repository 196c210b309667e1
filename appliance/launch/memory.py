"""Whether memory has come back: decisions of the gate on readings, without I/O.

What must be free on a GPU, by what is known of the need, best first. All sizes are in bytes.

=========  ==================================  =======================================
source     wanted                              known to be too much when
=========  ==================================  =======================================
observed   what the file says (it holds the    never: it has run here
           allowance already)
declared   its share and the margin            that is more than the GPU has
fraction   that share of the GPU               never
estimate   its share and the margin            the weights alone exceed all GPUs
unknown    no process that computes there      never
=========  ==================================  =======================================

No GPU is ever quite empty. So a figure that is not certain asks for at most the whole GPU less
1 GiB: else an estimate, or an allowance on a peak, could wait for what cannot come.

On a GPU that shares the host's memory one pool has to hold both needs.
"""

from __future__ import annotations

from appliance.launch.sizes import size, size_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from appliance.launch.gpus import Device

MARGIN_BYTES = 256 << 20
"""Kept free beyond the need when the unit does not say: the driver's context on a GPU takes
some hundred MiB that no model file shows."""
NEVER_EMPTY_BYTES = 1 << 30
"""What a desktop and the driver may hold, on a GPU that no model is on."""
EXACT = "exact"
UNIFIED = "unified"
OPAQUE = "opaque"
"""Qualities of a reading that decide something here (`appliance.launch.sampler`)."""
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


class Seen:
    """The most that this very configuration was seen to hold, and what to keep free for it."""

    __slots__ = ("gpu_peaks", "gpus", "ram", "ram_peak")

    def __init__(
        self,
        *,
        gpus: Mapping[str, int],
        gpu_peaks: Mapping[str, int] | None = None,
        ram: int | None = None,
        ram_peak: int | None = None,
    ) -> None:
        self.gpus = gpus
        """What to keep free, by UUID."""
        self.gpu_peaks = gpu_peaks or {}
        """What was seen, by UUID; absent: not told."""
        self.ram = ram
        """None: not seen."""
        self.ram_peak = ram_peak


class Want:
    """What a backend needs, in bytes. None: not known from that source."""

    __slots__ = (
        "assume_free",
        "estimate",
        "fraction",
        "gpus",
        "least",
        "margin",
        "own",
        "ram",
        "rivals",
        "seen",
        "split",
        "strangers",
        "vram",
    )

    def __init__(
        self,
        *,
        ram: int | None = None,
        vram: int | None = None,
        fraction: float | None = None,
        estimate: int | None = None,
        least: int | None = None,
        seen: Seen | None = None,
        gpus: tuple[int, ...] | None = (),
        split: tuple[float, ...] = (),
        margin: int = MARGIN_BYTES,
        rivals: frozenset[str] = frozenset(),
        own: str = "",
        assume_free: bool = False,
        strangers: bool = False,
    ) -> None:
        self.ram = ram
        self.vram = vram
        """Declared, over all used devices together."""
        self.fraction = fraction
        """Share of each device that the engine takes, whatever the model is."""
        self.estimate = estimate
        """From the model's headers, over all used devices; may be an upper bound."""
        self.least = least
        """The weights alone, of the same estimate."""
        self.seen = seen
        self.gpus = gpus
        """Used NVML indexes in the order of `split`; None: all there are; empty: none."""
        self.split = split
        """How the need is spread over them; too short: the last ones hold none; empty: by size."""
        self.margin = margin
        self.rivals = rivals
        """Units that must hold nothing on a used device: they never run beside this one."""
        self.own = own
        """The unit that is to start: of an earlier run nothing may be left; empty: none."""
        self.assume_free = assume_free
        """Admit also where the numbers mean nothing."""
        self.strangers = strangers
        """With an unknown need: leave living processes alone that are nobody's we know; only
        memory without an owner is late."""

    @property
    def uses_gpus(self) -> bool:
        """Whether the GPUs matter at all."""
        return self.gpus is None or bool(self.gpus)


class Demand:
    """What must be free in one place: as much as is `wanted`, if that much is to be had there."""

    __slots__ = ("certain", "wanted")

    def __init__(self, wanted: int, *, certain: int = 0) -> None:
        self.wanted = wanted
        self.certain = certain
        """As much of it as is no guess."""

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.wanted + other.wanted, certain=self.certain + other.certain)

    def within(self, total: int) -> int:
        """What to ask for where there are `total` bytes."""
        return min(self.wanted, max(self.certain, total - NEVER_EMPTY_BYTES))


def used(want: Want, devices: Sequence[Device]) -> list[Device]:
    """The devices that are used, of those that are there, in the order of the split."""
    if want.gpus is None:
        return sorted(devices, key=lambda d: d.index)
    by_index = {d.index: d for d in devices}
    return [by_index[index] for index in want.gpus if index in by_index]


def has_numbers(device: Device) -> bool:
    """Whether the sizes in its reading mean anything."""
    return device.quality != OPAQUE


def is_proved_at_once(want: Want, devices: Sequence[Device]) -> bool:
    """Whether one reading is proof; otherwise a second one has to agree with it."""
    return all(d.quality == EXACT for d in used(want, devices) if has_numbers(d))


def held(want: Want, devices: Sequence[Device], host: Host) -> int:
    """What somebody holds where this need has to go."""
    if not want.uses_gpus:
        return host.total - host.available
    return sum(d.used for d in used(want, devices) if has_numbers(d))


def demands(want: Want, devices: Sequence[Device]) -> list[Demand] | None:
    """For each used device what must be free there; None: the need is unknown."""
    ours = used(want, devices)
    if (seen := _applicable(want, devices)) is not None:
        peaks = seen.gpu_peaks
        observed = [Demand(seen.gpus[d.uuid], certain=peaks.get(d.uuid, 0)) for d in ours]
        if want.fraction is None:
            return observed
        # Such an engine asks for all of its share before it takes any of it.
        pairs = zip(observed, _fractions(want, ours, want.fraction), strict=True)
        return [max(pair, key=lambda demand: demand.wanted) for pair in pairs]
    if want.vram is not None:
        shares = (s + want.margin for s in _shares(want, want.vram, ours))
        return [Demand(share, certain=share) for share in shares]
    if want.fraction is not None:
        return _fractions(want, ours, want.fraction)
    if want.estimate is not None:
        return [Demand(s + want.margin) for s in _shares(want, want.estimate, ours)]
    return None


def _applicable(want: Want, devices: Sequence[Device]) -> Seen | None:
    """What was seen, if it was on these very GPUs and can be true."""
    seen = want.seen
    ours = used(want, devices)
    if seen is None or not ours or set(seen.gpus) != {d.uuid for d in ours}:
        return None
    plausible = all(seen.gpu_peaks.get(d.uuid, 0) <= _usable(d) for d in ours if has_numbers(d))
    return seen if plausible else None


def _fractions(want: Want, ours: Sequence[Device], share: float) -> list[Demand]:
    """What an engine that takes a fixed share asks of each device.

    It takes its share of what CUDA calls the total, which is less by what the driver reserves.
    """
    return [
        Demand(-int(-share * d.total // 1), certain=int(share * _usable(d)))
        if weight
        else Demand(want.margin)
        for d, weight in zip(ours, _weights(want, ours), strict=True)
    ]


def _weights(want: Want, ours: Sequence[Device]) -> list[float]:
    """By the split; without one by the size of the devices, which is how llama.cpp splits."""
    weights = [*want.split[: len(ours)], *([0.0] * (len(ours) - len(want.split)))]
    if any(weights):
        return weights
    known = all(d.total for d in ours)
    return [float(d.total) if known else 1.0 for d in ours]


def _shares(want: Want, need: int, ours: Sequence[Device]) -> list[int]:
    weights = _weights(want, ours)
    total = sum(weights)
    return [-int(-need * weight // total) for weight in weights]


def _usable(device: Device) -> int:
    return device.total - device.reserved


def _ram_demand(want: Want, host: Host, devices: Sequence[Device]) -> Demand | None:
    """What must be available in main memory, its margin left out; None: the need is unknown."""
    seen = want.seen if not want.uses_gpus else _applicable(want, devices)
    if seen is not None and seen.ram is not None and (seen.ram_peak or 0) <= host.total:
        # The allowance is its margin.
        return Demand(max(0, seen.ram - want.margin), certain=seen.ram_peak or 0)
    return None if want.ram is None else Demand(want.ram, certain=want.ram)


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
    ram = _ram_demand(want, host, devices)
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
        or _vram_shortfall(ours, wanted, guessed=_is_guess(want, devices))
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
    if want.least is None or not _is_guess(want, ours) or not all(map(has_numbers, ours)):
        return None
    most = sum(map(_usable, ours))
    if want.least <= most:
        return None
    where = f"GPU {ours[0].index} has" if len(ours) == 1 else f"{len(ours)} GPUs together have"
    text = f"the weights alone need {size(want.least)}, {where} {size(most)}"
    return Shortfall(text, final=True)


def _is_guess(want: Want, devices: Sequence[Device]) -> bool:
    """Whether the estimate is the best that is known."""
    better = want.vram is not None or want.fraction is not None
    return not better and want.estimate is not None and _applicable(want, devices) is None


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
        if demand.certain > _usable(device):
            text = (
                f"needs {size(demand.certain)} with its margin on GPU {device.index},"
                f" which has {size(_usable(device))}"
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
