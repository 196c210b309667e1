"""Readings for the memory rule: protocols that the gate's readings and the predictions satisfy.

For type checkers: nothing imports this module while a gate runs.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class ProcessReading(Protocol):
    """A process with memory on a GPU."""

    @property
    def pid(self) -> int:
        """As the kernel counts it."""

    @property
    def held_bytes(self) -> int | None:
        """None: the driver does not say."""

    @property
    def compute(self) -> bool:
        """False: it only draws."""


class DeviceReading(Protocol):
    """One GPU at one instant, or as it is predicted to be. Sizes are zero where unreadable."""

    @property
    def index(self) -> int:
        """NVML index; of AMD's cards, their place in the order of PCI addresses."""

    @property
    def uuid(self) -> str:
        """Its identity; empty when not even that can be read."""

    @property
    def total_bytes(self) -> int:
        """With what the driver reserves."""

    @property
    def free_bytes(self) -> int:
        """What a process could have now."""

    @property
    def used_bytes(self) -> int:
        """Without what the driver reserves, where it tells the two apart."""

    @property
    def reserved_bytes(self) -> int:
        """Kept by the driver for itself, where it says so."""

    @property
    def quality(self) -> str:
        """What the sizes are worth, a word of `appliance.adapters.gpus.states`."""

    @property
    def error_kind(self) -> str:
        """What is wrong with a GPU that does not work, a word from there; empty: it works."""

    @property
    def problem(self) -> str:
        """Why it is opaque or does not work, as a phrase; empty: no problem."""

    @property
    def processes(self) -> Sequence[ProcessReading] | None:
        """Those with memory on it; None: not asked for, or the driver has no such list."""


class HostReading(Protocol):
    """Main memory."""

    @property
    def total_bytes(self) -> int:
        """MemTotal of proc(5)."""

    @property
    def available_bytes(self) -> int:
        """MemAvailable of proc(5)."""


class Arguments(Protocol):
    """A parsed command line."""

    def has(self, switch: str, /) -> bool:
        """Tell whether a flag that stands alone was given."""

    def optional(self, flag: str, /) -> str | None:
        """Return the last value given; None: not given."""

    def whole(self, flag: str, /) -> int | None:
        """Return the last value as a whole number >= 0; None: not given."""


D = TypeVar("D", bound=DeviceReading)
