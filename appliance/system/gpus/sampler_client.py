"""Client of the sampler, the child process that reads the GPUs and may hang.

The child (`appliance.system.gpus.sampler`) starts in parallel with the parent's further work. The
parent can wait for an answer in slices, so that it stays responsive.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from appliance.model.json_reader import decode_json
from appliance.system.gpus import sampler
from appliance.system.gpus.states import READER
from appliance.system.kernel import text_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_ANSWER_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_CLOSING_LOOKS = 100
_CLOSING_PAUSE_S = 0.001
_WATCHING = ("/", "watch")
_DRIVER_VERSION = "/sys/module/nvidia/version"
_LIBRARY = "/libnvidia-ml.so"


class Process:
    """Process with memory on a device. `held_bytes` None: the driver does not say."""

    __slots__ = ("compute", "held_bytes", "pid")

    def __init__(self, document: dict[str, Any]) -> None:
        self.pid = int(document["pid"])
        self.held_bytes: int | None = document["bytes"]
        self.compute = bool(document["compute"])
        """Whether the process computes; False: it only draws (an X server, a desktop)."""


class Device:
    """GPU at one instant. Sizes are in bytes, and zero where they cannot be read."""

    __slots__ = (
        "error_kind",
        "evidence",
        "free_bytes",
        "hardware",
        "index",
        "name",
        "problem",
        "processes",
        "quality",
        "reserved_bytes",
        "total_bytes",
        "used_bytes",
        "uuid",
    )

    def __init__(self, document: dict[str, Any]) -> None:
        self.index = int(document["index"])
        self.uuid = str(document["uuid"])
        """Identity of the GPU, whose index can change; empty when it cannot be read."""
        self.name = str(document["name"])
        self.total_bytes = int(document["total"])
        self.free_bytes = int(document["free"])
        self.used_bytes = int(document["used"])
        """Bytes in use without `reserved_bytes`, where the driver separates the two."""
        self.reserved_bytes = int(document["reserved"])
        self.quality = str(document["quality"])
        """Quality of the sizes: EXACT, UNIFIED, NUMA or OPAQUE of `gpus.states`."""
        self.error_kind = str(document["kind"])
        """Error of the GPU, LOST or DEVICE: the GPU does not work, nothing can be started on it.
        Empty: it works."""
        self.problem = str(document["problem"])
        """Reason why the GPU is opaque or does not work, as a phrase; empty: no problem."""
        self.evidence: dict[str, Any] = document.get("evidence") or {}
        """Clocks, power, heat and link, as the sampler names them; empty: not requested."""
        self.hardware: dict[str, Any] = document.get("hardware") or {}
        """Compute capability and NVLinks, as the sampler names them; empty: not requested, or unknown."""
        listed = document["processes"]
        self.processes = None if listed is None else [Process(p) for p in listed]
        """Processes with memory on the GPU; None: not requested, or the driver has no such list."""


class Reading:
    """Reading of all GPUs, or why none can be read; `Device` has the fault of one GPU."""

    __slots__ = ("devices", "driver", "error_kind", "error_text", "errors", "watched")

    def __init__(
        self, devices: list[Device], error_kind: str = "", error_text: str = "", driver: str = ""
    ) -> None:
        self.devices = devices
        self.driver = driver
        """Version of the driver; empty: not requested, or unknown."""
        self.error_kind = error_kind
        """Kind of the error, of those in `appliance.system.gpus.states`; empty: no error."""
        self.error_text = error_text
        self.watched: list[str] = []
        """UUIDs of the GPUs whose XID errors are watched."""
        self.errors: list[tuple[str, int]] = []
        """XID errors since the reading before, each with the UUID of its GPU."""


class Sampler:
    """Running child. One request at a time: `ask`, then `answer` until it is not None.

    Args:
        watches: Whether the driver keeps XID errors from the start; else from the first evidence on.
    """

    def __init__(self, *, watches: bool = False) -> None:
        stdin, self._requests = os.pipe2(os.O_CLOEXEC)
        self._answers, stdout = os.pipe2(os.O_CLOEXEC)
        # Without site, as under a start script, the program finds the packages beside this one.
        isolated = "-IS" if sys.flags.no_site else "-I"
        argv = [sys.executable, isolated, str(sampler.__file__), *(_WATCHING if watches else ())]
        wiring = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
        environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
        try:
            self._pid = os.posix_spawn(argv[0], argv, environment, file_actions=wiring)
        except OSError:
            os.close(self._requests)
            os.close(self._answers)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        self._driver = _driver_version()
        self._buffer = b""
        self._closed = False
        self._gone = False

    def ask(
        self,
        *,
        with_processes: bool = False,
        with_evidence: bool = False,
        with_hardware: bool = False,
    ) -> None:
        """Send a request; evidence comes with processes, hardware without. If the child has ended, `answer` says so."""
        word = b"processes\n" if with_processes else b"memory\n"
        if with_evidence:
            word = b"evidence\n"
        elif with_hardware:
            word = b"hardware\n"
        try:
            os.write(self._requests, word)
        except BrokenPipeError:
            return  # An error that the child wrote before its end is still in the pipe.

    def answer(self, timeout_s: float) -> Reading | None:
        """Return the answer to the last request; None: no answer yet after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            chunk = os.read(self._answers, _CHUNK_BYTES)
            if not chunk or len(self._buffer) > _MAX_ANSWER_BYTES:
                return Reading([], READER, "the program that reads the GPUs has died")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _parsed(line)

    def is_outdated(self) -> bool:
        """Tell whether the driver or its library was replaced after the child had loaded it.

        The old mapping goes on answering, while every new program fails or reads other figures.
        """
        if _driver_version() != self._driver:
            return True
        # A library that an upgrade removes or replaces stays mapped as a deleted file.
        lines = text_files.read_all(f"{text_files.PROC}/{self._pid}/maps").splitlines()
        return any(_LIBRARY in line and line.endswith(" (deleted)") for line in lines)

    def close(self) -> bool:
        """End the child, even one that hangs; returns whether it has ended.

        A child stuck in the kernel (state D) ends when the driver returns, and is not waited for.
        """
        if not self._closed:
            self._closed = True
            os.close(self._requests)
            os.close(self._answers)
            if not self.gone():
                os.kill(self._pid, signal.SIGKILL)
        for _ in range(_CLOSING_LOOKS):
            if self.gone():
                return True
            time.sleep(_CLOSING_PAUSE_S)
        return self.gone()

    def gone(self) -> bool:
        """Tell whether the child has ended: only then may another be started.

        A driver that holds one child in the kernel would hold the next one too.
        """
        if not self._gone:
            try:
                self._gone = os.waitpid(self._pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # reaped elsewhere in this process
                self._gone = True
        return self._gone


def _driver_version() -> str:
    return text_files.read(_DRIVER_VERSION)


def _parsed(line: bytes) -> Reading:
    try:
        document = decode_json(line)
        devices = [Device(d) for d in document["devices"]]
        error = document["error"] or {"kind": "", "text": ""}
        driver = str(document.get("driver", ""))
        reading = Reading(devices, str(error["kind"]), str(error["text"]), driver)
        reading.watched = [str(uuid) for uuid in document.get("watched", ())]
        reading.errors = [(str(e["uuid"]), int(e["xid"])) for e in document.get("errors", ())]
    except (ValueError, KeyError, TypeError) as mistake:
        return Reading([], READER, f"the program that reads the GPUs said {mistake}")
    return reading
