"""Child process that asks the GPUs' driver, so that a driver that hangs can be abandoned.

Run by its path: ``python -I …/sampler.py [ROOT [watch]]``. The program reads a word a line from standard input,
``memory``, ``processes``, ``evidence`` or ``hardware``, and answers each with one line of JSON::

    {"error": null, "devices": [{"index": 0, "uuid": "GPU-…", "name": "…", "total": 25769803776,
     "free": 25000000000, "used": 400000000, "reserved": 369803776, "quality": "exact",
     "kind": "", "problem": "", "processes": null}]}

``processes`` also fills ``"processes": [{"pid": 4121, "bytes": 1048576, "compute": true}]``,
where ``bytes`` is null when the driver does not say; the list is null where there is none.

``evidence`` is ``processes`` with ``"driver": "580.95.05"`` beside the devices, and in each that works
``"evidence": {"sm_clock_mhz": 1695, "memory_clock_mhz": 9501, "power_w": 287.4, "temperature_c": 64,
"reasons": 4, "pcie_width": 16, "pcie_generation": 4, "energy_j": 81233411.2, "busy_share": 0.97,
"memory_busy_share": 0.61, "uncorrected_errors": 0, "remap_pending": false, "remap_failed": false,
"recovery_action": "none"}``, without what the driver does not tell; ``reasons`` are the bits of
nvmlDeviceGetCurrentClocksEventReasons.

``hardware`` is ``memory`` with, in each device that works, ``"hardware": {"capability": [8, 6], "nvlinks": 4}``,
without what the driver does not tell.

From the first ``evidence`` on, or from the start with ``watch``, every answer also has the XID errors since
the one before: ``"watched": ["GPU-…"], "errors": [{"uuid": "GPU-…", "xid": 48}]``; a device that is not in
``watched`` reports none.

A device that cannot be read has a ``kind`` (``lost``, ``device``) and a ``problem``; the others are
read all the same. When nothing can be read the answer is ``{"error": {"kind": …, "text": …},
"devices": []}`` and the program ends: a new process gets a new driver mapping, the old mapping would
keep answering through a driver upgrade. The program ends at end of file, too.
"""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    # Run by its path, with -I: in a checkout the package is not installed.
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from appliance.system.gpus.states import NO_DRIVER, NO_LIBRARY, DriverError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class GpuDriver(Protocol):
        """Driver of a maker's GPUs. Methods raise `DriverError`."""

        def read(self, with_processes: bool) -> list[dict[str, Any]]: ...  # noqa: FBT001

        def evidence(self) -> list[dict[str, Any]]: ...

        def hardware(self) -> list[dict[str, Any]]: ...

        def version(self) -> str: ...

        def watch(self) -> None: ...

        def errors(self) -> dict[str, Any]: ...


def main(root: str = "/", watch: str = "") -> int:
    """Answer requests until end of file or the first error.

    Args:
        root: Above /proc and /sys; another directory in tests.
        watch: Whether errors are kept from the start; empty: from the first request for evidence.
    """
    driver: GpuDriver | None = None
    try:
        driver = _driver(root)
        if watch:
            driver.watch()
        for line in sys.stdin:
            word = line.strip()
            if word == "evidence":
                driver.watch()
                document = {"driver": driver.version(), "devices": driver.evidence()}
            elif word == "hardware":
                document = {"devices": driver.hardware()}
            else:
                document = {"devices": driver.read(word == "processes")}
            _answer({"error": None, **document, **driver.errors()})
    except DriverError as error:
        errors = {} if driver is None else driver.errors()
        _answer({"error": {"kind": error.kind, "text": str(error)}, "devices": [], **errors})
        return 1
    except BrokenPipeError:
        return 0
    return 0


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _driver(root: str) -> GpuDriver:
    """Return NVIDIA's driver, or that of AMD's cards where there can be no NVIDIA GPU."""
    from appliance.system.gpus import nvml  # noqa: PLC0415

    try:
        return nvml.Driver(root)
    except DriverError as error:
        if error.kind not in {NO_LIBRARY, NO_DRIVER}:
            raise
        from appliance.system.gpus import amd  # noqa: PLC0415

        cards = amd.cards(root)
        # An NVIDIA driver that is only just being loaded must not pass its claim to the
        # processor's own graphics.
        if not cards or (error.kind == NO_DRIVER and nvml.is_on_the_bus(root)):
            raise
        return amd.Driver(cards, root)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
