"""What a backend needs of each device and of main memory: sums, without I/O.

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
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appliance.adapters.gpus.sampler_client import Device

MARGIN_BYTES = 256 << 20
"""Kept free beyond the need when the unit does not say: the driver's context on a GPU takes
some hundred MiB that no model file shows."""
NEVER_EMPTY_BYTES = 1 << 30
"""What a desktop and the driver may hold, on a GPU that no model is on."""
EXACT = "exact"
UNIFIED = "unified"
OPAQUE = "opaque"
"""Qualities of a reading that decide something here (`appliance.adapters.gpus.states`)."""


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


def demands(want: Want, devices: Sequence[Device]) -> list[Demand] | None:
    """For each used device what must be free there; None: the need is unknown."""
    ours = used(want, devices)
    if (seen := applicable(want, devices)) is not None:
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


def applicable(want: Want, devices: Sequence[Device]) -> Seen | None:
    """What was seen, if it was on these very GPUs and can be true."""
    seen = want.seen
    ours = used(want, devices)
    if seen is None or not ours or set(seen.gpus) != {d.uuid for d in ours}:
        return None
    plausible = all(seen.gpu_peaks.get(d.uuid, 0) <= usable(d) for d in ours if has_numbers(d))
    return seen if plausible else None


def _fractions(want: Want, ours: Sequence[Device], share: float) -> list[Demand]:
    """What an engine that takes a fixed share asks of each device.

    It takes its share of what CUDA calls the total, which is less by what the driver reserves.
    """
    return [
        Demand(-int(-share * d.total // 1), certain=int(share * usable(d)))
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


def usable(device: Device) -> int:
    """As much as any process could have of it, in bytes."""
    return device.total - device.reserved


def ram_demand(want: Want, total: int, devices: Sequence[Device]) -> Demand | None:
    """What of `total` bytes of main memory must be available, its margin left out.

    None: the need is unknown.
    """
    seen = want.seen if not want.uses_gpus else applicable(want, devices)
    if seen is not None and seen.ram is not None and (seen.ram_peak or 0) <= total:
        # The allowance is its margin.
        return Demand(max(0, seen.ram - want.margin), certain=seen.ram_peak or 0)
    return None if want.ram is None else Demand(want.ram, certain=want.ram)


def is_guess(want: Want, devices: Sequence[Device]) -> bool:
    """Whether the estimate is the best that is known."""
    better = want.vram is not None or want.fraction is not None
    return not better and want.estimate is not None and applicable(want, devices) is None
