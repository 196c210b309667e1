"""NVIDIA's GPUs, read through NVML: memory, figures for evidence, hardware, health. Imported by the sampler alone.

Any call in here may hang. The newest function for a figure is called first; a driver that is older reports
that it has none. Figures that a device or a driver lacks are left out. XID errors come from an event set of
NVML, which the driver fills without a waiting caller: it costs nothing between two requests, needs no right and names
the GPU. The kernel's log has the same errors as text, which only a member of its group may read.
"""

from __future__ import annotations

import contextlib
import os

from appliance.system.gpus.states import (
    DEVICE,
    EXACT,
    LOST,
    MISMATCH,
    NO_DRIVER,
    NO_LIBRARY,
    NUMA,
    OPAQUE,
    UNIFIED,
    DriverError,
)
from appliance.system.kernel.text_files import meminfo, node_meminfo, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
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


# --- evidence ------------------------------------------------------------------------

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

    def figure(name: str, *arguments: object) -> Any:
        function: Callable[..., Any] | None = getattr(nvml, name, None)
        try:
            return None if function is None else function(handle, *arguments)
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
            return None

    power, energy = figure("nvmlDeviceGetPowerUsage"), figure("nvmlDeviceGetTotalEnergyConsumption")
    reasons = figure(_REASONS[0])
    figures = {
        "sm_clock_mhz": figure("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": figure("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "power_w": None if power is None else power / 1e3,
        "temperature_c": figure("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "reasons": figure(_REASONS[1]) if reasons is None else reasons,
        "pcie_width": figure("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_generation": figure("nvmlDeviceGetCurrPcieLinkGeneration"),
        "energy_j": None if energy is None else energy / 1e3,
    }
    return {name: value for name, value in figures.items() if value is not None}


def driver_version(nvml: Any) -> str:
    """Return the driver's version (nvmlSystemGetDriverVersion); empty: unknown."""
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
        return ""


# --- health --------------------------------------------------------------------------

_WAIT_MS = 1
_MOST_EVENTS = 64
"""Limit of events taken at once; the rest are taken at the next request."""
_ACTIONS = {
    0: "none",
    1: "gpu-reset",
    2: "node-reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "system-reboot",
}
"""Names by NVML_GPU_RECOVERY_ACTION; a number without a name stands for itself."""
_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which bindings before 560 do not name."""
_WHOLE = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Members of nvmlValue_t by nvmlValueType_t, of whole numbers."""


def gpu_health(nvml: Any, handle: object) -> dict[str, Any]:
    """Return the figures of a device; a GPU that is lost meanwhile has none.

    Args:
        nvml: Module `pynvml`, initialised.
        handle: The device.
    """

    def figure(name: str, *arguments: object) -> Any:
        function = getattr(nvml, name, None)
        try:
            return None if function is None else function(handle, *arguments)
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
            return None

    rows = figure("nvmlDeviceGetRemappedRows")
    use = figure("nvmlDeviceGetUtilizationRates")
    figures = {
        "uncorrected_errors": figure(
            "nvmlDeviceGetTotalEccErrors",
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_AGGREGATE_ECC,
        ),
        "remap_pending": None if rows is None else bool(rows[2]),
        "remap_failed": None if rows is None else bool(rows[3]),
        "busy_share": None if use is None else use.gpu / 100,
        "memory_busy_share": None if use is None else use.memory / 100,
        "recovery_action": _recovery_action(figure("nvmlDeviceGetFieldValues", [_RECOVERY_ACTION])),
    }
    return {name: value for name, value in figures.items() if value is not None}


def _recovery_action(values: Any) -> str | None:
    """Return the action of a field's value; None: the device does not tell."""
    if values is None or values[0].nvmlReturn != 0:
        return None
    member = _WHOLE.get(int(values[0].valueType))
    if member is None:
        return None
    action = int(getattr(values[0].value, member))
    return _ACTIONS.get(action, f"action-{action}")


class ErrorEvents:
    """XID errors of all devices since this was made; none where the driver reports none.

    Args:
        nvml: Module `pynvml`, initialised.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._failures = (nvml.NVMLError, nvml.NVMLLibraryMismatchError)
        self._uuids: dict[int, str] = {}
        """UUIDs by handle: a GPU that is lost does not tell it."""
        try:
            self._events = nvml.nvmlEventSetCreate()
            count = nvml.nvmlDeviceGetCount()
        except self._failures:
            return
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = nvml.nvmlDeviceGetUUID(handle)
                nvml.nvmlDeviceRegisterEvents(
                    handle, nvml.nvmlEventTypeXidCriticalError, self._events
                )
            except self._failures:
                continue
            self._uuids[_address(handle)] = uuid

    def watched(self) -> list[str]:
        """Return the UUIDs of the devices whose errors are watched."""
        return list(self._uuids.values())

    def take(self) -> list[dict[str, Any]]:
        """Return the errors since the last call, oldest first, by the UUID of their device."""
        found: list[dict[str, Any]] = []
        while self._uuids and len(found) < _MOST_EVENTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, _WAIT_MS)
            except self._failures:
                break  # none any more; or a device is lost, which its own reading shows
            uuid = self._uuids.get(_address(event.device))
            if uuid is not None and event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                found.append({"uuid": uuid, "xid": int(event.eventData)})
        return found


def _address(handle: Any) -> int:
    """Return the address by which two handles of one device are equal."""
    import ctypes  # noqa: PLC0415 - loaded with the binding

    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


# --- memory, and the driver itself ---------------------------------------------------

_TEXTS = {
    NO_LIBRARY: "no NVIDIA driver library (libnvidia-ml.so.1) on this machine",
    NO_DRIVER: "the NVIDIA driver is not loaded (modprobe nvidia)",
    MISMATCH: "the NVIDIA driver and its library differ after an upgrade: reboot needed",
}
_LOST_TEXT = "the GPU is lost: it fell off the bus and needs a reset or a reboot"
_MIG_TEXT = "MIG divides it, and a whole GPU's figures say nothing about its parts"
_NO_PERMISSION_TEXT = "the driver does not permit this user to read its memory"

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")
_MIG_ENABLED = 1


def is_on_the_bus(root: str = "/") -> bool:
    """Tell whether an NVIDIA GPU is plugged in, with or without a driver."""
    devices = os.path.join(root, "sys/bus/pci/devices")
    try:
        names = os.listdir(devices)
    except OSError:
        return False
    return any(
        text_of(devices, name, "vendor") == _NVIDIA
        and text_of(devices, name, "class").startswith(_DISPLAY_CLASSES)
        for name in names
    )


class Driver:
    """Initialised NVML. Every method raises `DriverError`."""

    def __init__(self, root: str = "/") -> None:
        try:
            import pynvml  # noqa: PLC0415
        except ImportError as error:
            raise DriverError(NO_LIBRARY, "the package nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        self._root = root
        self._events: ErrorEvents | None = None
        # A function that the library lacks raises another error than NVMLError in the binding.
        self._errors = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)
        try:
            pynvml.nvmlInit()
        except self._errors as error:
            raise self._translated(error) from error

    def read(self, with_processes: bool) -> list[dict[str, Any]]:  # noqa: FBT001
        """Return every device, by NVML index."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._errors as error:
            raise self._translated(error) from error
        return [self._device(i, with_processes=with_processes) for i in range(count)]

    def evidence(self) -> list[dict[str, Any]]:
        """Return every device with its processes, its state beside its memory, and its health."""
        devices = self.read(True)  # noqa: FBT003 - as the sampler calls it
        for device in devices:
            if not device["kind"]:
                device["evidence"] = self._evidence(device["index"])
        return devices

    def _evidence(self, index: int) -> dict[str, Any]:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._errors:
            return {}  # lost since its memory was read
        return gpu_evidence(self._nvml, handle) | gpu_health(self._nvml, handle)

    def hardware(self) -> list[dict[str, Any]]:
        """Return every device with its kind beside its memory."""
        devices = self.read(False)  # noqa: FBT003 - as the sampler calls it
        for device in devices:
            if not device["kind"]:
                device["hardware"] = self._hardware(device["index"])
        return devices

    def _hardware(self, index: int) -> dict[str, Any]:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._errors:
            return {}  # lost since its memory was read
        return gpu_hardware(self._nvml, handle)

    def watch(self) -> None:
        """Have the driver keep errors from now on, for `errors`; again is the same."""
        if self._events is None:
            self._events = ErrorEvents(self._nvml)

    def errors(self) -> dict[str, Any]:
        """Return the devices that are watched, and their errors since the last call; empty: none is."""
        if self._events is None:
            return {}
        return {"watched": self._events.watched(), "errors": self._events.take()}

    def version(self) -> str:
        """Return the driver's version; empty: unknown."""
        return driver_version(self._nvml)

    def _translated(self, error: Exception) -> DriverError:
        nvml = self._nvml
        kinds = {
            nvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_LIBRARY,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED: NO_DRIVER,
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: MISMATCH,
        }
        kind = kinds.get(getattr(error, "value", None), DEVICE)
        return DriverError(kind, _TEXTS.get(kind) or f"the NVIDIA driver answers: {error}")

    def _device(self, index: int, *, with_processes: bool) -> dict[str, Any]:
        """Return one device. A failure on it is reported as the device's, unless it is the driver's."""
        nvml = self._nvml
        device = _unread(index)
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device["uuid"] = nvml.nvmlDeviceGetUUID(handle)
            device["name"] = nvml.nvmlDeviceGetName(handle)
            device |= self._memory(handle)
            if with_processes:
                device["processes"] = self._processes(handle)
        except self._errors as error:
            return device | self._failure(error)
        return device

    def _failure(self, error: Exception) -> dict[str, Any]:
        """Return why a device cannot be read. Raises `DriverError` when none can."""
        translated = self._translated(error)
        if translated.kind != DEVICE:
            raise translated from error
        no_figures: dict[str, Any] = {"quality": OPAQUE, "processes": None}
        value = getattr(error, "value", None)
        if value == self._nvml.NVML_ERROR_NO_PERMISSION:
            return no_figures | {"problem": _NO_PERMISSION_TEXT}
        if value == self._nvml.NVML_ERROR_GPU_IS_LOST:
            return no_figures | {"kind": LOST, "problem": _LOST_TEXT}
        return no_figures | {"kind": DEVICE, "problem": str(translated)}

    def _memory(self, handle: object) -> dict[str, Any]:
        memory = self._device_memory(handle)
        if memory is None or not memory["total"]:  # GB10, Jetson
            total, free = meminfo(self._root)
            memory = {"total": total, "free": free, "used": total - free, "quality": UNIFIED}
        elif (node := self._numa_node(handle)) is not None:
            memory |= _on_node(node, memory, root=self._root)
        if self._is_divided(handle):
            memory |= {"quality": OPAQUE, "problem": _MIG_TEXT}
        return memory

    def _device_memory(self, handle: object) -> dict[str, Any] | None:
        """Return the bytes of the device's own memory; None: it has none.

        NVML nvmlDeviceGetMemoryInfo_v2 counts the driver's reserve apart; before driver 510 the
        reserve is part of the used memory.
        """
        nvml = self._nvml
        too_old = (
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_ArgumentVersionMismatch,
        )
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
            reserved = memory.reserved
        except too_old:
            reserved = 0
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            except nvml.NVMLError_NotSupported:
                return None
        return {
            "total": memory.total,
            "free": memory.free,
            "used": memory.used,
            "reserved": reserved,
            "quality": EXACT,
        }

    def _numa_node(self, handle: object) -> int | None:
        """Return the memory's NUMA node (NVML nvmlDeviceGetNumaNodeId); None: it has none."""
        ask = getattr(self._nvml, "nvmlDeviceGetNumaNodeId", None)
        node = None if ask is None else self._optional(ask, handle)
        return None if node is None else int(node)

    def _is_divided(self, handle: object) -> bool:
        modes = self._optional(self._nvml.nvmlDeviceGetMigMode, handle)
        return modes is not None and modes[0] == _MIG_ENABLED

    def _optional(self, ask: Any, handle: object) -> Any:
        """Return the result of `ask`; None where this library or device has no such function."""
        nvml = self._nvml
        try:
            return ask(handle)
        except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
            return None

    def _processes(self, handle: object) -> list[dict[str, Any]] | None:
        """Return processes with memory on the device, each once; None: the driver has no list."""
        computing = self._running(handle, "Compute")
        if computing is None:
            return None
        drawing = self._running(handle, "Graphics") or []
        computing += self._running(handle, "MPSCompute") or []
        found = {p.pid: _process(p, compute=False) for p in drawing}
        found |= {p.pid: _process(p, compute=True) for p in computing}
        return list(found.values())

    def _running(self, handle: object, kind: str) -> list[Any] | None:
        """Return NVML nvmlDeviceGet<kind>RunningProcesses; None: no list, or not for us."""
        nvml = self._nvml
        for version in ("_v3", "_v2"):  # drivers before 510 have only the second one
            ask = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
            try:
                if ask is not None:
                    return list(ask(handle))
            except nvml.NVMLError_FunctionNotFound:
                continue
            except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
                return None
        return None


def _unread(index: int) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": "",
        "name": "",
        "total": 0,
        "free": 0,
        "used": 0,
        "reserved": 0,
        "quality": OPAQUE,
        "kind": "",
        "problem": "",
        "processes": None,
    }


def _process(process: Any, *, compute: bool) -> dict[str, Any]:
    return {"pid": process.pid, "bytes": process.usedGpuMemory, "compute": compute}


def _on_node(node: int, memory: dict[str, Any], *, root: str) -> dict[str, Any]:
    """Return the figures of the memory's NUMA node, whose file pages the kernel can free.

    Empty where the node cannot be the device's own: a node with processors is the host's.
    """
    found = node_meminfo(node, root)
    if found is None:
        return {}
    total = memory["total"]
    free = min(max(memory["free"], found), total)
    return {"free": free, "used": max(0, total - free - memory["reserved"]), "quality": NUMA}
