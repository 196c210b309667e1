"""Memory at one instant, of the host and of its GPUs. All sizes are in bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class GpuState(StrEnum):
    """State of a GPU, or of all together; the values are those of `adapters.gpus.states`."""

    OK = "ok"
    NO_LIBRARY = "no-library"
    NO_DRIVER = "no-driver"
    MISMATCH = "mismatch"
    """Driver and library differ after an upgrade; what runs goes on, nothing new starts."""
    LOST = "lost"
    """At least one GPU fell off the bus; the others are listed."""
    DEVICE = "device"
    """The driver, or at least one GPU, fails in another way."""
    HUNG = "hung"
    """The driver does not answer."""
    READER = "reader"
    """The program that reads them failed; nothing is known about the GPUs."""


class Quality(StrEnum):
    """Quality of a reading of one device's memory: what it proves to an admission."""

    EXACT = "exact"
    """One reading that proves it is enough."""
    UNIFIED = "unified"
    """The host's memory, where everybody allocates: a second reading has to agree."""
    NUMA = "numa"
    """A NUMA node that keeps pages after their process has ended: likewise."""
    OPAQUE = "opaque"
    """The figures mean nothing: no reading admits a start by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds memory of a GPU."""

    pid: int
    held_bytes: int | None
    """None: the driver does not say."""
    comm: str
    """Name of its program; empty: the process has ended, or this process may not look."""
    user: str
    unit: str
    """systemd unit; empty for none."""
    compute: bool = True
    """Whether the process computes; False: it only draws (an X server, a desktop)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """One GPU. The UUID is its identity: the index moves when the set of GPUs changes."""

    index: int
    """NVML index; of AMD's cards, their place in the order of PCI addresses."""
    uuid: str
    """Empty when not even that can be read."""
    name: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    """Without what the driver reserves, where it tells the two apart."""
    reserved_bytes: int = 0
    """Kept by the driver for itself, where it says so."""
    quality: Quality = Quality.EXACT
    problem: str = ""
    """Why the GPU is opaque, or does not work, as a phrase; empty: no problem."""
    state: GpuState = GpuState.OK
    """LOST or DEVICE: it does not work, and its sizes are zero."""
    holders: Sequence[Holder] | None = None
    """None: not asked for, or the driver has no such list."""

    @property
    def error_kind(self) -> str:
        """State of a GPU that does not work; empty: the GPU works."""
        return "" if self.state is GpuState.OK else self.state

    @property
    def processes(self) -> Sequence[Holder] | None:
        """The holders."""
        return self.holders

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
    """Also those that do not work; empty when none can be read."""
    state: GpuState = GpuState.OK
    """The worst state that matters for the machine; each GPU's own is in `devices`."""
    reason: str | None = None
    """Why not all of them can be read, as a sentence; None: they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Main memory."""

    total_bytes: int
    available_bytes: int
    """What a new program can have without swapping (MemAvailable of proc(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemory:
    """Main memory that the processes of a control group have, each page once per process."""

    resident_bytes: int
    """VmRSS of proc(5), file pages like those of a mapped model included."""
    locked_bytes: int
    """VmLck: what mlock(2) has really locked."""
    pinned_bytes: int
    """Of the resident bytes, at most those that the kernel cannot drop: anonymous, shared and
    locked memory (swap aside). The rest are file pages that come back from disk."""
    pids: Sequence[int]
    """Processes of the group; empty: the group has none, or does not exist."""
