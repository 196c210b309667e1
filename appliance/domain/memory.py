"""Memory at one instant, of the host and of its GPUs. All sizes are in bytes."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds memory of a GPU."""

    pid: int
    held_bytes: int | None
    """None: the driver does not say."""
    comm: str
    """Empty: the process is gone, or out of sight."""
    user: str
    unit: str
    """systemd unit; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """One GPU. The UUID is its identity: the index moves when the set of GPUs changes."""

    index: int
    """NVML index."""
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    """Without what the driver reserves, where it tells the two apart."""
    exact: bool = True
    """False: an old driver, or memory shared with the host."""
    holders: Sequence[Holder] | None = None
    """None: not asked for, or the driver has no such list."""

    @property
    def unattributed_bytes(self) -> int | None:
        """Used bytes that no listed process accounts for; None: not asked, or not told."""
        if self.holders is None or any(h.held_bytes is None for h in self.holders):
            return None
        return max(0, self.used_bytes - sum(h.held_bytes or 0 for h in self.holders))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """The GPUs of this machine, by index."""

    devices: Sequence[DeviceMemory] = ()
    reason: str | None = None
    """Why there are none to show, as a sentence: no library, no driver …; None: they were read."""

    def totals(self) -> dict[int, int]:
        """Total bytes by NVML index."""
        return {d.index: d.total_bytes for d in self.devices}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Main memory."""

    total_bytes: int
    available_bytes: int
    """What a new program can have without swapping (MemAvailable of proc(5))."""
