"""Reader of the GPUs' memory, through a child process that may hang.

The child is `appliance.adapters.gpus.sampler`, the program that the gate uses too, so that both
see the same figures. The child is kept while GPUs can be read (initialising the driver takes
longer than a reading) and ended on any error, after some minutes, and when an upgrade replaced
the library that it has mapped: a new process gets a new driver mapping. On a machine without GPUs
there is no child between readings, and the lack of a driver is remembered for a while.

A child that died before a request is replaced within the same reading. A child that is silent for
too long is killed, and the next one starts when the killed one has ended: as long as the driver
holds one in the kernel (state D), it would hold the next one too.
"""

import threading
import time
from typing import Final

from appliance.adapters.gpus import sampler_client
from appliance.adapters.gpus.states import HUNG, READER
from appliance.adapters.kernel import processes
from appliance.domain.memory import DeviceMemory, GpuMemory, GpuState, Holder, Quality

_TIMEOUT_S: Final = 5.0
_FIRST_TIMEOUT_S: Final = 30.0
"""Time for a new child's first answer: without persistence mode the driver initialises each GPU in
up to some seconds, and killing the child would start that over. Callers do not wait that long."""
_HUNG_TIMEOUT_S: Final = 0.25
"""Time that a caller waits while the driver is known to hang, so that callers do not queue up."""
_REMEMBERED_S: Final = 30.0
"""Time for which a missing library or driver is remembered as missing."""
_LIFE_S: Final = 600.0
_CHILDREN_TRIED: Final = 3
"""Most children that one reading tries, where each dies at once."""
_ABSENT: Final = frozenset({GpuState.NO_LIBRARY, GpuState.NO_DRIVER, GpuState.MISMATCH})


class _Child:
    """One sampler and its open request. Raises OSError when the sampler cannot be started."""

    def __init__(self) -> None:
        self.sampler = sampler_client.Sampler()
        self._started_s = time.monotonic()
        self._asked_s = self._started_s
        self._owes = False
        self._first = True

    def ask(self, *, with_holders: bool, at_s: float) -> None:
        """Send a request, and note when the wait for its answer began."""
        self._asked_s = at_s
        self._owes = True
        self.sampler.ask(with_processes=with_holders)

    def answer(self, deadline_s: float) -> sampler_client.Reading | None:
        reading = self.sampler.answer(max(0.0, deadline_s - time.monotonic()))
        if reading is not None:
            self._owes = self._first = False
        return reading

    @property
    def owes(self) -> bool:
        """Tell whether a request is open, of a caller that did not wait for its answer."""
        return self._owes

    def silent_for_s(self) -> float:
        return time.monotonic() - self._asked_s

    def patience_s(self, timeout_s: float, first_timeout_s: float) -> float:
        return first_timeout_s if self._first else timeout_s

    def is_past_use(self) -> bool:
        return time.monotonic() - self._started_s > _LIFE_S or self.sampler.is_outdated()


class GpuReader:
    """Reader of the GPUs. Blocking; callers in an event loop use a thread. Safe between threads.

    Args:
        timeout_s: A child that does not answer for longer is killed.
        first_timeout_s: Likewise for a child that has not answered yet.
    """

    def __init__(
        self, *, timeout_s: float = _TIMEOUT_S, first_timeout_s: float = _FIRST_TIMEOUT_S
    ) -> None:
        self._timeout_s = timeout_s
        self._first_timeout_s = first_timeout_s
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._dying: sampler_client.Sampler | None = None
        self._hung = False
        self._absence: GpuMemory | None = None
        self._absent_until_s = 0.0

    def read(self, *, with_holders: bool = False, timeout_s: float | None = None) -> GpuMemory:
        """Read every GPU. Raises nothing: a fault is the reading's `state`.

        Args:
            with_holders: Also list the processes with memory on them: slow, and the driver takes
                a lock for it.
            timeout_s: How long this caller waits for the driver; less while it hangs.
        """
        with self._lock:
            if self._absence is not None and time.monotonic() < self._absent_until_s:
                return self._absence
            self._absence = None
            memory = _memory(self._reading(with_holders, timeout_s or self._timeout_s))
            self._hung = memory.state is GpuState.HUNG
            if memory.state is not GpuState.OK and not self._hung:
                self._close()  # A new process may see more GPUs than one that met an error.
            if memory.state in _ABSENT:
                self._absence = memory
                self._absent_until_s = time.monotonic() + _REMEMBERED_S
            return memory

    def _reading(self, with_holders: bool, timeout_s: float) -> sampler_client.Reading:  # noqa: FBT001
        if self._child is not None and not self._child.owes and self._child.is_past_use():
            self._close()
        began_s = time.monotonic()
        deadline_s = began_s + (min(timeout_s, _HUNG_TIMEOUT_S) if self._hung else timeout_s)
        reading = self._asked(with_holders, deadline_s)
        for _ in range(_CHILDREN_TRIED - 1):
            if reading.error_kind == READER:
                self._close()
                reading = self._asked(with_holders, deadline_s)
        return reading

    def _asked(self, with_holders: bool, deadline_s: float) -> sampler_client.Reading:  # noqa: FBT001
        """Return a child's answer until `deadline_s`; a new child is started if there is none."""
        if self._dying is not None:
            if not self._dying.gone():
                return _hung("a program that asked the driver cannot be killed")
            self._dying = None
        began_s = time.monotonic()
        try:
            self._child = child = self._child or _Child()
        except OSError as error:
            text = f"cannot run the program that reads the GPUs: {error}"
            return sampler_client.Reading([], READER, text)
        if child.owes:
            late = child.answer(deadline_s)
            if late is None or late.error_kind:
                return late or self._silence(child)
            began_s = time.monotonic()
        child.ask(with_holders=with_holders, at_s=began_s)
        return child.answer(deadline_s) or self._silence(child)

    def _silence(self, child: _Child) -> sampler_client.Reading:
        silent_s = child.silent_for_s()
        if silent_s >= child.patience_s(self._timeout_s, self._first_timeout_s):
            self._close()
        return _hung(f"no answer for {silent_s:.1f} s")

    def close(self) -> None:
        """End the child; the next reading starts another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        child, self._child = self._child, None
        if child is not None and not child.sampler.close():
            self._dying = child.sampler


def _hung(text: str) -> sampler_client.Reading:
    return sampler_client.Reading([], HUNG, f"the GPU driver hangs: {text}")


def _memory(reading: sampler_client.Reading) -> GpuMemory:
    if reading.error_kind:
        return GpuMemory(state=GpuState(reading.error_kind), reason=reading.error_text)
    devices = tuple(map(_device, reading.devices))
    broken = [d for d in devices if d.state is not GpuState.OK]
    if not broken:
        return GpuMemory(devices=devices)
    lost = any(d.state is GpuState.LOST for d in broken)
    return GpuMemory(
        devices=devices,
        state=GpuState.LOST if lost else GpuState.DEVICE,
        reason="; ".join(f"GPU {d.index}: {d.problem}" for d in broken),
    )


def _device(device: sampler_client.Device) -> DeviceMemory:
    return DeviceMemory(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        used_bytes=device.used_bytes,
        reserved_bytes=device.reserved_bytes,
        quality=Quality(device.quality),
        problem=device.problem,
        state=GpuState(device.error_kind or GpuState.OK),
        holders=None if device.processes is None else tuple(map(_holder, device.processes)),
    )


def _holder(process: sampler_client.Process) -> Holder:
    named = processes.HoldingProcess(process.pid)
    return Holder(
        pid=process.pid,
        held_bytes=process.held_bytes,
        comm=named.comm,
        user=named.user,
        unit=named.unit,
        compute=process.compute,
    )


_READER: Final = GpuReader()


def read_gpus(*, with_holders: bool = False, timeout_s: float | None = None) -> GpuMemory:
    """Call `GpuReader.read` of this process's shared reader."""
    return _READER.read(with_holders=with_holders, timeout_s=timeout_s)
