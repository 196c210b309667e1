"""Evidence and health of the GPUs for the health agent, which may not ask their driver.

The driver is asked by the sampler's child, which can be killed (`system.gpus.reader`), at most
once in a second, however many ask: the watchdog does every half minute, and probes do. What cannot be
read is told as a problem.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from appliance.model.measurements import BoxGpus, GpuSample, GpuTenant
from appliance.model.memory import DeviceMemory, GpuState
from appliance.model.names import profile_of
from appliance.system.gpus.reader import GpuEvidenceReading, read_gpu_evidence
from appliance.system.ports import Clock

_FRESH_S: Final = 1.0
_PATIENCE_S: Final = 2.0
_MOST_NAME: Final = 40
_MOST_TENANTS: Final = 64
"""Limit of processes told for a GPU, the largest first."""


class GpuEvidenceSource:
    """Reader of the evidence, for any number of callers at once.

    Args:
        clock: For the age of the last reading.
        read: Reads the GPUs; blocks.
        patience_s: Longest time that a caller waits; the reader's own limits are longer.
    """

    def __init__(
        self,
        clock: Clock,
        read: Callable[[], GpuEvidenceReading] = read_gpu_evidence,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._clock = clock
        self._read = read
        self._patience_s = patience_s
        self._last = BoxGpus(taken_s=float("-inf"))
        self._reading: asyncio.Task[BoxGpus] | None = None

    async def document(self) -> Mapping[str, Any]:
        """Return a `BoxGpus` that is at most a second old, as JSON; never raises."""
        return asdict(await self._latest())

    async def _latest(self) -> BoxGpus:
        now_s = self._clock.monotonic_s()
        if now_s - self._last.taken_s < _FRESH_S:
            return self._last
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_now())
        try:
            async with asyncio.timeout(self._patience_s):
                # Shielded: other callers wait for the same reading.
                return await asyncio.shield(self._reading)
        except TimeoutError:
            return BoxGpus(
                taken_s=now_s, problem="the GPUs' driver does not answer", state=GpuState.HUNG
            )

    async def _read_now(self) -> BoxGpus:
        try:
            reading = await asyncio.to_thread(self._read)
        finally:
            self._reading = None
        self._last = _box_gpus(reading, self._clock.monotonic_s())
        return self._last


def _box_gpus(reading: GpuEvidenceReading, taken_s: float) -> BoxGpus:
    working = [d for d in reading.memory.devices if d.state is GpuState.OK]
    return BoxGpus(
        taken_s=taken_s,
        gpus=tuple(
            GpuSample(index=device.index, evidence=evidence, tenants=_tenants(device))
            for device, evidence in zip(working, reading.evidence, strict=True)
        ),
        driver=reading.driver,
        problem=reading.memory.reason,
        state=reading.memory.state,
        health=reading.health,
    )


def _tenants(device: DeviceMemory) -> tuple[GpuTenant, ...] | None:
    if device.holders is None:
        return None
    largest = sorted(device.holders, key=lambda holder: -(holder.held_bytes or 0))
    return tuple(
        GpuTenant(
            profile=profile_of(holder.unit),
            pid=holder.pid,
            name=holder.comm[:_MOST_NAME],
            held_bytes=holder.held_bytes,
        )
        for holder in largest[:_MOST_TENANTS]
    )
