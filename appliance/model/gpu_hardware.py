"""Kind of a GPU: what decides which kernels of an engine run on it."""

from dataclasses import dataclass


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
