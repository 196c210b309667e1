"""Claims: the devices that a profile owns while it runs.

A claim is a set of exclusive devices. Two profiles whose claims intersect never run together.

==============  ==================================================
``gpus``        devices
==============  ==================================================
``"all"``       ``gpu-all``
``[0, 1]``      ``gpu-0``, ``gpu-1``
``[]``          ``cpu`` (two models thrash the same cores)
shared          none: it may run beside the others
==============  ==================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

ALL_GPUS: Final = "gpu-all"
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One kernel flock that a running backend holds on /run/appliance-leases/NAME."""

    name: str
    exclusive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Set of devices that a profile owns alone: ``gpu-all``, ``gpu-N`` and ``cpu``."""

    devices: frozenset[str]

    @property
    def gpus(self) -> frozenset[str]:
        """Return the GPU devices of this claim."""
        return frozenset(d for d in self.devices if d != CPU)

    def intersects(self, other: "Claim") -> bool:
        """Tell whether two profiles with these claims must never run together."""
        if self.devices & other.devices:
            return True
        return (ALL_GPUS in self.devices and bool(other.gpus)) or (
            ALL_GPUS in other.devices and bool(self.gpus)
        )

    def leases(self) -> tuple[Lease, ...]:
        """Return the locks that make the claim hold in the kernel, in the order they are taken.

        A claim on single GPUs shares the lock on all of them, so that a claim on all GPUs
        excludes it without knowing how many GPUs there are.
        """
        if ALL_GPUS in self.devices:
            return (Lease(name=ALL_GPUS, exclusive=True),)
        shared = (Lease(name=ALL_GPUS, exclusive=False),) if self.gpus else ()
        return (*shared, *(Lease(name=d, exclusive=True) for d in sorted(self.devices)))


NOTHING: Final = Claim(devices=frozenset())
"""Claim of a profile that may run beside any other."""


def claim_on(gpus: Literal["all"] | Iterable[int]) -> Claim:
    """Return the claim on these GPUs, by NVML index; on the CPU when there are none."""
    if gpus == "all":
        return Claim(devices=frozenset({ALL_GPUS}))
    return Claim(devices=frozenset(f"gpu-{n}" for n in gpus) or frozenset({CPU}))


def gpu_indexes(claim: Claim) -> frozenset[int] | None:
    """Return the NVML indexes of the GPUs of a claim; None: all that there are."""
    if ALL_GPUS in claim.devices:
        return None
    return frozenset(int(d.removeprefix("gpu-")) for d in claim.gpus)
