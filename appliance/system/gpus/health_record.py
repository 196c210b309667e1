"""Record of the GPUs' health over all readings: XID errors, and GPUs that the driver lists no more.

The sampler's child tells each error once and lives for minutes, so its parent keeps them. A GPU that is lost
may not tell its identity, and after a while is not listed at all: it is known from earlier readings.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from appliance.model.gpus import ForeignProcess, GpuHealth, XidEvent
from appliance.model.memory import DeviceMemory, GpuMemory, GpuState, Quality
from appliance.model.names import RUN_UNIT, profile_of
from appliance.system.gpus import sampler_client

_MOST_ERRORS: Final = 32
"""Limit of errors kept of a GPU, the newest."""
_MOST_GPUS: Final = 64
_MOST_FOREIGN: Final = 32
"""Limit of foreign processes told of a GPU, the largest first."""
_UNLISTED: Final = "the driver lists it no more"


class HealthRecord:
    """Record of all readings of one process."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}
        """Index and name of each GPU that was read, by its UUID."""
        self._errors: dict[str, deque[XidEvent]] = {}
        """Errors by UUID, of the GPUs whose driver tells errors."""

    def take(self, reading: sampler_client.Reading, now_unix_s: float) -> None:
        """Take what a reading tells of errors and identities."""
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
