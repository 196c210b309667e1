"""Health of an NVIDIA GPU: errors, the driver's verdict, memory errors, use. Imported by the sampler alone.

Figures that a device or a driver lacks are left out. XID errors come from an event set of NVML, which the
driver fills while nobody waits: it costs nothing between two requests, needs no right and names the GPU. The
kernel's log has the same errors as text, which only a member of its group may read.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
"""Names by NVML_GPU_RECOVERY_ACTION; a number without a name is told as it is."""
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

    def told(name: str, *arguments: object) -> Any:
        function = getattr(nvml, name, None)
        try:
            return None if function is None else function(handle, *arguments)
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
            return None

    rows = told("nvmlDeviceGetRemappedRows")
    use = told("nvmlDeviceGetUtilizationRates")
    figures = {
        "uncorrected_errors": told(
            "nvmlDeviceGetTotalEccErrors",
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_AGGREGATE_ECC,
        ),
        "remap_pending": None if rows is None else bool(rows[2]),
        "remap_failed": None if rows is None else bool(rows[3]),
        "busy_share": None if use is None else use.gpu / 100,
        "memory_busy_share": None if use is None else use.memory / 100,
        "recovery_action": _recovery_action(told("nvmlDeviceGetFieldValues", [_RECOVERY_ACTION])),
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
    """XID errors of all devices since this was made; none where the driver tells none.

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
        """Return the UUIDs of the devices whose errors are told."""
        return list(self._uuids.values())

    def take(self) -> list[dict[str, Any]]:
        """Return the errors since the last call, oldest first, by the UUID of their device."""
        found: list[dict[str, Any]] = []
        while self._uuids and len(found) < _MOST_EVENTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, _WAIT_MS)
            except self._failures:
                break  # none any more; or a device is lost, which its own reading tells
            uuid = self._uuids.get(_address(event.device))
            if uuid is not None and event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                found.append({"uuid": uuid, "xid": int(event.eventData)})
        return found


def _address(handle: Any) -> int:
    """Return the address by which two handles of one device are equal."""
    import ctypes  # noqa: PLC0415 - loaded with the binding

    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
