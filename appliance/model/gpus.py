"""GPUs beside their memory: their kind, errors, the driver's own verdict, and who holds memory beside the models."""

from dataclasses import dataclass

from appliance.model.memory import GpuState


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHardware:
    """Kind of one GPU. None: the driver does not say."""

    index: int
    """Index as in `DeviceMemory`."""
    name: str
    compute_capability: tuple[int, int] | None = None
    """CUDA compute capability, (8, 6) for 8.6 (NVML nvmlDeviceGetCudaComputeCapability)."""
    nvlinks: int | None = None
    """Number of NVLinks that are up (NVML nvmlDeviceGetNvLinkState); 0: the GPU has none."""

    @property
    def capability_text(self) -> str:
        """Return the compute capability as NVIDIA writes it, ``8.6``; empty: not told."""
        return ".".join(map(str, self.compute_capability or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """XID error that the driver told (NVML event XidCriticalError)."""

    xid: int
    unix_s: float
    """Time at which it was read, at most half a minute after it happened while somebody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignProcess:
    """Process of no backend that computes on a GPU."""

    pid: int
    name: str
    user: str
    held_bytes: int | None
    """None: the driver does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """Health of one GPU, of those that do not work too."""

    index: int
    uuid: str
    """UUID; empty: a GPU that does not tell even that, and never did."""
    name: str = ""
    state: GpuState = GpuState.OK
    problem: str = ""
    """Reason why it does not work, or why its figures mean nothing; empty: none."""
    errors: tuple[XidEvent, ...] | None = None
    """XID errors since the supervisor's start, oldest first; None: the driver tells none."""
    recovery_action: str | None = None
    """Action that the driver asks for: ``none``, ``gpu-reset``, ``node-reboot``, ``drain-p2p``,
    ``drain-and-reset``, ``bus-reset``, ``system-reboot``."""
    uncorrected_errors: int | None = None
    """Uncorrectable ECC errors of the device's lifetime."""
    remap_pending: bool | None = None
    """Whether rows of its memory wait for a reset to be remapped."""
    remap_failed: bool | None = None
    busy_share: float | None = None
    """Share of the last moments in which a kernel ran, 0 to 1."""
    memory_busy_share: float | None = None
    """Share of the last moments in which its memory was read or written, 0 to 1."""
    foreign: tuple[ForeignProcess, ...] | None = None
    """Processes of no backend that compute on it; None: the driver has no list."""
    unattributed_bytes: int | None = None
    """Used memory that no process accounts for; None: not known, or not a memory of its own."""
