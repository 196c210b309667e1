"""The child process that talks to the NVIDIA driver, so that a hang in it can be killed.

Run by its path: ``python -I …/sampler.py``. It reads a word a line from standard input,
``memory`` or ``processes``, and answers each with one line of JSON::

    {"error": null, "devices": [{"index": 0, "uuid": "GPU-…", "name": "…", "total": 25769803776,
     "free": 25000000000, "used": 400000000, "exact": true, "processes": null}]}

``processes`` also fills ``"processes": [{"pid": 4121, "bytes": 1048576, "compute": true}]``,
where ``bytes`` is null when the driver does not say; it stays null where it has no such list. After an error it answers
``{"error": {"kind": …, "text": …}, "devices": []}`` and ends: a fresh process gets a fresh
driver mapping, the old one would keep answering through a driver upgrade. It ends at end of file.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_LIBRARY = "no-library"
NO_DRIVER = "no-driver"
MISMATCH = "mismatch"
DEVICE = "device"

_TEXTS = {
    NO_LIBRARY: "no NVIDIA driver library (libnvidia-ml.so.1) on this machine",
    NO_DRIVER: "the NVIDIA driver is not loaded (modprobe nvidia)",
    MISMATCH: "the NVIDIA driver and its library differ after an upgrade: reboot needed",
}


class DriverError(Exception):
    """What the driver cannot do for us: `kind` and a sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def main() -> int:
    """Answer requests until end of file or the first error."""
    try:
        driver = Driver()
        for line in sys.stdin:
            devices = driver.read(with_processes=line.strip() == "processes")
            _answer({"error": None, "devices": devices})
    except DriverError as error:
        _answer({"error": {"kind": error.kind, "text": str(error)}, "devices": []})
        return 1
    except BrokenPipeError:
        return 0
    return 0


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


class Driver:
    """NVML, initialised. Every method raises `DriverError`."""

    def __init__(self) -> None:
        try:
            import pynvml  # noqa: PLC0415
        except ImportError as error:
            raise DriverError(NO_LIBRARY, "the package nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise self._translated(error) from error

    def read(self, *, with_processes: bool) -> list[dict[str, Any]]:
        """Every device, by NVML index."""
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
            return [self._device(i, with_processes=with_processes) for i in range(count)]
        # What the binding raises for a function that the library is too old to have is no NVMLError.
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
            raise self._translated(error) from error

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
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return {
            "index": index,
            "uuid": nvml.nvmlDeviceGetUUID(handle),
            "name": nvml.nvmlDeviceGetName(handle),
            **self._memory(handle),
            "processes": self._processes(handle) if with_processes else None,
        }

    def _memory(self, handle: object) -> dict[str, Any]:
        """Total, free and used bytes (NVML nvmlDeviceGetMemoryInfo_v2: used without reserved)."""
        nvml = self._nvml
        exact = True
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except nvml.NVMLError_FunctionNotFound:  # drivers before 510
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            exact = False
        except nvml.NVMLError_NotSupported:  # memory shared with the host: GB10, Jetson
            total, free = _host_memory()
            return {"total": total, "free": free, "used": total - free, "exact": False}
        return {"total": memory.total, "free": memory.free, "used": memory.used, "exact": exact}

    def _processes(self, handle: object) -> list[dict[str, Any]] | None:
        """Processes with memory on the device, one line each; None: the driver lists none."""
        computing = self._running(handle, "Compute")
        if computing is None:
            return None
        drawing = self._running(handle, "Graphics") or []
        computing += self._running(handle, "MPSCompute") or []
        found = {p.pid: _process(p, compute=False) for p in drawing}
        found |= {p.pid: _process(p, compute=True) for p in computing}
        return list(found.values())

    def _running(self, handle: object, kind: str) -> list[Any] | None:
        """NVML nvmlDeviceGet<kind>RunningProcesses; None: this driver or device has no such list."""
        nvml = self._nvml
        for version in ("_v3", "_v2"):  # drivers before 510 have only the second
            ask = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
            try:
                if ask is not None:
                    return list(ask(handle))
            except nvml.NVMLError_FunctionNotFound:
                continue
            except nvml.NVMLError_NotSupported:
                return None
        return None


def _process(process: Any, *, compute: bool) -> dict[str, Any]:
    return {"pid": process.pid, "bytes": process.usedGpuMemory, "compute": compute}


def _host_memory() -> tuple[int, int]:
    values = {}
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            values[name] = int(rest.split()[0]) << 10
    return values["MemTotal"], values["MemAvailable"]


if __name__ == "__main__":
    sys.exit(main())
