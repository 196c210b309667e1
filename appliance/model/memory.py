"""Memory at one instant, of the host and of its GPUs. All sizes are in bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class GpuState(StrEnum):
    """State of a GPU, or of all together; the values are those of `system.gpus.states`."""

    OK = "ok"
    NO_LIBRARY = "no-library"
    NO_DRIVER = "no-driver"
    MISMATCH = "mismatch"
    """Driver and library differ after an upgrade; running models continue, nothing new starts."""
    LOST = "lost"
    """One GPU or more fell off the bus; the others are listed."""
    DEVICE = "device"
    """Driver or one GPU or more fails in another way."""
    HUNG = "hung"
    """The driver does not answer."""
    READER = "reader"
    """Failure of the program that reads the GPUs; nothing is known about them."""


class Quality(StrEnum):
    """Quality of a reading of one device's memory: what the reading proves to an admission."""

    EXACT = "exact"
    """Exact figure: one reading that shows enough free memory is proof."""
    UNIFIED = "unified"
    """Memory shared with the host, where every program allocates: a second reading has to agree."""
    NUMA = "numa"
    """Memory of a NUMA node that keeps pages after their process has ended: a second reading has to
    agree."""
    OPAQUE = "opaque"
    """Meaningless figures: no reading admits a start by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds memory of a GPU."""

    pid: int
    held_bytes: int | None
    """Bytes that the process holds; None: the driver does not say."""
    comm: str
    """Name of the process's program; empty: the process has ended, or this process may not look."""
    user: str
    unit: str
    """Name of the process's systemd unit; empty for none."""
    compute: bool = True
    """Whether the process computes; False: it only draws (an X server, a desktop)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one GPU. The UUID is its identity: the index moves when the set of GPUs changes."""

    index: int
    """NVML index; for AMD's cards, the position in the order of PCI addresses."""
    uuid: str
    """UUID of the GPU; empty: the driver does not tell even that."""
    name: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    """Bytes in use, without those that the driver reserves where it tells the two apart."""
    reserved_bytes: int = 0
    """Bytes that the driver keeps for itself; 0 where it does not say."""
    quality: Quality = Quality.EXACT
    problem: str = ""
    """Reason why the GPU is opaque or does not work, as a phrase; empty: no problem."""
    state: GpuState = GpuState.OK
    """State of this GPU; if LOST or DEVICE, the GPU does not work and its sizes are zero."""
    holders: Sequence[Holder] | None = None
    """Processes that hold memory of the GPU; None: not asked for, or the driver has no such
    list."""

    @property
    def error_kind(self) -> str:
        """Return the state of a GPU that does not work, as a text; empty: the GPU works."""
        return "" if self.state is GpuState.OK else self.state

    @property
    def processes(self) -> Sequence[Holder] | None:
        """Return the processes that hold memory; None as in `holders`."""
        return self.holders

    @property
    def unattributed_bytes(self) -> int | None:
        """Return used bytes that no listed process accounts for; None: processes not listed."""
        if self.holders is None or any(h.held_bytes is None for h in self.holders):
            return None
        return max(0, self.used_bytes - sum(h.held_bytes or 0 for h in self.holders))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Memory of the GPUs of this machine, by index."""

    devices: Sequence[DeviceMemory] = ()
    """GPUs, including those that do not work; empty when none can be read."""
    state: GpuState = GpuState.OK
    """Worst state that matters for the machine; each GPU's own is in `devices`."""
    reason: str | None = None
    """Reason why some GPUs cannot be read, as a sentence; None: all were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Main memory."""

    total_bytes: int
    available_bytes: int
    """Bytes that a new program can have without swapping (MemAvailable of proc(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemory:
    """Main memory that the processes of a control group have, each page once per process."""

    resident_bytes: int
    """Bytes of VmRSS in proc(5), including file pages such as those of a mapped model."""
    locked_bytes: int
    """Bytes of VmLck: those that mlock(2) has really locked."""
    pinned_bytes: int
    """Resident bytes that the kernel cannot drop, at most: anonymous, shared and locked memory
    (swap aside). The rest are file pages that can be read from disk again."""
    pids: Sequence[int]
    """Processes of the group; empty: the group has none, or does not exist."""
