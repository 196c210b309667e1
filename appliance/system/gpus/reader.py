"""Reader of the GPUs' memory, through a child process that may hang.

The child is `appliance.system.gpus.sampler`, the program that the gate uses too, so that both
see the same figures. The child is kept while GPUs can be read (initialising the driver takes
longer than a reading) and ended on any error, after some minutes, and when an upgrade replaced
the library that it has mapped: a new process gets a new driver mapping. On a machine without GPUs
there is no child between readings, and the lack of a driver is remembered for a while.

A child keeps the driver's XID errors from the first reading of evidence on; the reader takes them with every
answer, and once more before it ends a child that is only old.

A child that died before a request is replaced within the same reading. A child that is silent for
too long is killed, and the next one starts when the killed one has ended: as long as the driver
holds one in the kernel (state D), it would hold the next one too.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from appliance.model.gpus import ForeignProcess, GpuHardware, GpuHealth, XidEvent
from appliance.model.measurements import GpuEvidence
from appliance.model.memory import DeviceMemory, GpuMemory, GpuState, Holder, Quality
from appliance.model.names import RUN_UNIT, profile_of
from appliance.system.gpus import sampler_client
from appliance.system.gpus.states import HUNG, READER
from appliance.system.kernel import processes

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
_MOST_ERRORS: Final = 32
"""Limit of errors kept of a GPU, the newest."""
_MOST_GPUS: Final = 64
_MOST_FOREIGN: Final = 32
"""Limit of foreign processes listed for a GPU, the largest first."""
_UNLISTED: Final = "the driver lists it no more"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvidenceReading:
    """Reading of the GPUs with their state beside their memory."""

    memory: GpuMemory
    """With holders."""
    evidence: tuple[GpuEvidence, ...] = ()
    """Of the devices of `memory` that work, in their order."""
    driver: str | None = None
    """Version of the driver; None: unknown."""
    health: tuple[GpuHealth, ...] = ()
    """Health of every GPU, also of those that do not work or are listed no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHardwareReading:
    """Reading of the GPUs with their kind beside their memory."""

    memory: GpuMemory
    """Without holders."""
    hardware: tuple[GpuHardware, ...] = ()
    """Of the devices of `memory` that work, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """Kind of a request to the sampler."""

    with_processes: bool = False
    with_evidence: bool = False
    with_hardware: bool = False


class _Child:
    """One sampler and its open request. Raises OSError when the sampler cannot be started."""

    def __init__(self, *, watches: bool) -> None:
        self.sampler = sampler_client.Sampler(watches=watches)
        self._started_s = time.monotonic()
        self._asked_s = self._started_s
        self.owes = False
        """Whether a request is open, of a caller that did not wait for its answer."""
        self._first = True

    def ask(self, request: _Request, *, at_s: float) -> None:
        """Send a request, and note when the wait for its answer began."""
        self._asked_s = at_s
        self.owes = True
        self.sampler.ask(
            with_processes=request.with_processes,
            with_evidence=request.with_evidence,
            with_hardware=request.with_hardware,
        )

    def answer(self, deadline_s: float) -> sampler_client.Reading | None:
        reading = self.sampler.answer(max(0.0, deadline_s - time.monotonic()))
        if reading is not None:
            self.owes = self._first = False
        return reading

    def silent_for_s(self) -> float:
        return time.monotonic() - self._asked_s

    def patience_s(self, timeout_s: float, first_timeout_s: float) -> float:
        return first_timeout_s if self._first else timeout_s

    def is_past_use(self, life_s: float) -> bool:
        return time.monotonic() - self._started_s > life_s or self.sampler.is_outdated()


class HealthRecord:
    """Record of all readings of one process."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}
        """Index and name of each GPU that was read, by its UUID."""
        self._errors: dict[str, deque[XidEvent]] = {}
        """Errors by UUID, of the GPUs whose driver reports errors."""

    def take(self, reading: sampler_client.Reading, now_unix_s: float) -> None:
        """Take errors and identities of a reading."""
        for device in reading.devices:
            if device.uuid and (device.uuid in self._known or len(self._known) < _MOST_GPUS):
                self._known[device.uuid] = device.index, device.name
        for uuid in reading.watched:
            if uuid in self._known:
                self._errors.setdefault(uuid, deque(maxlen=_MOST_ERRORS))
        for uuid, xid in reading.errors:
            if uuid in self._errors:
                self._errors[uuid].append(XidEvent(xid=xid, unix_s=now_unix_s))

    def health(self, memory: GpuMemory, reading: sampler_client.Reading) -> tuple[GpuHealth, ...]:
        """Return every GPU of a reading, and those of earlier ones that it lacks.

        Args:
            memory: Memory of the GPUs with their holders, as the reading has it.
            reading: Reading with evidence.
        """
        if not memory.devices:
            return ()  # the state of all says why
        found = [
            self._of(device, figures.evidence)
            for device, figures in zip(memory.devices, reading.devices, strict=True)
        ]
        listed = {health.uuid for health in found}
        return (*found, *self._unlisted(listed))

    def _of(self, device: DeviceMemory, figures: dict[str, Any]) -> GpuHealth:
        uuid, name = device.uuid, device.name
        if not uuid:
            uuid, name = self._at(device.index)
        is_own_memory = device.quality is Quality.EXACT
        return GpuHealth(
            index=device.index,
            uuid=uuid,
            name=name,
            state=device.state,
            problem=device.problem,
            errors=self._errors_of(uuid),
            recovery_action=figures.get("recovery_action"),
            uncorrected_errors=figures.get("uncorrected_errors"),
            remap_pending=figures.get("remap_pending"),
            remap_failed=figures.get("remap_failed"),
            busy_share=figures.get("busy_share"),
            memory_busy_share=figures.get("memory_busy_share"),
            foreign=_foreign(device),
            unattributed_bytes=device.unattributed_bytes if is_own_memory else None,
        )

    def _unlisted(self, listed: set[str]) -> Iterable[GpuHealth]:
        for uuid, (index, name) in self._known.items():
            if uuid not in listed:
                yield GpuHealth(
                    index=index,
                    uuid=uuid,
                    name=name,
                    state=GpuState.LOST,
                    problem=_UNLISTED,
                    errors=self._errors_of(uuid),
                )

    def _at(self, index: int) -> tuple[str, str]:
        """Return UUID and name of the GPU that was last read at an index; empty: none was."""
        found = [(u, name) for u, (at, name) in self._known.items() if at == index]
        return found[-1] if found else ("", "")

    def _errors_of(self, uuid: str) -> tuple[XidEvent, ...] | None:
        errors = self._errors.get(uuid)
        return None if errors is None else tuple(errors)


def _foreign(device: DeviceMemory) -> tuple[ForeignProcess, ...] | None:
    """Return the processes that compute and belong to no backend, nor to an operator's command."""
    if device.holders is None:
        return None
    foreign = [
        holder
        for holder in device.holders
        if holder.compute and profile_of(holder.unit) is None and holder.unit != RUN_UNIT
    ]
    largest = sorted(foreign, key=lambda holder: -(holder.held_bytes or 0))
    return tuple(
        ForeignProcess(
            pid=holder.pid, name=holder.comm, user=holder.user, held_bytes=holder.held_bytes
        )
        for holder in largest[:_MOST_FOREIGN]
    )


class GpuReader:
    """Reader of the GPUs. Blocking; callers in an event loop use a thread. Safe between threads.

    Args:
        timeout_s: A child that does not answer for longer is killed.
        first_timeout_s: Likewise for a child that has not answered yet.
        life_s: A child that is older is replaced.
    """

    def __init__(
        self,
        *,
        timeout_s: float = _TIMEOUT_S,
        first_timeout_s: float = _FIRST_TIMEOUT_S,
        life_s: float = _LIFE_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._life_s = life_s
        self._first_timeout_s = first_timeout_s
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._dying: sampler_client.Sampler | None = None
        self._hung = False
        self._absence: GpuMemory | None = None
        self._absent_until_s = 0.0
        self._watches = False
        """Whether evidence was requested, so that children keep errors from their start."""
        self._record = HealthRecord()

    def read(self, *, with_holders: bool = False, timeout_s: float | None = None) -> GpuMemory:
        """Read every GPU. Raises nothing: a fault is the reading's `state`.

        Args:
            with_holders: Also list the processes with memory on them: slow, and the driver takes
                a lock for it.
            timeout_s: How long this caller waits for the driver; less while it hangs.
        """
        memory, _ = self._read(_Request(with_processes=with_holders), timeout_s)
        return memory

    def read_evidence(self, *, timeout_s: float | None = None) -> GpuEvidenceReading:
        """Read every GPU with its holders, clocks, power and heat; faults and times as for `read`."""
        request = _Request(with_processes=True, with_evidence=True)
        self._watches = True
        memory, reading = self._read(request, timeout_s)
        if reading is None:
            return GpuEvidenceReading(memory=memory)
        with self._lock:
            health = self._record.health(memory, reading)
        working = (device for device in reading.devices if not device.error_kind)
        return GpuEvidenceReading(
            memory=memory,
            evidence=tuple(map(_evidence, working)),
            driver=reading.driver or None,
            health=health,
        )

    def read_hardware(self, *, timeout_s: float | None = None) -> GpuHardwareReading:
        """Read every GPU with its compute capability and NVLinks; faults and times as for `read`."""
        memory, reading = self._read(_Request(with_hardware=True), timeout_s)
        working = () if reading is None else (d for d in reading.devices if not d.error_kind)
        return GpuHardwareReading(memory=memory, hardware=tuple(map(_hardware, working)))

    def _read(
        self, request: _Request, timeout_s: float | None
    ) -> tuple[GpuMemory, sampler_client.Reading | None]:
        """Return the memory, and the reading that it is from; None: no child was used."""
        with self._lock:
            if self._absence is not None and time.monotonic() < self._absent_until_s:
                return self._absence, None
            self._absence = None
            reading = self._reading(request, timeout_s or self._timeout_s)
            memory = _memory(reading)
            self._hung = memory.state is GpuState.HUNG
            if memory.state is not GpuState.OK and not self._hung:
                self._close()  # A new process may see more GPUs than one that met an error.
            if memory.state in _ABSENT:
                self._absence = memory
                self._absent_until_s = time.monotonic() + _REMEMBERED_S
            return memory, reading

    def _reading(self, request: _Request, timeout_s: float) -> sampler_client.Reading:
        began_s = time.monotonic()
        deadline_s = began_s + (min(timeout_s, _HUNG_TIMEOUT_S) if self._hung else timeout_s)
        child = self._child
        if child is not None and not child.owes and child.is_past_use(self._life_s):
            if self._watches:
                self._asked(request, deadline_s)  # takes the errors that it has kept
            self._close()
        reading = self._asked(request, deadline_s)
        for _ in range(_CHILDREN_TRIED - 1):
            if reading.error_kind == READER:
                self._close()
                reading = self._asked(request, deadline_s)
        return reading

    def _asked(self, request: _Request, deadline_s: float) -> sampler_client.Reading:
        """Return a child's answer until `deadline_s`; a new child is started if there is none."""
        if self._dying is not None:
            if not self._dying.gone():
                return _hung("a program that asked the driver cannot be killed")
            self._dying = None
        began_s = time.monotonic()
        try:
            self._child = child = self._child or _Child(watches=self._watches)
        except OSError as error:
            text = f"cannot run the program that reads the GPUs: {error}"
            return sampler_client.Reading([], READER, text)
        if child.owes:
            late = self._answer(child, deadline_s)
            if late is None or late.error_kind:
                return late or self._silence(child)
            began_s = time.monotonic()
        child.ask(request, at_s=began_s)
        return self._answer(child, deadline_s) or self._silence(child)

    def _answer(self, child: _Child, deadline_s: float) -> sampler_client.Reading | None:
        """Return an answer, whose errors are recorded; None: none came in time."""
        reading = child.answer(deadline_s)
        if reading is not None:
            self._record.take(reading, time.time())
        return reading

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


def _hardware(device: sampler_client.Device) -> GpuHardware:
    capability = device.hardware.get("capability")
    return GpuHardware(
        index=device.index,
        name=device.name,
        compute_capability=None if capability is None else (capability[0], capability[1]),
        nvlinks=device.hardware.get("nvlinks"),
    )


_REASONS: Final = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""Names of the bits of nvmlDeviceGetCurrentClocksEventReasons, from the lowest, as nvidia-smi has
them."""


def _evidence(device: sampler_client.Device) -> GpuEvidence:
    figures: dict[str, Any] = device.evidence
    reasons = figures.get("reasons")
    return GpuEvidence(
        uuid=device.uuid,
        sm_clock_mhz=figures.get("sm_clock_mhz"),
        memory_clock_mhz=figures.get("memory_clock_mhz"),
        power_w=figures.get("power_w"),
        temperature_c=figures.get("temperature_c"),
        throttle_reasons=None if reasons is None else _reasons(reasons),
        pcie_width=figures.get("pcie_width"),
        pcie_generation=figures.get("pcie_generation"),
        energy_j=figures.get("energy_j"),
        memory_used_bytes=device.used_bytes,
    )


def _reasons(bits: int) -> tuple[str, ...]:
    """Return the names of set bits, and one without a name by its number."""
    return tuple(
        _REASONS[bit] if bit < len(_REASONS) else f"bit_{bit}"
        for bit in range(bits.bit_length())
        if bits >> bit & 1
    )


_READER: Final = GpuReader()


def read_gpus(*, with_holders: bool = False, timeout_s: float | None = None) -> GpuMemory:
    """Call `GpuReader.read` of this process's shared reader."""
    return _READER.read(with_holders=with_holders, timeout_s=timeout_s)


def read_gpu_evidence(*, timeout_s: float | None = None) -> GpuEvidenceReading:
    """Call `GpuReader.read_evidence` of this process's shared reader."""
    return _READER.read_evidence(timeout_s=timeout_s)
