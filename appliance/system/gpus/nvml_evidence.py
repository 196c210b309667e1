"""State of an NVIDIA GPU beside its memory: clocks, power, heat, link. Imported by the sampler alone.

A figure that a device or a driver lacks is left out. Names of functions are those of NVML.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
"""Function of driver 535 and later, and its older name."""


def gpu_evidence(nvml: Any, handle: object) -> dict[str, Any]:
    """Return the figures of a device; a GPU that is lost meanwhile has none.

    Args:
        nvml: Module `pynvml`, initialised.
        handle: The device.
    """

    def told(name: str, *arguments: object) -> Any:
        function: Callable[..., Any] | None = getattr(nvml, name, None)
        try:
            return None if function is None else function(handle, *arguments)
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
            return None

    power, energy = told("nvmlDeviceGetPowerUsage"), told("nvmlDeviceGetTotalEnergyConsumption")
    reasons = told(_REASONS[0])
    figures = {
        "sm_clock_mhz": told("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": told("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "power_w": None if power is None else power / 1e3,
        "temperature_c": told("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "reasons": told(_REASONS[1]) if reasons is None else reasons,
        "pcie_width": told("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_generation": told("nvmlDeviceGetCurrPcieLinkGeneration"),
        "energy_j": None if energy is None else energy / 1e3,
    }
    return {name: value for name, value in figures.items() if value is not None}


def driver_version(nvml: Any) -> str:
    """Return the driver's version (nvmlSystemGetDriverVersion); empty: not told."""
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
        return ""
