"""Reader of units for a process that may only look (org.freedesktop.systemd1(5)).

One call lists the units that matter; details of a unit are asked for only when one of these holds:

=============================  ===========================================================
details are read again         because
=============================  ===========================================================
its row is another one         it has started, stopped, failed
systemd signalled a change     it has crashed and started again between two looks
it starts, stops or failed     its status text and the pause before a restart change unsignalled
they are a minute old          a result can be cleared, and a filter removed, unsignalled
=============================  ===========================================================

Nothing here loads a unit to observe it, as in `service_manager`.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from appliance.alerts.snapshot import UnitLook
from appliance.model.errors import UnitError
from appliance.model.observed import ActiveState
from appliance.system.systemd.bus import MANAGER_PATH, CallError, SystemBus
from appliance.system.systemd.unit_properties import GAVE_UP, NOT_COUNTED, gave_up, was_stopped

_log = logging.getLogger(__name__)

_SERVICE: Final = (
    *("Result", "NRestarts", "MainPID", "ExecMainStatus", "StatusText", "IPAccounting"),
    *("IPEgressBytes", "ExecMainExitTimestampMonotonic", "Restart", "RestartUSec"),
)
_UNIT: Final = (
    *("ActiveEnterTimestamp", "ActiveExitTimestampMonotonic"),
    *("InactiveEnterTimestampMonotonic", "InactiveExitTimestampMonotonic"),
)
_BOOTED: Final = "UserspaceTimestamp"
_TIMEOUT_S: Final = 2.5
"""Time for a look; a connection that takes longer may be lost, and is made anew."""
_STOPPING: Final = "stopping"
_SHUTDOWN_WITHIN_S: Final = 3.0
_KEPT_S: Final = 60.0
_STEADY: Final = frozenset({ActiveState.ACTIVE, ActiveState.INACTIVE})
_ABSENT: Final = "not-found"

OpenBus = Callable[..., SystemBus]
"""Function that makes a connection, with the callbacks that `SystemBus` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReading:
    """Unit at one look."""

    look: UnitLook
    exit_status: int = 0
    """Status or signal with which its main process ended last; 0 also if none has."""
    has_job: bool = False
    """Whether a start or stop job is queued or runs."""
    cpu_s: float | None = None
    """CPU time that its processes have used since its start; None: not counted, or not running."""


@dataclass(slots=True, kw_only=True)
class _Known:
    row: Sequence[Any]
    changes: int
    read_s: float
    details: Mapping[str, Any]


class SystemUnitReader:
    """Reader of units. It connects at the first reading, and again after a failure.

    Args:
        unit_dir: Directory of the generated units.
        monotonic_s: Clock.
        open_bus: Makes a connection.
    """

    def __init__(
        self, unit_dir: str, monotonic_s: Callable[[], float], open_bus: OpenBus = SystemBus
    ) -> None:
        self._unit_dir = unit_dir
        self._monotonic_s = monotonic_s
        self._open_bus = open_bus
        self._bus: SystemBus | None = None
        self._booted_unix_s = 0.0
        self._known: dict[str, _Known] = {}
        self._changes: Counter[str] = Counter()
        self._watched: set[str] = set()

    @property
    def booted_unix_s(self) -> float:
        """Return when this systemd began; 0: not read yet."""
        return self._booted_unix_s

    async def units(self, names: Sequence[str]) -> Mapping[str, UnitReading]:
        """Return every one of these units. Raises `UnitError`."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                bus = await self._connected()
                for name in set(names) - self._watched:
                    bus.watch(name)
                    self._watched.add(name)
                (listed,) = await bus.manager("ListUnitsByPatterns", "asas", [], list(names))
                rows = {row[0]: row for row in listed}
                present = [name for name in names if name in rows]
                found = await asyncio.gather(*(self._unit(bus, rows[name]) for name in present))
        except (CallError, TimeoutError, OSError, EOFError) as error:
            await self.close()
            raise UnitError(f"cannot read units from systemd: {error}") from error
        except UnitError:
            await self.close()
            raise
        self._known = {name: known for name, known in self._known.items() if name in rows}
        return {name: self._unloaded(name) for name in names if name not in rows} | dict(
            zip(present, found, strict=True)
        )

    async def close(self) -> None:
        """Close the connection, if there is one."""
        bus, self._bus = self._bus, None
        self._known.clear()
        self._watched.clear()
        if bus is not None:
            await bus.__aexit__(None, None, None)

    async def _connected(self) -> SystemBus:
        if self._bus is None:
            bus = self._open_bus(on_changed=self._changed, on_job_removed=lambda *_: None)
            await bus.__aenter__()
            self._bus = bus
            values = await bus.get(MANAGER_PATH, "Manager", (_BOOTED,))
            self._booted_unix_s = values[_BOOTED] / 1e6
        return self._bus

    def _changed(self, path: str, _values: Mapping[str, Any]) -> None:
        self._changes[path] += 1

    def _unloaded(self, unit: str) -> UnitReading:
        """Return a unit that systemd does not have in memory: it is stopped, and never ran."""
        is_there = os.path.isfile(f"{self._unit_dir}/{unit}")  # noqa: PTH113 - of hundreds
        return UnitReading(look=UnitLook(unit=unit, loaded=is_there))

    async def _unit(self, bus: SystemBus, row: Sequence[Any]) -> UnitReading:
        name, _text, load, active, sub, _following, path, job_id, *_ = row
        state = ActiveState(active)
        details: Mapping[str, Any] = {}
        cpu_s = None
        if load != _ABSENT and name.endswith(".service"):
            details = await self._details(bus, row)
            if details["MainPID"]:
                cpu_s = await _cpu_s(bus, path)
        return UnitReading(
            look=UnitLook(
                unit=name,
                loaded=load == "loaded",
                active=state,
                sub=sub,
                result=_result(state, details),
                was_stopped=state is ActiveState.FAILED and was_stopped(details),
                restarts=details.get("NRestarts", 0),
                main_pid=details.get("MainPID", 0),
                active_since_unix_s=details.get("ActiveEnterTimestamp", 0) / 1e6 or None,
                status_text=details.get("StatusText", ""),
                is_filtered=_is_filtered(details),
            ),
            exit_status=details.get("ExecMainStatus", 0),
            has_job=bool(job_id),
            cpu_s=cpu_s,
        )

    async def _details(self, bus: SystemBus, row: Sequence[Any]) -> Mapping[str, Any]:
        name, path = row[0], row[6]
        now_s, changes = self._monotonic_s(), self._changes[path]
        known = self._known.get(name)
        if (
            known is not None
            and known.row == row
            and known.changes == changes
            and ActiveState(row[3]) in _STEADY
            and now_s - known.read_s < _KEPT_S
        ):
            return known.details
        service = await bus.get(path, "Service", _SERVICE)
        details = service | await bus.get(path, "Unit", _UNIT)
        self._known[name] = _Known(row=row, changes=changes, read_s=now_s, details=details)
        return details


async def _cpu_s(bus: SystemBus, path: str) -> float | None:
    values = await bus.get(path, "Service", ("CPUUsageNSec",))
    used_ns = int(values["CPUUsageNSec"])
    return None if used_ns == NOT_COUNTED else used_ns / 1e9


def _result(state: ActiveState, details: Mapping[str, Any]) -> str:
    if state is ActiveState.FAILED and gave_up(details):
        return GAVE_UP
    return str(details.get("Result", "success"))


def _is_filtered(details: Mapping[str, Any]) -> bool | None:
    """Tell whether a filter of the unit is enforced; None: it does not run, or counts no bytes.

    Accounting and the filter are attached to a control group by the same means (BPF); where the kernel
    lacks it, both are left out without an error.
    """
    if not details.get("MainPID") or not details.get("IPAccounting"):
        return None
    return bool(details["IPEgressBytes"] != NOT_COUNTED)


async def is_shutting_down() -> bool:
    """Tell whether the box shuts down or reboots; False also where systemd does not answer in time."""
    bus = SystemBus(on_changed=lambda *_: None, on_job_removed=lambda *_: None)
    try:
        async with asyncio.timeout(_SHUTDOWN_WITHIN_S), bus:
            values = await bus.get(MANAGER_PATH, "Manager", ("SystemState",))
    except (CallError, UnitError, OSError, EOFError, TimeoutError) as error:
        _log.warning("systemd does not say whether the box shuts down: %s", error)
        return False
    return bool(values["SystemState"] == _STOPPING)
