"""Readings of the GPUs, through a child process that may hang without taking us along.

The child is `appliance.launch.sampler`. Its Python program starts in parallel with whatever
its parent does next; a request can be waited for in slices, so that the parent stays awake.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from appliance.launch import sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_ANSWER_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class Process:
    """A process with memory on a device. `held_bytes` None: the driver does not say."""

    __slots__ = ("compute", "held_bytes", "pid")

    def __init__(self, document: dict[str, Any]) -> None:
        self.pid = int(document["pid"])
        self.held_bytes: int | None = document["bytes"]
        self.compute = bool(document["compute"])
        """False: it only draws (an X server, a desktop)."""


class Device:
    """One GPU at one instant. Sizes are in bytes."""

    __slots__ = ("exact", "free", "index", "name", "processes", "total", "used", "uuid")

    def __init__(self, document: dict[str, Any]) -> None:
        self.index = int(document["index"])
        self.uuid = str(document["uuid"])
        self.name = str(document["name"])
        self.total = int(document["total"])
        self.free = int(document["free"])
        self.used = int(document["used"])
        self.exact = bool(document["exact"])
        """False: an old driver, or memory shared with the host."""
        listed = document["processes"]
        self.processes = None if listed is None else [Process(p) for p in listed]
        """None: not asked for, or the driver has no such list."""


class Reading:
    """All GPUs, or why they cannot be read."""

    __slots__ = ("devices", "error_kind", "error_text")

    def __init__(self, devices: list[Device], error_kind: str = "", error_text: str = "") -> None:
        self.devices = devices
        self.error_kind = error_kind
        """Empty: no error. Otherwise one of the kinds in `appliance.launch.sampler`."""
        self.error_text = error_text


class Sampler:
    """A running child. One request at a time: `ask`, then `answer` until it is not None."""

    def __init__(self) -> None:
        stdin, self._requests = os.pipe2(os.O_CLOEXEC)
        self._answers, stdout = os.pipe2(os.O_CLOEXEC)
        argv = [sys.executable, "-I", str(sampler.__file__)]
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
        self._buffer = b""
        self._closed = False

    def ask(self, *, with_processes: bool = False) -> None:
        """Send a request. A child that is gone shows in `answer`."""
        word = b"processes\n" if with_processes else b"memory\n"
        try:
            os.write(self._requests, word)
        except BrokenPipeError:
            return  # Its last words are still in the pipe.

    def answer(self, timeout_s: float) -> Reading | None:
        """The answer to the last request; None: none yet after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            chunk = os.read(self._answers, _CHUNK_BYTES)
            if not chunk or len(self._buffer) > _MAX_ANSWER_BYTES:
                return Reading([], sampler.DEVICE, "the program that reads the GPUs has died")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _parsed(line)

    def close(self) -> None:
        """End the child, also one that hangs in the driver."""
        if self._closed:
            return
        self._closed = True
        os.close(self._requests)
        os.close(self._answers)
        try:
            os.kill(self._pid, signal.SIGKILL)
            # One stuck in the kernel (state D) dies when the driver lets it: not waited for.
            for _ in range(20):
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    return
                time.sleep(0.005)
        except (ProcessLookupError, ChildProcessError):
            return


def _parsed(line: bytes) -> Reading:
    try:
        document = json.loads(line)
        devices = [Device(d) for d in document["devices"]]
        error = document["error"] or {"kind": "", "text": ""}
        return Reading(devices, str(error["kind"]), str(error["text"]))
    except (ValueError, KeyError, TypeError) as mistake:
        return Reading([], sampler.DEVICE, f"the program that reads the GPUs said {mistake}")
