"""Observer of the box: one look at everything that the rules of the watchdog judge.

======================  ==================================================  ===============
source                  what it tells                                       asked every
======================  ==================================================  ===============
supervisor              marks, committed names, hold, operation, traffic    10 s, and told
systemd                 units of backends, supervisor, gateway, watches     look
gateway's lane          whether gateway and engines answer                  look, see there
supervisor              GPUs, which only it may ask                         30 s, and after a start
auditor                 listening sockets of other processes                15 s
checker                 URLs of `[[watch]]`                                 each its own
files                   installed units, file systems                       30 s, look
======================  ==================================================  ===============

All are asked at once, each for a few seconds at most, so that a look takes seven. What cannot be seen is None: it is logged when that
begins and ends, and nothing is concluded from it.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from appliance.alerts.snapshot import BoxLook, DiskLook, ReadingKind
from appliance.health.box_view import BoxView
from appliance.health.clock import HealthClock
from appliance.health.watching.checks import (
    CheckedEngine,
    EngineAnswers,
    EngineChecks,
    PeriodicReading,
    WatchChecks,
)
from appliance.health.watching.looks import Observations, ProfileLooks, foreign_pids, gpu_looks
from appliance.model.errors import StoreError
from appliance.model.measurements import BoxGpus
from appliance.model.memory import GpuState
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT, unit_of
from appliance.model.observed import ActiveState
from appliance.model.profile import Catalogue
from appliance.model.speeds import SpeedReport
from appliance.system.systemd.unit_reader import UnitReading
from appliance.wire.helpers import Listener

_log = logging.getLogger(__name__)

_FRESH_S: Final = 30.0
_GPUS_EVERY_S: Final = 30.0
_LONGEST_GPUS_S: Final = 600.0
_ABSENT: Final = frozenset({GpuState.NO_LIBRARY, GpuState.NO_DRIVER})
"""States of a box without a driver, where each reading starts a program: the pause grows up to ten minutes.
At first it is short, since a driver may be loaded late in a boot."""
_LISTENERS_EVERY_S: Final = 15.0
_LISTENERS_PATIENCE_S: Final = 3.5
"""Longer than the patience of the auditor's client, which tells what was wrong."""
_FILES_EVERY_S: Final = 30.0
_BOOT_S: Final = 600.0
"""Time after the start of systemd in which a supervisor began with the boot."""

_Drift = Mapping[str, tuple[str, ...] | None]
_Here = tuple[
    Mapping[str, UnitReading] | None,
    BoxGpus | None,
    _Drift | None,
    EngineAnswers | None,
    tuple[Listener, ...] | None,
]
"""Units, GPUs, drift, answers and listening sockets."""
ReadUnits = Callable[[Sequence[str]], Awaitable[Mapping[str, UnitReading]]]
"""Function that returns units by name; raises `UnitError`."""
ReadGpus = Callable[[], Awaitable[BoxGpus | None]]
"""Function that returns the GPUs; None: the supervisor does not answer."""
ReadListeners = Callable[[Sequence[int]], Awaitable[tuple[Listener, ...] | None]]
"""Function that returns the listening sockets of backends and of these processes; None: no answer."""
ReadDrift = Callable[[Sequence[str]], _Drift]
"""Function that returns the difference of the units of these profiles; short, it may block."""


async def no_listeners(_pids: Sequence[int]) -> tuple[Listener, ...] | None:
    """Return None: there is no auditor."""
    return None


class BoxObserver:
    """Observer of the box.

    Args:
        clock: Of the health agent.
        view: Returns the box as the supervisor described it last.
        catalogue: Reads the applied profiles; raises `StoreError`.
        units: Reads units.
        booted_unix_s: Returns when this systemd began; 0: not known.
        engines: Checker of the engines.
        watches: Checker of the `[[watch]]` entries.
        gpus: Reads the GPUs.
        listeners: Reads listening sockets.
        drift: Compares installed units.
        directories: Directories whose file systems matter.
        speeds: Returns the speeds that the monitors report.
        quality_lost: Returns the profiles of which a loss of quality is reported.
        stores: Returns sentences about stores that take no rows.
    """

    def __init__(
        self,
        *,
        clock: HealthClock,
        view: Callable[[], BoxView],
        catalogue: Callable[[], Catalogue],
        units: ReadUnits,
        booted_unix_s: Callable[[], float],
        engines: EngineChecks,
        watches: WatchChecks,
        gpus: ReadGpus,
        listeners: ReadListeners = no_listeners,
        drift: ReadDrift,
        directories: Sequence[str] = (),
        speeds: Callable[[], Mapping[str, SpeedReport]] = dict,
        quality_lost: Callable[[], frozenset[str]] = frozenset,
        stores: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._clock = clock
        self._view = view
        self._read_catalogue = catalogue
        self._read_units = units
        self._booted_unix_s = booted_unix_s
        self._checks = engines
        self._watches = watches
        self._read_listeners = listeners
        self._read_drift = drift
        self._directories = directories
        self._speeds = speeds
        self._quality_lost = quality_lost
        self._stores = stores
        self._catalogue: Catalogue = {}
        self._serving: Mapping[str, CheckedEngine] = {}
        self._pids: Sequence[int] = ()
        self._profiles = ProfileLooks()
        self._units_s = 0.0
        self._units = PeriodicReading("the units", self._units_now, clock)
        self._read_gpus = gpus
        self._gpus_every_s = _GPUS_EVERY_S
        self._gpus = PeriodicReading("the GPUs", self._gpus_now, clock)
        self._engines = PeriodicReading("engines and gateway", self._engines_now, clock)
        self._listeners = PeriodicReading(
            "the listening sockets",
            self._listeners_now,
            clock,
            every_s=_LISTENERS_EVERY_S,
            patience_s=_LISTENERS_PATIENCE_S,
        )
        self._drift = PeriodicReading(
            "the installed units", self._drift_now, clock, every_s=_FILES_EVERY_S
        )

    async def look(self) -> BoxLook:
        """Return the box as it is now; what could not be seen is None. Never raises."""
        self._load()
        (units, gpus, drift, engines, listeners), urls = await asyncio.gather(
            self._here(), self._watches.urls()
        )
        looked = gpu_looks(gpus)
        view, now_s = self._view(), self._clock.monotonic_s()
        is_fresh = view.connected and now_s - view.read_s <= _FRESH_S
        found = Observations(
            view=view,
            is_view_fresh=is_fresh,
            catalogue=self._catalogue,
            units=units,
            engines=engines,
            gpus=gpus,
            drift=drift,
            speeds=self._speeds(),
            quality_lost=self._quality_lost(),
            is_watched_since_boot=self._is_watched_since_boot(units),
            units_s=self._units_s,
        )
        looks = None if units is None else {name: reading.look for name, reading in units.items()}
        return BoxLook(
            unix_s=self._clock.unix_s(),
            monotonic_s=now_s,
            supervisor_answers=is_fresh,
            supervisor=None if looks is None else looks.get(SUPERVISOR_UNIT),
            gateway=None if looks is None else looks.get(GATEWAY_UNIT),
            gateway_answers=None if engines is None else engines.gateway,
            hold=view.hold,
            operation=view.running if is_fresh else None,
            last_operation=view.ended,
            profiles=self._profiles.looks(found, now_s),
            gpus=looked,
            gpu_state=None if gpus is None or gpus.state is None else gpus.state.value,
            gpu_problem="" if gpus is None else gpus.problem or "",
            listeners=listeners,
            watches=self._watches.looks(looks, urls, view.watch_marks),
            disks=disk_looks(self._directories),
            stores=tuple(self._stores()),
            boot_id=self._clock.boot_id,
            read_s={
                ReadingKind.UNITS: self._units.read_s,
                ReadingKind.STATUS: view.read_s,
                ReadingKind.GPUS: self._gpus.read_s if gpus is None else gpus.taken_s,
                ReadingKind.LISTENERS: self._listeners.read_s,
                ReadingKind.FILES: self._drift.read_s,
            },
        )

    async def _here(self) -> _Here:
        """Read the sources of this box; what engines and sockets are checked for follows from the others."""
        has_begun = self._profiles.began_s > self._gpus.read_s
        units, gpus, drift = await asyncio.gather(
            self._units.latest(),
            self._gpus.latest(every_s=0.0 if has_begun else self._gpus_every_s),
            self._drift.latest(),
        )
        self._units_s = self._clock.monotonic_s()
        self._note_serving(units)
        self._pids = foreign_pids(gpu_looks(gpus))
        engines, listeners = await asyncio.gather(self._engines.latest(), self._listeners.latest())
        return units, gpus, drift, engines, listeners

    def _load(self) -> None:
        try:
            self._catalogue = self._read_catalogue()
        except StoreError as error:
            # The agent says so in its status; the profiles that were read last stay.
            _log.debug("%s", error)

    async def _units_now(self) -> Mapping[str, UnitReading]:
        backends = map(unit_of, self._catalogue)
        watched = self._watches.units()
        return await self._read_units([SUPERVISOR_UNIT, GATEWAY_UNIT, *backends, *watched])

    async def _gpus_now(self) -> BoxGpus | None:
        found = await self._read_gpus()
        is_absent = found is not None and found.state in _ABSENT
        longer_s = min(2 * self._gpus_every_s, _LONGEST_GPUS_S)
        self._gpus_every_s = longer_s if is_absent else _GPUS_EVERY_S
        return found

    def _note_serving(self, units: Mapping[str, UnitReading] | None) -> None:
        """Note the engines that are to be checked: those whose unit is up."""
        self._serving = {
            name: CheckedEngine(health_path=applied.health_path, main_pid=unit.look.main_pid)
            for name, applied in self._catalogue.items()
            if (unit := (units or {}).get(unit_of(name))) is not None
            and unit.look.active is ActiveState.ACTIVE
        }

    async def _engines_now(self) -> EngineAnswers:
        return await self._checks.answers(self._serving)

    async def _listeners_now(self) -> tuple[Listener, ...] | None:
        return await self._read_listeners(self._pids)

    async def _drift_now(self) -> _Drift:
        return self._read_drift(sorted(self._catalogue))

    def _is_watched_since_boot(self, units: Mapping[str, UnitReading] | None) -> bool:
        supervisor = (units or {}).get(SUPERVISOR_UNIT)
        began = None if supervisor is None else supervisor.look.active_since_unix_s
        booted = self._booted_unix_s()
        return began is not None and booted > 0 and began - booted <= _BOOT_S


def disk_looks(directories: Sequence[str]) -> tuple[DiskLook, ...]:
    """Return the file systems of directories, each once; those that cannot be read are left out."""
    found: dict[int, DiskLook] = {}
    for directory in directories:
        try:
            device, room = os.stat(directory).st_dev, os.statvfs(directory)  # noqa: PTH116
        except OSError:
            continue
        found.setdefault(
            device,
            DiskLook(
                path=directory,
                free_bytes=room.f_bavail * room.f_frsize,
                total_bytes=room.f_blocks * room.f_frsize,
            ),
        )
    return tuple(found.values())
