"""Kind of an NVIDIA GPU: its compute capability and links to other GPUs. Imported by the sampler alone.

What a device or a driver does not tell is left out. Names of functions are those of NVML.
"""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def gpu_hardware(nvml: Any, handle: object) -> dict[str, Any]:
    """Return ``capability``, a pair of numbers, and ``nvlinks``, the links that work; never raises.

    Args:
        nvml: Module `pynvml`, initialised.
        handle: The device.
    """
    found: dict[str, Any] = {}
    errors = (nvml.NVMLError, nvml.NVMLLibraryMismatchError)
    with contextlib.suppress(*errors):
        found["capability"] = list(nvml.nvmlDeviceGetCudaComputeCapability(handle))
    with contextlib.suppress(*errors):
        found["nvlinks"] = _working_links(nvml, handle)
    return found


def _working_links(nvml: Any, handle: object) -> int:
    """Return the number of NVLinks that are up; 0: the device has none."""
    count = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            count += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
        except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):
            break  # the device has no further link
    return count
