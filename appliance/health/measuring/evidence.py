"""Evidence of a probe: counters before and after it, and the GPUs' state while the engine works.

The GPUs are read by the supervisor, whose socket may be gone; the counters of CPU time are files.
What cannot be read is left out of the evidence, and delays a probe by a few seconds at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from appliance.health.clock import HealthClock
from appliance.model.measurements import BoxGpus, Evidence
from appliance.model.names import unit_of
from appliance.model.profile import Applied
from appliance.speed.evidence import gpu_evidence
from appliance.speed.probe_prompts import crowd_text
from appliance.system.kernel.processes import group_of_unit
from appliance.system.kernel.usage import CpuCounters, cpu_shares, read_cpu_counters
from appliance.wire.typed_json import JsonValueError, from_json

AskGpus = Callable[[], Awaitable[Mapping[str, object] | None]]
"""Function that returns the supervisor's `BoxGpus` as JSON; None: it does not answer."""

_SLICE: Final = "appliance.slice"
_PATIENCE_S: Final = 3.0
_LOOK_BACK_S: Final = 0.3
_FRESH_S: Final = 1.0
"""Age that a reading of the supervisor may have."""


class EvidenceReader:
    """Reader of evidence.

    Args:
        ask_gpus: Asks the supervisor.
        clock: Of the health agent.
        read_cpu: Reads the counters of a control group.
    """

    def __init__(
        self,
        ask_gpus: AskGpus,
        clock: HealthClock,
        read_cpu: Callable[[str], CpuCounters] = read_cpu_counters,
    ) -> None:
        self._ask_gpus = ask_gpus
        self._clock = clock
        self._read_cpu = read_cpu

    async def begin(self, applied: Applied) -> "EvidenceRecording":
        """Take the readings before a probe. Never raises."""
        recording = EvidenceRecording(self, self._clock, applied)
        await recording.begin()
        return recording

    def cpu(self, applied: Applied) -> CpuCounters:
        """Read the counters of a profile's unit."""
        return self._read_cpu(group_of_unit(unit_of(applied.name), _SLICE))

    def room(self, applied: Applied) -> "RoomWatch | None":
        """Watch what others leave of the CPU; None: the profile's engine computes on GPUs."""
        return None if applied.gpus else RoomWatch(lambda: self.cpu(applied), self._clock)

    async def gpus(self, applied: Applied, *, since_s: float = 0.0) -> BoxGpus | None:
        """Read the GPUs; None: the profile uses none, or they are not told.

        Args:
            applied: The profile.
            since_s: Monotonic time before which a reading that the supervisor still has is too old.
        """
        found = await self._ask(applied)
        if found is not None and found.taken_s < since_s:
            await self._clock.sleep_until(found.taken_s + _FRESH_S)
            found = await self._ask(applied)
        return None if found is None or found.taken_s < since_s else found

    async def _ask(self, applied: Applied) -> BoxGpus | None:
        if not applied.gpus:
            return None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                document = await self._ask_gpus()
            return None if document is None else from_json(BoxGpus, document)
        except (TimeoutError, JsonValueError):
            return None


class RoomWatch:
    """Watch of the CPU time that others than an engine use.

    Args:
        read: Reads the counters of the box and of the engine's unit.
        clock: Of the health agent.
    """

    def __init__(self, read: Callable[[], CpuCounters], clock: HealthClock) -> None:
        self._read = read
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin the time that is looked at."""
        self._since, self._since_s = self._read(), self._clock.monotonic_s()

    def begin_again(self) -> None:
        """Forget what is older than `_LOOK_BACK_S`, by which a crowd that comes is seen late."""
        if self._clock.monotonic_s() - self._since_s > _LOOK_BACK_S:
            self.begin()

    def crowd_text(self) -> str:
        """Return what others used since the beginning, if that is much; empty: it is not."""
        return crowd_text(cpu_shares(self._since, self._read()).others, self._since.cpus)


class EvidenceRecording:
    """Readings around one probe."""

    def __init__(self, reader: EvidenceReader, clock: HealthClock, applied: Applied) -> None:
        self._reader = reader
        self._clock = clock
        self._applied = applied
        self._before: BoxGpus | None = None
        self._during: BoxGpus | None = None
        self._began_s = clock.monotonic_s()
        self._cpu = reader.cpu(applied)

    async def begin(self) -> None:
        """Take the readings before the probe."""
        self._before = await self._reader.gpus(self._applied)
        self._cpu = self._reader.cpu(self._applied)
        self._began_s = self._clock.monotonic_s()

    async def sample(self) -> None:
        """Read the GPUs while the engine works; the last such reading counts."""
        found = await self._reader.gpus(self._applied, since_s=self._clock.monotonic_s())
        self._during = found or self._during

    async def end(self, *, engine_version: str | None, with_energy: bool) -> Evidence:
        """Take the readings after the probe, and return the evidence. Never raises.

        Args:
            engine_version: Version of the engine; None: not known.
            with_energy: Wait up to a second for the reading that tells the energy.
        """
        ended_s = self._clock.monotonic_s()
        since_s = ended_s if with_energy else 0.0
        shares = cpu_shares(self._cpu, self._reader.cpu(self._applied))
        evidence = gpu_evidence(
            self._applied,
            before=self._before,
            during=self._during,
            after=await self._reader.gpus(self._applied, since_s=since_s),
            probe_s=ended_s - self._began_s,
        )
        return replace(
            evidence,
            other_cpu_share=shares.others,
            cpu_throttled_share=shares.throttled,
            engine_version=engine_version,
            fingerprint=self._applied.fingerprint,
        )
