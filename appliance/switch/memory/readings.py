"""Readings for the memory rule: protocols that the gate's readings and the predictions satisfy.

For type checkers: nothing imports this module while a gate runs.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class ProcessReading(Protocol):
    """Process with memory on a GPU."""

    @property
    def pid(self) -> int:
        """Return the process ID."""

    @property
    def held_bytes(self) -> int | None:
        """Return the bytes that the process holds; None: the driver does not say."""

    @property
    def compute(self) -> bool:
        """Tell whether the process computes; False: it only draws."""


class DeviceReading(Protocol):
    """One GPU at one instant, or as predicted. Sizes are zero where they cannot be read."""

    @property
    def index(self) -> int:
        """Return the NVML index; for AMD's cards, the position in the order of PCI addresses."""

    @property
    def uuid(self) -> str:
        """Return the UUID, which identifies the GPU; empty: the driver does not report even that."""

    @property
    def total_bytes(self) -> int:
        """Return the size, including what the driver reserves."""

    @property
    def free_bytes(self) -> int:
        """Return the bytes that a process could have now."""

    @property
    def used_bytes(self) -> int:
        """Return the bytes in use; without those that the driver reserves, where known."""

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes that the driver keeps for itself, where it says so."""

    @property
    def quality(self) -> str:
        """Return the quality of the sizes, a constant of `appliance.system.gpus.states`."""

    @property
    def error_kind(self) -> str:
        """Return the error of a GPU that does not work, a constant from there; empty: it works."""

    @property
    def problem(self) -> str:
        """Return why the GPU is opaque or does not work, as a phrase; empty: no problem."""

    @property
    def processes(self) -> Sequence[ProcessReading] | None:
        """Return the processes with memory on the GPU; None: not read, or no list."""


class HostReading(Protocol):
    """Main memory."""

    @property
    def total_bytes(self) -> int:
        """Return MemTotal of proc(5), in bytes."""

    @property
    def available_bytes(self) -> int:
        """Return MemAvailable of proc(5), in bytes."""


class GateArguments(Protocol):
    """Parsed command line."""

    def has(self, switch: str, /) -> bool:
        """Tell whether a flag that stands alone was given."""

    def optional(self, flag: str, /) -> str | None:
        """Return the last value given; None: not given."""

    def whole(self, flag: str, /) -> int | None:
        """Return the last value as a whole number >= 0; None: not given."""


D = TypeVar("D", bound=DeviceReading)
