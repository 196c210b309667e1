"""Sampler of memory: keeps the ledger while backends run, and records the backends' peaks.

Nothing is asked while nothing runs, but for somebody who wants to see, and once more after the
last backend has gone. It may fail in any way without consequence for a model: what cannot be
read is remembered as such, what cannot be kept is forgotten.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.model.memory import GpuMemory, GpuState, GroupMemory
from appliance.model.observed import Observed
from appliance.model.profile import Catalogue
from appliance.settings.tables import Settings
from appliance.switch.ledger import Ledger, grown, ledger_of, worth_keeping
from appliance.switch.memory.peak import ObservedPeak
from appliance.system.ports import Clock, Host, Peaks, Units

_log = logging.getLogger(__name__)

LastLook = Callable[[], tuple[Catalogue, Observed]]
"""Function that returns the applied profiles, and their units at the supervisor's last look."""

_ABSENT: Final = frozenset({GpuState.NO_LIBRARY, GpuState.NO_DRIVER})
_ABSENT_S: Final = 600.0
"""Pause between two readings of a driver that is missing: each reading starts a program."""
_RETRY_S: Final = 60.0
"""Pause between two attempts to write to a full disk."""
_SETTLED_S: Final = 10.0
"""Time that a backend has to serve before its first record: first requests allocate more memory."""
_STALE: Final = 1.5
"""Multiple of the cadence: an older sample is replaced before it is shown, if that is quick."""
_PATIENCE_S: Final = 0.25
"""Longest time that a status waits for a new sample."""


class MemorySampler:
    """Sampler of memory, in a loop of its own.

    Args:
        look: The supervisor's last look at the box.
        units: Where control groups are found, and whether a unit has settled.
        host: Reads memory.
        peaks: Where peaks are kept.
        clock: For ages.
        settings: Of the box.
    """

    def __init__(
        self,
        look: LastLook,
        *,
        units: Units,
        host: Host,
        peaks: Peaks,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._units = units
        self._host = host
        self._peaks = peaks
        self._clock = clock
        self._look = look
        self._settings = settings
        self._ledger: Ledger | None = None
        self._taken_s = float("-inf")
        self._ran = False
        self._wanted = asyncio.Event()
        self._sampled = asyncio.Event()
        self._gpus = GpuMemory()
        self._gpus_due_s = float("-inf")
        self._paths: dict[str, str] = {}
        self._kept: dict[str, ObservedPeak | None] = {}
        self._highest: dict[str, ObservedPeak] = {}
        self._write_due_s = float("-inf")
        self._applied: frozenset[str] | None = None
        """Profiles that were applied at the last turn; None: there was none."""
        self._problem = ""

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.turn()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.memory.sample_every_s):
                    await self._wanted.wait()

    async def latest(self) -> Ledger | None:
        """Return the last sample; a new one where that one is old and the machine answers at once.

        None: no sample was taken.
        """
        stale_s = self._settings.memory.sample_every_s * _STALE
        if self._clock.monotonic_s() - self._taken_s > stale_s:
            self._sampled.clear()
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._sampled.wait()
        return self._ledger

    def known(self) -> Ledger | None:
        """Return the last sample, however old; None: no sample was taken."""
        return self._ledger

    async def turn(self) -> None:
        """Take a sample if there is a reason for one, and record peaks. Expected errors are logged."""
        catalogue, observed = self._look()
        await self._forget_removed(catalogue)
        running = [name for name in observed.busy() if name in catalogue]
        wanted = self._wanted.is_set()
        self._wanted.clear()
        if not running and not self._ran and not wanted:
            return
        self._ran = bool(running)
        self._forget_all_but(running)
        try:
            ledger = self._ledger = await self._sample(catalogue, running, wanted=wanted)
            self._taken_s = self._clock.monotonic_s()
            self._sampled.set()
            ram = await self._host.ram()
            for name in running:
                peak = grown(
                    self._peak(name), catalogue[name], ledger, ram_total_bytes=ram.total_bytes
                )
                if peak is not None:
                    self._highest[name] = peak
                    if observed.unit(name).serving:
                        await self._record(name, peak)
        except ApplianceError as error:
            self._tell(str(error))
        else:
            self._tell("")

    # --- samples ---------------------------------------------------------------------

    async def _sample(self, catalogue: Catalogue, running: list[str], *, wanted: bool) -> Ledger:
        groups: dict[str, GroupMemory] = {}
        for name in running:
            group = await self._group(name)
            if group is not None:
                groups[name] = group
        if not any(applied.gpus for applied in catalogue.values()):
            self._gpus = GpuMemory()
        elif wanted or self._clock.monotonic_s() >= self._gpus_due_s:
            await self._read_gpus()
        clock = self._clock
        return ledger_of(self._gpus, groups, now_unix_s=clock.unix_s(), now_s=clock.monotonic_s())

    async def _group(self, name: str) -> GroupMemory | None:
        path = self._paths.get(name) or await self._units.control_group(name)
        group = await self._host.group(path) if path else None
        if group is None:
            self._paths.pop(name, None)
        else:
            self._paths[name] = path
        return group

    async def _read_gpus(self) -> None:
        before, now = self._gpus, await self._host.gpus()
        self._gpus = now
        pause_s = _ABSENT_S if now.state in _ABSENT else 0.0
        self._gpus_due_s = self._clock.monotonic_s() + pause_s
        if now.state is before.state:
            return
        if now.state is GpuState.OK:
            _log.info("all GPUs can be read again")
        else:
            _log.warning("GPUs: %s", now.reason)

    # --- peaks -----------------------------------------------------------------------

    def _forget_all_but(self, running: list[str]) -> None:
        """Forget backends that have ended: the next start may be of another configuration."""
        for memory in (self._paths, self._kept, self._highest):
            for name in memory.keys() - set(running):
                del memory[name]

    async def _forget_removed(self, catalogue: Catalogue) -> None:
        """Remove the peaks of profiles that are not applied any more, once after each change."""
        applied = frozenset(catalogue)
        if applied != self._applied:
            self._applied = applied
            await self._peaks.forget_all_but(applied)

    def _peak(self, name: str) -> ObservedPeak | None:
        if name not in self._kept:
            self._kept[name] = self._peaks.peak(name)
        return self._highest.get(name, self._kept[name])

    async def _record(self, name: str, peak: ObservedPeak) -> None:
        """Record the peak of a backend that serves: that of a load that failed would be too low."""
        now_s = self._clock.monotonic_s()
        if now_s < self._write_due_s or not worth_keeping(self._kept[name], peak):
            return
        if not await self._is_settled(name):
            return
        if await self._peaks.record(name, peak):
            self._kept[name] = peak
        else:
            self._write_due_s = now_s + _RETRY_S

    async def _is_settled(self, name: str) -> bool:
        """Tell whether a backend has served for a while, and is what was last installed.

        A backend that runs during an apply keeps its old form.
        """
        unit = (await self._units.observe((name,), full=True)).unit(name)
        installed_s = await self._host.installed_unix_s(name)
        if not unit.serving or installed_s is None or unit.since_unix_s <= installed_s:
            return False
        return self._clock.monotonic_s() - unit.since_s >= _SETTLED_S

    def _tell(self, problem: str) -> None:
        """Log a problem when it begins, not each time it is met."""
        if problem and problem != self._problem:
            _log.warning("memory cannot be sampled: %s", problem)
        self._problem = problem
