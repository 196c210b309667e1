"""The GPUs' memory, through a child process that may hang without us.

The child is `appliance.launch.sampler`, the same program that the gate uses, so that the two
cannot see different things. It is kept while GPUs can be read (initialising the driver takes
longer than a reading) and ended on any error: a fresh process gets a fresh driver mapping.
On a machine without GPUs there is no child between readings, and that there is no driver is
remembered for a while.
"""

import threading
import time
from typing import Final

from appliance.domain.errors import GpuError
from appliance.domain.memory import DeviceMemory, GpuMemory, Holder
from appliance.launch import gpus, processes, sampler

_TIMEOUT_S: Final = 5.0
"""Without persistence mode the driver initialises each GPU in up to some seconds."""
_REMEMBERED_S: Final = 30.0
"""How long a missing library or driver is believed to be missing still."""
_STATED: Final = frozenset({sampler.NO_LIBRARY, sampler.NO_DRIVER, sampler.MISMATCH})


class GpuReader:
    """Reads the GPUs. Blocking; callers in an event loop use a thread. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: gpus.Sampler | None = None
        self._absence: GpuMemory | None = None
        self._absent_until_s = 0.0

    def read(self, *, with_holders: bool = False, timeout_s: float = _TIMEOUT_S) -> GpuMemory:
        """One reading of every GPU.

        Args:
            with_holders: Also name the processes with memory on them: slow, and it takes a
                lock in the driver.
            timeout_s: For the driver to answer.

        Returns:
            The GPUs; or none and the reason, when this machine has no working driver.

        Raises:
            GpuError: the driver or a GPU does not answer as it should.
        """
        with self._lock:
            if self._absence is not None and time.monotonic() < self._absent_until_s:
                return self._absence
            reading = self._ask(with_holders=with_holders, timeout_s=timeout_s)
            self._absence = None
            if reading.error_kind in _STATED:
                self._absence = GpuMemory(reason=reading.error_text)
                self._absent_until_s = time.monotonic() + _REMEMBERED_S
                return self._absence
        if reading.error_kind:
            raise GpuError(reading.error_text)
        return GpuMemory(devices=tuple(map(_device, reading.devices)))

    def _ask(self, *, with_holders: bool, timeout_s: float) -> gpus.Reading:
        reading = None
        try:
            if self._child is None:
                self._child = gpus.Sampler()
            self._child.ask(with_processes=with_holders)
            reading = self._child.answer(timeout_s)
        except OSError as error:
            raise GpuError(f"cannot run the program that reads the GPUs: {error}") from error
        finally:
            # Also after an interrupted answer: the next one would be that of this request.
            if reading is None or reading.error_kind:
                self._close()
        if reading is None:
            raise GpuError(f"the NVIDIA driver did not answer within {timeout_s:g} s")
        return reading

    def close(self) -> None:
        """End the child; the next reading starts another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


def _device(device: gpus.Device) -> DeviceMemory:
    return DeviceMemory(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        total_bytes=device.total,
        free_bytes=device.free,
        used_bytes=device.used,
        exact=device.exact,
        holders=None if device.processes is None else tuple(map(_holder, device.processes)),
    )


def _holder(process: gpus.Process) -> Holder:
    named = processes.Holder(process.pid)
    return Holder(
        pid=process.pid,
        held_bytes=process.held_bytes,
        comm=named.comm,
        user=named.user,
        unit=named.unit,
    )


_READER: Final = GpuReader()


def read_gpus(*, with_holders: bool = False, timeout_s: float = _TIMEOUT_S) -> GpuMemory:
    """`GpuReader.read` of the one reader that this process shares."""
    return _READER.read(with_holders=with_holders, timeout_s=timeout_s)
