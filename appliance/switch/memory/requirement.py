"""Memory requirement of a backend before its start, for each GPU and for main memory.

Memory that must be free on a GPU, by what is known of the need, best first. All sizes are in bytes.

===========  ================================  ===========================================
source       must be free                      can never be had when
===========  ================================  ===========================================
observed     peak and allowance                never: it has run here
declared     its part and the margin           that is more than the GPU has
utilisation  that share of the GPU             never
estimate     its part and the margin           its least exceeds the GPUs that it goes to
unknown      no process that computes there    never
===========  ================================  ===========================================

For an engine that takes a share, the larger of its share and what was seen must be free. No GPU is ever
quite empty: a figure that is not certain (an estimate, an allowance) counts for at most what a process
could have of the GPU, less 1 GiB. Else a start could wait for what cannot come.

A requirement is handed to the gate as its command line: `arguments_of` writes it, `requirement_in` reads it.
"""

from __future__ import annotations

from appliance.switch.memory.peak import with_allowance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from appliance.switch.memory.peak import ObservedPeak
    from appliance.switch.memory.readings import D, DeviceReading, GateArguments


MARGIN_BYTES = 256 << 20
"""Bytes kept free beyond a need that was not observed, unless the settings say otherwise: the
driver's context on a GPU takes some hundred MiB that no model file shows."""
NEVER_EMPTY_BYTES = 1 << 30
"""Bytes that a desktop and the driver may hold of a GPU without a model."""
OPAQUE = "opaque"
"""Quality of a reading whose sizes mean nothing (`appliance.system.gpus.states`)."""

# Sources of a need; `appliance.switch.need.Source` has the same values.
OBSERVED = "observed"
DECLARED = "declared"
UTILISATION = "utilisation"
ESTIMATE = "estimate"
UNKNOWN = "unknown"


class MemoryRequirement:
    """Requirement of one backend by all sources. None: not known from that source."""

    __slots__ = (
        "assume_free",
        "estimate_bytes",
        "fraction",
        "gpus",
        "least_bytes",
        "margin_bytes",
        "own",
        "peak",
        "ram_bytes",
        "rivals",
        "split",
        "strangers",
        "vram_bytes",
    )

    def __init__(
        self,
        *,
        ram_bytes: int | None = None,
        vram_bytes: int | None = None,
        fraction: float | None = None,
        estimate_bytes: int | None = None,
        least_bytes: int | None = None,
        peak: ObservedPeak | None = None,
        gpus: tuple[int, ...] | None = (),
        split: tuple[float, ...] = (),
        margin_bytes: int | None = None,
        rivals: frozenset[str] = frozenset(),
        own: str = "",
        assume_free: bool = False,
        strangers: bool = False,
    ) -> None:
        self.ram_bytes = ram_bytes
        """Declared bytes of main memory."""
        self.vram_bytes = vram_bytes
        """Declared bytes over all used GPUs together."""
        self.fraction = fraction
        """Share of each GPU that the engine takes, whatever the model is."""
        self.estimate_bytes = estimate_bytes
        """Estimated bytes from the model's headers, over all used GPUs; may be an upper bound."""
        self.least_bytes = least_bytes
        """Bytes without which the model cannot run, from the same estimate."""
        self.peak = peak
        """Observed peak of this very configuration."""
        self.gpus = gpus
        """Used NVML indexes in the order of `split`; None: all GPUs; empty: none."""
        self.split = split
        """Weights by which the need is spread over the GPUs; too few: the last ones hold none;
        empty: by size."""
        self.margin_bytes = MARGIN_BYTES if margin_bytes is None else margin_bytes
        self.rivals = rivals
        """Units that must hold nothing on a used GPU: they never run beside this one."""
        self.own = own
        """Unit that is to start, of whose earlier run nothing may be left; empty: none."""
        self.assume_free = assume_free
        """Whether to admit a start also where the figures mean nothing."""
        self.strangers = strangers
        """Whether, with an unknown need, processes outside the backends' units may compute on the
        GPUs: only memory without a living process then delays the start."""

    @property
    def uses_gpus(self) -> bool:
        """Whether the backend uses GPUs."""
        return self.gpus is None or bool(self.gpus)


class Demand:
    """Demand of a backend in one place, in bytes."""

    __slots__ = ("certain_bytes", "margin_bytes", "need_bytes")

    def __init__(self, need_bytes: int, *, margin_bytes: int = 0, certain_bytes: int = 0) -> None:
        self.need_bytes = need_bytes
        self.margin_bytes = margin_bytes
        """Bytes to be free beyond the need."""
        self.certain_bytes = certain_bytes
        """Bytes of need and margin together that are no guess."""

    @property
    def wanted_bytes(self) -> int:
        """Return the bytes of need and margin together."""
        return self.need_bytes + self.margin_bytes

    def asked_bytes(self, usable_bytes: int) -> int:
        """Return the bytes that must be free where a process could have at most `usable_bytes`."""
        return min(self.wanted_bytes, max(self.certain_bytes, usable_bytes - NEVER_EMPTY_BYTES))


def certain_demand(need_bytes: int, margin_bytes: int) -> Demand:
    """Return a demand that is no guess, with its margin."""
    return Demand(need_bytes, margin_bytes=margin_bytes, certain_bytes=need_bytes + margin_bytes)


def observed_demand(peak_bytes: int) -> Demand:
    """Return the demand of an observed peak; the allowance takes the place of the margin."""
    return Demand(with_allowance(peak_bytes), certain_bytes=peak_bytes)


def used(requirement: MemoryRequirement, devices: Sequence[D]) -> Sequence[D]:
    """Return the used GPUs that are present, in the order of the split."""
    if requirement.gpus is None:
        return sorted(devices, key=lambda d: d.index)
    by_index = {d.index: d for d in devices}
    return [by_index[index] for index in requirement.gpus if index in by_index]


def has_sizes(device: DeviceReading) -> bool:
    """Tell whether the sizes in a reading mean anything."""
    return device.quality != OPAQUE


def usable_bytes(device: DeviceReading) -> int:
    """Return what a process could have of a GPU at most: all but what the driver reserves."""
    return device.total_bytes - device.reserved_bytes


def applicable_peak(
    requirement: MemoryRequirement, devices: Sequence[DeviceReading]
) -> ObservedPeak | None:
    """Return the observed peak; None: not seen, seen on other GPUs, or larger than a GPU."""
    peak, ours = requirement.peak, used(requirement, devices)
    if peak is None or not ours or set(peak.gpus) != {d.uuid for d in ours}:
        return None
    plausible = all(peak.gpus[d.uuid] <= usable_bytes(d) for d in ours if has_sizes(d))
    return peak if plausible else None


def gpu_demands(
    requirement: MemoryRequirement, devices: Sequence[DeviceReading]
) -> Sequence[Demand] | None:
    """Return the need on each used GPU; None: unknown."""
    ours, margin = used(requirement, devices), requirement.margin_bytes
    if (peak := applicable_peak(requirement, devices)) is not None:
        observed = [observed_demand(peak.gpus[d.uuid]) for d in ours]
        if requirement.fraction is None:
            return observed
        # Such an engine asks for all of its share before it takes any of it.
        return list(map(_larger, observed, _fractions(requirement, ours, requirement.fraction)))
    if requirement.vram_bytes is not None:
        parts = parts_of(requirement, requirement.vram_bytes, ours)
        return [certain_demand(part, margin) for part in parts]
    if requirement.fraction is not None:
        return _fractions(requirement, ours, requirement.fraction)
    if requirement.estimate_bytes is not None:
        parts = parts_of(requirement, requirement.estimate_bytes, ours)
        return [Demand(part, margin_bytes=margin) for part in parts]
    return None


def source_of(requirement: MemoryRequirement, devices: Sequence[DeviceReading]) -> str:
    """Return where the need of GPU memory is known from."""
    peak = applicable_peak(requirement, devices)
    if peak is not None:
        ours = used(requirement, devices)
        needs = gpu_demands(requirement, devices) or ()
        seen = (with_allowance(peak.gpus[d.uuid]) for d in ours)
        larger = any(n.wanted_bytes > s for n, s in zip(needs, seen, strict=True))
        return UTILISATION if larger else OBSERVED
    if requirement.vram_bytes is not None:
        return DECLARED
    if requirement.fraction is not None:
        return UTILISATION
    return UNKNOWN if requirement.estimate_bytes is None else ESTIMATE


def _larger(one: Demand, other: Demand) -> Demand:
    larger = max(one, other, key=lambda need: need.wanted_bytes)
    return Demand(
        larger.need_bytes,
        margin_bytes=larger.margin_bytes,
        certain_bytes=max(one.certain_bytes, other.certain_bytes),
    )


def _fractions(
    requirement: MemoryRequirement, ours: Sequence[DeviceReading], share: float
) -> Sequence[Demand]:
    """Return the bytes that an engine with a fixed share asks of each GPU.

    It takes its share of what CUDA calls the total, which is less by what the driver reserves.
    """
    return [
        Demand(-int(-share * d.total_bytes // 1), certain_bytes=int(share * usable_bytes(d)))
        if weight
        else Demand(0, margin_bytes=requirement.margin_bytes)
        for d, weight in zip(ours, _weights(requirement, ours), strict=True)
    ]


def _weights(requirement: MemoryRequirement, ours: Sequence[DeviceReading]) -> Sequence[float]:
    """Return the weights of the split; without one the sizes of the GPUs, as llama.cpp splits."""
    split = requirement.split[: len(ours)]
    if any(split):
        return [*split, *([0.0] * (len(ours) - len(split)))]
    known = all(d.total_bytes for d in ours)
    return [float(d.total_bytes) if known else 1.0 for d in ours]


def parts_of(
    requirement: MemoryRequirement, need_bytes: int, ours: Sequence[DeviceReading]
) -> Sequence[int]:
    """Spread `need_bytes` over the used GPUs, rounded up."""
    weights = _weights(requirement, ours)
    whole = sum(weights)
    return [-int(-need_bytes * weight // whole) for weight in weights]


def spread_over(requirement: MemoryRequirement, ours: Sequence[D]) -> Sequence[D]:
    """Return the used GPUs that hold a part of the need."""
    return [d for d, weight in zip(ours, _weights(requirement, ours), strict=True) if weight]


def observed_ram_bytes(
    requirement: MemoryRequirement, total_bytes: int, devices: Sequence[DeviceReading]
) -> int | None:
    """Return the observed peak of main memory; None: none that applies to this machine."""
    peak = applicable_peak(requirement, devices) if requirement.uses_gpus else requirement.peak
    seen = None if peak is None else peak.ram_bytes
    return None if seen is None or seen > total_bytes else seen


def ram_demand(
    requirement: MemoryRequirement, total_bytes: int, devices: Sequence[DeviceReading]
) -> Demand | None:
    """Return the demand on main memory of `total_bytes`; None: unknown."""
    seen = observed_ram_bytes(requirement, total_bytes, devices)
    if seen is not None:
        return observed_demand(seen)
    if requirement.ram_bytes is None:
        return None
    return certain_demand(requirement.ram_bytes, requirement.margin_bytes)


# --- the gate's command line -------------------------------------------------------------

GATE_FLAGS = (
    "gpus",
    "vram-bytes",
    "vram-fraction",
    "vram-estimate",
    "vram-least",
    "vram-split",
    "ram-bytes",
    "margin-bytes",
)
GATE_SWITCHES = ("assume-free",)


def arguments_of(requirement: MemoryRequirement) -> tuple[str, ...]:
    """Return the command line for `requirement`.

    Peak and margin are left out: the one is read at the start, the other is the box's.
    """
    if not requirement.uses_gpus:
        return _words(("--ram-bytes", requirement.ram_bytes))
    gpus, split = requirement.gpus, requirement.split
    return (
        *_words(
            ("--gpus", "all" if gpus is None else ",".join(map(str, gpus))),
            ("--vram-split", ",".join(map(_exact, split)) if split else None),
            ("--vram-bytes", requirement.vram_bytes),
            (
                "--vram-fraction",
                None if requirement.fraction is None else _exact(requirement.fraction),
            ),
            ("--vram-estimate", requirement.estimate_bytes),
            ("--vram-least", requirement.least_bytes),
        ),
        *(("--assume-free",) if requirement.assume_free else ()),
        *_words(("--ram-bytes", requirement.ram_bytes)),
    )


def _words(*options: tuple[str, str | int | None]) -> tuple[str, ...]:
    return tuple(
        word for flag, value in options if value is not None for word in (flag, str(value))
    )


def _exact(number: float) -> str:
    """Write a number as short as it can be read back unchanged."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def requirement_in(
    arguments: GateArguments,
    *,
    peak: ObservedPeak | None = None,
    rivals: frozenset[str] = frozenset(),
    own: str = "",
) -> MemoryRequirement:
    """Return the requirement that a command line states. Raises ValueError with a sentence."""
    return MemoryRequirement(
        ram_bytes=arguments.whole("ram-bytes"),
        vram_bytes=arguments.whole("vram-bytes"),
        fraction=_fraction(arguments.optional("vram-fraction")),
        estimate_bytes=arguments.whole("vram-estimate"),
        least_bytes=arguments.whole("vram-least"),
        peak=peak,
        gpus=_gpus(arguments.optional("gpus")),
        split=_split(arguments.optional("vram-split")),
        margin_bytes=arguments.whole("margin-bytes"),
        rivals=rivals,
        own=own,
        assume_free=arguments.has("assume-free"),
    )


def _fraction(text: str | None) -> float | None:
    if text is None:
        return None
    number = _number(text)
    if not 0.0 < number <= 1.0:
        raise ValueError(f"--vram-fraction is no share of a GPU: {text}")
    return number


def _split(text: str | None) -> tuple[float, ...]:
    """Parse weights such as ``3,1``; empty for none."""
    weights = tuple(map(_number, text.split(","))) if text else ()
    if not all(0.0 <= weight < float("inf") for weight in weights):
        raise ValueError(f"--vram-split is no list of weights: {text}")
    return weights


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _gpus(text: str | None) -> tuple[int, ...] | None:
    """Parse NVML indexes such as ``0,1``, order kept; None for ``all``; empty for no GPU."""
    if text == "all":
        return None
    if not text:
        return ()
    words = text.split(",")
    if not all(w.isascii() and w.isdigit() for w in words):
        raise ValueError(f"--gpus is neither all nor a list of indexes: {text}")
    return tuple(dict.fromkeys(map(int, words)))
