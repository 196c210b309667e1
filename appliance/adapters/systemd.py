"""Backend units over D-Bus.

Subscribes before it asks, so that no change between an observation and a wait is lost.
Source: org.freedesktop.systemd1(5).

Hundreds of profiles are cheap only while systemd keeps their units loaded: a unit loads every
unit that it conflicts with, 500 of them in 1.3 s, and systemd forgets them all at once when none
is in use. So units are pinned (RefUnit) one after another: the first pin keeps its rivals too.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from appliance.adapters.dbus import (
    DENIED,
    MANAGER_PATH,
    NO_SUCH_UNIT,
    CallError,
    SystemBus,
    unit_path,
)
from appliance.adapters.jobs import JobQueue
from appliance.adapters.pulse import Pulse, PulseChange
from appliance.domain.errors import PermissionDeniedError, UnitError
from appliance.domain.names import HOLD_UNIT, RUN_UNIT, unit_of
from appliance.domain.observed import ActiveState, Observed, ObservedUnit, stopped_at
from appliance.launch.jobs import START, STOP

_SHUTDOWN: Final = "shutdown.target"
_HOLD_TIMEOUT_S: Final = 120.0
_TELLING: Final = ("ActiveState", "SubState", "Job", "NeedDaemonReload")
"""Properties of which a new value is worth a look."""
_DETAILS: Final = (
    *("StatusText", "MainPID", "Result", "ExecMainStatus"),
    *("ExecMainExitTimestampMonotonic", "RestartUSec"),
)
_STALE: Final = "NeedDaemonReload"
_TIMES: Final = (
    *("ActiveEnterTimestamp", "ActiveEnterTimestampMonotonic"),
    *("ActiveExitTimestampMonotonic", "InactiveExitTimestampMonotonic"),
    *("InactiveEnterTimestampMonotonic", "StateChangeTimestampMonotonic", _STALE),
)
_PINNED_WITHIN_S: Final = 10.0
_NOT_COUNTED: Final = (1 << 64) - 1
_GAVE_UP: Final = "start-limit-hit"


class SystemdUnits:
    """The port `Units` on the system bus. Use it as an async context manager.

    Args:
        jobs: The socket where jobs are asked for: polkit allows none over the bus.
    """

    def __init__(self, jobs: Path) -> None:
        self._queue = JobQueue(jobs)
        self._bus = SystemBus(on_changed=self._changed, on_job_removed=self._job_removed)
        self._pulse = Pulse()
        self._boot_id = ""
        self._watched: set[str] = set()
        self._pinning: asyncio.Task[None] | None = None
        self._unpinned: list[str] = []
        self._at_rest: dict[str, Mapping[str, Any]] = {}
        """Details of units that did nothing when they were read, and have not changed since."""
        self._changes: Counter[str] = Counter()
        self._known: dict[str, dict[str, object]] = {}
        self._jobs: dict[str, asyncio.Future[str]] = {}
        self._early: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        await self._bus.__aenter__()
        times = ("UserspaceTimestamp", "UserspaceTimestampMonotonic")
        try:
            booted = await self._bus.get(MANAGER_PATH, "Manager", times)
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot talk to systemd: {error}") from error
        self._boot_id = "-".join(str(booted[name]) for name in times)
        self._watch([HOLD_UNIT, RUN_UNIT, _SHUTDOWN])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pinning is not None:
            self._pinning.cancel()
            await asyncio.gather(self._pinning, return_exceptions=True)
        await self._bus.__aexit__(kind, error, traceback)

    async def closed(self) -> None:
        """Returns when the connection to the bus is lost."""
        await self._bus.closed()

    @property
    def boot_id(self) -> str:
        """When this systemd began: the kernel's boot id does not change with a container's boot."""
        return self._boot_id

    def change(self) -> PulseChange:
        """Notices the next change of any unit of ours."""
        return self._pulse.change()

    async def observe(self, names: Iterable[str], *, full: bool = False) -> Observed:
        """The units of the profiles `names`, hold and run, and whether the system goes down.

        Args:
            names: Profiles.
            full: Also what only a person wants to know: what it says, since when.
        """
        units = {unit_of(name): name for name in names}
        self._watch(units)
        try:
            if full:
                await self._pinned()
            asked = [*units, HOLD_UNIT, RUN_UNIT, _SHUTDOWN]
            (listed,) = await self._bus.manager("ListUnitsByNames", "as", asked)
            rows = {row[0]: row for row in listed}
            seen = await asyncio.gather(
                *(self._unit(rows[unit], full=full) for unit in (*units, RUN_UNIT))
            )
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        shutdown = rows[_SHUTDOWN]
        return Observed(
            units=dict(zip(units.values(), seen[:-1], strict=True)),
            run=seen[-1],
            hold_active=rows[HOLD_UNIT][3] == "active",
            # What systemd itself calls the state "stopping".
            going_down=bool(shutdown[7]) or shutdown[3] in {"active", "activating"},
        )

    async def control_group(self, name: str) -> str:
        """Where the processes of profile `name` are, in systemd's tree; empty: it runs none."""
        try:
            values = await self._bus.get(unit_path(unit_of(name)), "Service", ("ControlGroup",))
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        return str(values["ControlGroup"])

    async def cpu_s(self, name: str) -> float | None:
        """CPU time that the processes of profile `name` have used; None: not counted."""
        try:
            values = await self._bus.get(unit_path(unit_of(name)), "Service", ("CPUUsageNSec",))
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        used_ns = int(values["CPUUsageNSec"])
        return None if used_ns == _NOT_COUNTED else used_ns / 1e9

    async def clear_start_limit(self, name: str) -> None:
        """Forget earlier starts: those by hand count too; a unit not in memory has none."""
        unit = unit_of(name)
        try:
            await self._bus.manager("ResetFailedUnit", "s", unit)
        except CallError as error:
            if error.name != NO_SUCH_UNIT:
                raise _translated(error, unit) from error
        except TimeoutError as error:
            raise UnitError(f"systemd does not answer about {unit}") from error

    async def start(self, name: str) -> None:
        """Queue a start of profile `name`; does not wait."""
        await self._job(START, unit_of(name))

    async def stop(self, name: str) -> None:
        """Queue a stop of profile `name`; does not wait."""
        await self._job(STOP, unit_of(name))

    async def start_run(self) -> None:
        """Queue a start of the unit that runs a command of an operator; does not wait."""
        await self._job(START, RUN_UNIT)

    async def stop_run(self) -> None:
        """Queue a stop of that unit, with everything that runs in it; does not wait."""
        await self._job(STOP, RUN_UNIT)

    async def start_hold(self) -> None:
        """Start the unit that conflicts with every backend; returns when it is active."""
        await self._await_job(await self._job(START, HOLD_UNIT))

    async def stop_hold(self) -> None:
        """Stop that unit."""
        await self._await_job(await self._job(STOP, HOLD_UNIT))

    def _watch(self, units: Iterable[str]) -> None:
        new = [unit for unit in units if unit not in self._watched]
        for unit in new:
            self._bus.watch(unit)
        self._watched.update(new)
        self._unpinned += new
        if self._unpinned and self._pinning is None:
            self._pinning = asyncio.create_task(self._pin())

    async def _pin(self) -> None:
        """Keep systemd from forgetting how a unit ended, which it does of a stopped one at once."""
        try:
            while self._unpinned:
                with contextlib.suppress(CallError, TimeoutError):
                    await self._bus.manager("RefUnit", "s", self._unpinned.pop(0))
        finally:
            self._pinning = None

    async def _pinned(self) -> None:
        """Wait for the pins, within reason: polkit may take seconds to start."""
        if self._pinning is not None:
            await asyncio.wait({self._pinning}, timeout=_PINNED_WITHIN_S)

    async def _unit(self, row: Sequence[Any], *, full: bool) -> ObservedUnit:
        """One row of ListUnitsByNames, with the details that its state makes interesting."""
        _name, _text, load, active, sub, _following, path, job_id, *_ = row
        state = ActiveState(active)
        details: Mapping[str, Any] = {}
        if full and state is ActiveState.INACTIVE and not job_id:
            details = await self._details_at_rest(path)
        elif full or state is ActiveState.FAILED:
            details = await self._details(path)
        elif sub.startswith("auto-restart"):
            details = await self._bus.get(path, "Service", _DETAILS)
        return ObservedUnit(
            active=state,
            sub=sub,
            has_job=bool(job_id),
            result=_GAVE_UP
            if state is ActiveState.FAILED and _gave_up(details)
            else details.get("Result", "success"),
            status_text=details.get("StatusText", ""),
            main_pid=details.get("MainPID", 0),
            exit_status=details.get("ExecMainStatus", 0),
            since_unix_s=details.get("ActiveEnterTimestamp", 0) / 1e6,
            since_s=details.get("ActiveEnterTimestampMonotonic", 0) / 1e6,
            changed_s=details.get("StateChangeTimestampMonotonic", 0) / 1e6,
            stopped_s=stopped_at(
                active_exit_s=details.get("ActiveExitTimestampMonotonic", 0) / 1e6,
                inactive_exit_s=details.get("InactiveExitTimestampMonotonic", 0) / 1e6,
                main_exit_s=details.get("ExecMainExitTimestampMonotonic", 0) / 1e6,
                changed_s=details.get("StateChangeTimestampMonotonic", 0) / 1e6,
            ),
            loaded=load == "loaded",
            needs_reload=details.get("NeedDaemonReload", False),
        )

    async def _details(self, path: str) -> Mapping[str, Any]:
        service = await self._bus.get(path, "Service", _DETAILS)
        return service | await self._bus.get(path, "Unit", _TIMES)

    async def _details_at_rest(self, path: str) -> Mapping[str, Any]:
        """Details of a unit that does nothing, read again only once it has changed.

        No signal tells that its file did, so that is asked each time; nor that a result was
        cleared (reset-failed), so that only a unit without one is remembered.
        """
        if (known := self._at_rest.get(path)) is not None:
            return {**known, **await self._bus.get(path, "Unit", (_STALE,))}
        changes = self._changes[path]
        details = await self._details(path)
        if details["Result"] == "success" and changes == self._changes[path]:
            self._at_rest[path] = details
        return details

    async def _job(self, verb: str, unit: str) -> str:
        try:
            return await self._queue.queue(verb, unit)
        except CallError as error:
            raise _translated(error, unit) from error
        except TimeoutError as error:
            raise UnitError(f"systemd does not answer about {unit}") from error

    async def _await_job(self, path: str) -> None:
        result = self._early.pop(path, None)
        if result is None:
            waiting = self._jobs[path] = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(_HOLD_TIMEOUT_S):
                    result = await waiting
            except TimeoutError as error:
                raise UnitError(f"job {path} does not end: systemctl list-jobs") from error
            finally:
                self._jobs.pop(path, None)
        if result != "done":
            raise UnitError(f"job {path} ended with {result!r}")

    def _changed(self, path: str, values: Mapping[str, Any]) -> None:
        """Beat on news only: systemd repeats itself, and each beat costs a look at the box."""
        self._changes[path] += 1
        self._at_rest.pop(path, None)
        known = self._known.setdefault(path, {})
        news = {k: values[k] for k in _TELLING if k in values and values[k] != known.get(k)}
        if news:
            known.update(news)
            self._pulse.beat()

    def _job_removed(self, path: str, unit: str, result: str) -> None:
        """The signal may arrive before the reply that names the job."""
        self._known.pop(unit_path(unit), None)
        waiting = self._jobs.get(path)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        elif unit == HOLD_UNIT:
            self._early = {path: result}
        self._pulse.beat()


def _translated(error: CallError, unit: str) -> UnitError | PermissionDeniedError:
    if error.name in DENIED:
        return PermissionDeniedError(
            f"systemd does not let the supervisor touch {unit}: sudo appliance apply"
        )
    if error.name == NO_SUCH_UNIT:
        return UnitError(f"{unit} is not installed: sudo appliance apply")
    return UnitError(f"{unit}: {error}")


def _gave_up(details: Mapping[str, Any]) -> bool:
    """Whether systemd stopped restarting a failed unit because it failed too often.

    `Result` says so only of a start by hand: after a crash it stays what the crash made it. But
    then the unit has waited for its restart between the end of its process and being failed; one
    that was stopped, or that nothing restarts, has not.
    """
    ended_us: int = details.get("ExecMainExitTimestampMonotonic", 0)
    waited_us: int = details.get("InactiveEnterTimestampMonotonic", 0) - ended_us
    return ended_us > 0 and waited_us >= details.get("RestartUSec", 0) > 0
