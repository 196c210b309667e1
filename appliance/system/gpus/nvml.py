"""NVIDIA's GPUs, read through NVML. Imported by the sampler alone: any call in here may hang.

The newest function for a figure is called first; a driver that is older reports that it has none.
"""

from __future__ import annotations

import os

from appliance.system.gpus.nvml_evidence import driver_version, gpu_evidence
from appliance.system.gpus.nvml_hardware import gpu_hardware
from appliance.system.gpus.nvml_health import ErrorEvents, gpu_health
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
    from typing import Any

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
        """Return the driver's version; empty: not told."""
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
