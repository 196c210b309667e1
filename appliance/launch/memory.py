"""Whether memory has come back: decisions of the gate on readings, without I/O."""

from __future__ import annotations

from appliance.launch.sizes import size, size_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from appliance.launch.gpus import Device

MARGIN_BYTES = 256 << 20
"""Kept free beyond the need when the unit does not say: the driver's context on a GPU takes
some hundred MiB that no model file shows."""
_NEARLY_EMPTY_BYTES = 1 << 30
"""Used by a desktop and the driver itself, on a GPU that no model is on."""


class Shortfall:
    """What is missing. `text` is for people."""

    __slots__ = ("final", "text")

    def __init__(self, text: str, *, final: bool = False) -> None:
        self.text = text
        self.final = final
        """True: no wait can help, the machine is too small."""


class Want:
    """What a backend needs, in bytes. None: not declared, hence unknown."""

    __slots__ = ("gpus", "margin", "ram", "vram")

    def __init__(
        self,
        *,
        ram: int | None = None,
        vram: int | None = None,
        gpus: tuple[int, ...] | None = (),
        margin: int = MARGIN_BYTES,
    ) -> None:
        self.ram = ram
        self.vram = vram
        """Over all claimed devices together."""
        self.gpus = gpus
        """Claimed NVML indexes; None: all there are; empty: none."""
        self.margin = margin

    @property
    def claims_gpus(self) -> bool:
        """Whether the GPUs matter at all."""
        return self.gpus is None or bool(self.gpus)


def ram_shortfall(want: Want, *, available: int, total: int) -> Shortfall | None:
    """What host memory (MemAvailable, MemTotal) lacks; None: enough."""
    if want.ram is None:
        return None
    wanted = want.ram + want.margin
    if wanted > total:
        text = f"needs {size(wanted)} of RAM with its margin, the machine has {size(total)}"
        return Shortfall(text, final=True)
    if available >= wanted:
        return None
    return Shortfall(f"{size_of(available, wanted)} of RAM free")


def claimed(want: Want, devices: Sequence[Device]) -> list[Device]:
    """The devices that the claim covers, of those that are there."""
    return [d for d in devices if want.gpus is None or d.index in want.gpus]


def vram_shortfall(want: Want, devices: Sequence[Device]) -> Shortfall | None:
    """What the claimed GPUs lack; None: every one of them can take its share.

    The need is spread evenly. With an unknown need any process that computes there is in the way.
    """
    ours = claimed(want, devices)
    missing = sorted(set(want.gpus or ()) - {d.index for d in ours})
    if missing or not ours:
        which = f"GPU {missing[0]}" if missing else "a GPU"
        return Shortfall(f"{which} is claimed, the driver shows {len(devices)} in all")
    if want.vram is None:
        return _occupied(ours)
    wanted = -(-want.vram // len(ours)) + want.margin
    for device in ours:
        if wanted > device.total:
            text = (
                f"needs {size(wanted)} with its margin on GPU {device.index},"
                f" which has {size(device.total)}"
            )
            return Shortfall(text, final=True)
    for device in ours:
        if device.free < wanted:
            return Shortfall(f"{size_of(device.free, wanted)} free on GPU {device.index}")
    return None


def _occupied(devices: Sequence[Device]) -> Shortfall | None:
    for device in devices:
        if device.processes is None:  # a virtual GPU's driver does not list them
            if device.used > _NEARLY_EMPTY_BYTES:
                return Shortfall(f"{size(device.used)} still in use on GPU {device.index}")
            continue
        computing = [p for p in device.processes if p.compute]
        if computing:
            count = f"{len(computing)} process{'es' if len(computing) > 1 else ''}"
            return Shortfall(f"{count} still on GPU {device.index}")
    return None
