"""Backend units over D-Bus.

Signals are subscribed before the first call, so that no change between an observation and a wait is
lost.
Source: org.freedesktop.systemd1(5).

A unit loads every unit that it conflicts with, 500 of them in 1.3 s, and systemd forgets them all
at once when none is in use. So nothing here loads a unit to observe it: a unit that systemd does
not have in memory is stopped and never ran, and its file shows whether it is installed. A unit that
was seen in use is pinned (RefUnit), which keeps how it ended, and its rivals too.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from appliance.model.errors import PermissionDeniedError, UnitError
from appliance.model.names import (
    HOLD_UNIT,
    RUN_UNIT,
    build_unit_of,
    profile_of_build,
    unit_of,
)
from appliance.model.observed import ActiveState, Observed, ObservedUnit, stopped_at
from appliance.system.systemd.bus import (
    DENIED,
    MANAGER_PATH,
    AwaitedChange,
    CallError,
    ChangeNotifier,
    SystemBus,
    unit_path,
)
from appliance.system.systemd.unit_properties import GAVE_UP, NOT_COUNTED, gave_up, was_stopped
from appliance.wire.jobs import (
    FAILED,
    MAX_LINE_BYTES,
    NO_SUCH_UNIT,
    START,
    STOP,
    JobRefusedError,
    parse_answer,
)
from appliance.wire.sd_notify import is_load_status, is_of_running_engine

_TIMEOUT_S: Final = 25.0


class JobQueue:
    """Client on the socket of appliance-jobs.service."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def queue(self, verb: str, unit: str) -> str:
        """Queue a job; returns its object path.

        Args:
            verb: START or STOP of `appliance.wire.jobs`.
            unit: The unit's name.

        Raises:
            CallError: the job was refused, or the socket does not answer.
            TimeoutError: systemd does not answer.
        """
        async with asyncio.timeout(_TIMEOUT_S):
            try:
                line = await self._exchange(f"{verb} {unit}\n")
            except OSError as error:
                text = f"{self._path}: {error.strerror or error}: systemctl status appliance-jobs"
                raise CallError(FAILED, text) from error
        try:
            return parse_answer(line)
        except JobRefusedError as error:
            raise CallError(error.name, str(error)) from error

    async def _exchange(self, line: str) -> str:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_LINE_BYTES)
        try:
            writer.write(line.encode())
            await writer.drain()
            try:
                return (await reader.readline()).decode(errors="replace")
            except ValueError:
                return ""
        finally:
            writer.close()


# --- units over D-Bus ----------------------------------------------------------------

_SHUTDOWN: Final = "shutdown.target"
_HOLD_TIMEOUT_S: Final = 120.0
_ASKING_TIMEOUT_S: Final = 45.0
"""Longer than TimeoutStartSec= and TimeoutStopSec= of the units that ask engines."""
_MOST_EARLY: Final = 64
"""Jobs kept that ended before it was known whose they are; people start such units, too."""
_TELLING: Final = ("ActiveState", "SubState", "Job", "NeedDaemonReload")
"""Properties whose new values are worth an observation."""
_DETAILS: Final = (
    *("StatusText", "MainPID", "Result", "ExecMainStatus", "NRestarts"),
    *("ExecMainStartTimestamp", "ExecMainExitTimestampMonotonic", "Restart", "RestartUSec"),
)
_STALE: Final = "NeedDaemonReload"
_STARTED: Final = "InactiveExitTimestampMonotonic"
_TIMES: Final = (
    *("ActiveEnterTimestamp", "ActiveEnterTimestampMonotonic"),
    *("ActiveExitTimestampMonotonic", _STARTED),
    *("InactiveEnterTimestampMonotonic", "StateChangeTimestampMonotonic", _STALE),
)
_OPERATORS: Final = (HOLD_UNIT, RUN_UNIT)
_SYSTEM: Final = (*_OPERATORS, _SHUTDOWN)
_BACKENDS: Final = unit_of("*")
_ABSENT: Final = "not-found"
_AT_REST: Final = frozenset({ActiveState.INACTIVE, ActiveState.ACTIVE})


class SystemdUnits:
    """Port `Units`, on the system bus. Use it as an async context manager.

    Args:
        jobs: Socket of the program that queues jobs: polkit allows none over the bus.
        unit_dir: Directory of the generated units.
    """

    def __init__(self, jobs: Path, unit_dir: Path) -> None:
        self._queue = JobQueue(jobs)
        self._unit_dir = unit_dir
        self._bus = SystemBus(on_changed=self._changed, on_job_removed=self._job_removed)
        self._notifier = ChangeNotifier()
        self._boot_id = ""
        self._watched: set[str] = set()
        self._pinned: set[str] = set()
        self._pins_due: dict[str, bool] = {}
        """Units to be pinned (True) or unpinned."""
        self._pinning: asyncio.Task[None] | None = None
        self._at_rest: dict[str, Mapping[str, Any]] = {}
        """Details of units that ran or were idle when they were read, and have not changed
        since."""
        self._changes: Counter[str] = Counter()
        self._signals = 0
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
        self._watch(_SYSTEM)
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
        """Wait until the connection to the bus is lost."""
        await self._bus.closed()

    @property
    def boot_id(self) -> str:
        """Return the start time of this systemd: the kernel's boot id stays the same when a container boots."""
        return self._boot_id

    @property
    def signals(self) -> int:
        """Return how often systemd signalled anything about the observed units, hold or run."""
        return self._signals

    def change(self) -> AwaitedChange:
        """Return a watch on the next change of any unit of ours."""
        return self._notifier.change()

    async def observe(self, names: Iterable[str], *, full: bool = False) -> Observed:
        """Return the units of the profiles `names`, hold and run, and whether the system shuts down.

        Args:
            names: Profiles.
            full: With details for people: status text, times.
        """
        units = {unit_of(name): name for name in names}
        self._watch(units)
        try:
            rows = await self._list()
            self._keep(rows)
            asked = [unit for unit in (*units, RUN_UNIT) if unit in rows]
            looked = await asyncio.gather(*(self._unit(rows[unit], full=full) for unit in asked))
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        seen = dict(zip(asked, looked, strict=True))
        shutdown = rows[_SHUTDOWN]
        return Observed(
            units={
                name: seen[unit] if unit in seen else self._unloaded(unit)
                for unit, name in units.items()
            },
            run=seen[RUN_UNIT],
            hold_active=rows[HOLD_UNIT][3] == "active",
            # systemd itself calls this state "stopping".
            going_down=bool(shutdown[7]) or shutdown[3] in {"active", "activating"},
        )

    async def control_group(self, name: str) -> str:
        """Return the control group of profile `name` in systemd's tree; empty: no process of it runs."""
        try:
            values = await self._bus.get(unit_path(unit_of(name)), "Service", ("ControlGroup",))
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        return str(values["ControlGroup"])

    async def cpu_s(self, name: str) -> float | None:
        """Return the CPU time that the processes of profile `name` have used; None: not counted."""
        try:
            values = await self._bus.get(unit_path(unit_of(name)), "Service", ("CPUUsageNSec",))
        except (TimeoutError, CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        used_ns = int(values["CPUUsageNSec"])
        return None if used_ns == NOT_COUNTED else used_ns / 1e9

    async def start(self, name: str) -> None:
        """Queue a start of profile `name`, whose earlier starts do not count; does not wait."""
        await self._job(START, unit_of(name))

    async def stop(self, name: str) -> None:
        """Queue a stop of profile `name`; does not wait."""
        await self._job(STOP, unit_of(name))

    async def ask_build(self, name: str) -> None:
        """Have the program of profile `name` run for its build; returns when that run has ended."""
        unit = build_unit_of(name)
        self._watch((unit,))
        await self._await_job(await self._queued(START, unit), timeout_s=_ASKING_TIMEOUT_S)

    async def start_run(self) -> None:
        """Queue a start of the unit that runs a command of an operator; does not wait."""
        await self._job(START, RUN_UNIT)

    async def stop_run(self) -> None:
        """Queue a stop of the unit that runs a command, with everything in it; does not wait."""
        await self._job(STOP, RUN_UNIT)

    async def start_hold(self) -> None:
        """Start the unit that conflicts with every backend; returns when it is active."""
        await self._await_job(await self._job(START, HOLD_UNIT))

    async def stop_hold(self) -> None:
        """Stop the unit that conflicts with every backend."""
        await self._await_job(await self._job(STOP, HOLD_UNIT))

    def _watch(self, units: Iterable[str]) -> None:
        for unit in set(units) - self._watched:
            self._bus.watch(unit)
            self._watched.add(unit)

    async def _list(self) -> Mapping[str, Sequence[Any]]:
        """Return rows of the backends that systemd has in memory, of hold, run and the shutdown."""
        patterns = [*_SYSTEM, _BACKENDS]
        (listed,) = await self._bus.manager("ListUnitsByPatterns", "asas", [], patterns)
        rows = {row[0]: row for row in listed}
        if absent := [unit for unit in _SYSTEM if unit not in rows]:
            (listed,) = await self._bus.manager("ListUnitsByNames", "as", absent)
            rows |= {row[0]: row for row in listed}
        return rows

    def _unloaded(self, unit: str) -> ObservedUnit:
        """Return a unit that systemd does not have in memory; a masked one has no regular file."""
        return ObservedUnit(loaded=os.path.isfile(f"{self._unit_dir}/{unit}"))  # noqa: PTH113 - of hundreds

    # --- units that systemd keeps in memory -------------------------------------------

    def _keep(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Pin hold, run and units in use, at each observation until polkit allows it; unpin removed ones.

        Before the first `appliance apply` polkit allows none. A look loads hold and run where they are
        not pinned, which systemd signals as a change of what they conflict with: no look would hold.
        """
        for unit, (_name, _text, load, active, _sub, _following, _path, job_id, *_) in rows.items():
            if unit == _SHUTDOWN:
                continue
            if active != ActiveState.INACTIVE or job_id:
                self._pin_soon(unit)
            elif load == _ABSENT:
                self._pin_soon(unit, pinned=False)
            elif unit in _OPERATORS:
                self._pin_soon(unit)

    def _pin_soon(self, unit: str, *, pinned: bool = True) -> None:
        if (unit in self._pinned) != pinned:
            self._pins_due[unit] = pinned
        if self._pins_due and self._pinning is None:
            self._pinning = asyncio.create_task(self._pin())

    async def _pin(self) -> None:
        """Pin units, so that systemd keeps how they ended; it forgets stopped units at once."""
        try:
            while self._pins_due:
                unit, pinned = self._pins_due.popitem()
                if (unit in self._pinned) == pinned:
                    continue
                with contextlib.suppress(CallError, TimeoutError):
                    await self._bus.manager("RefUnit" if pinned else "UnrefUnit", "s", unit)
                    (self._pinned.add if pinned else self._pinned.discard)(unit)
        finally:
            self._pinning = None

    async def _unit(self, row: Sequence[Any], *, full: bool) -> ObservedUnit:
        """Return the unit of a row, with the details that matter in its state."""
        _name, _text, load, active, sub, _following, path, job_id, *_ = row
        state = ActiveState(active)
        details: Mapping[str, Any] = {}
        if full and state in _AT_REST and not job_id:
            details = await self._details_at_rest(path, runs=state is ActiveState.ACTIVE)
        elif full or state is ActiveState.FAILED:
            details = await self._details(path)
        elif sub.startswith("auto-restart"):
            details = await self._bus.get(path, "Service", _DETAILS)
        return ObservedUnit(
            active=state,
            sub=sub,
            has_job=bool(job_id),
            result=GAVE_UP
            if state is ActiveState.FAILED and gave_up(details)
            else details.get("Result", "success"),
            status_text=details.get("StatusText", ""),
            has_engine_text=is_of_running_engine(details.get("StatusText", "")),
            loading=is_load_status(details.get("StatusText", "")),
            main_pid=details.get("MainPID", 0),
            exit_status=details.get("ExecMainStatus", 0),
            restarts=details.get("NRestarts", 0),
            started_unix_s=details.get("ExecMainStartTimestamp", 0) / 1e6,
            since_unix_s=details.get("ActiveEnterTimestamp", 0) / 1e6,
            since_s=details.get("ActiveEnterTimestampMonotonic", 0) / 1e6,
            changed_s=details.get("StateChangeTimestampMonotonic", 0) / 1e6,
            stopped_s=stopped_at(
                active_exit_s=details.get("ActiveExitTimestampMonotonic", 0) / 1e6,
                inactive_exit_s=details.get("InactiveExitTimestampMonotonic", 0) / 1e6,
                main_exit_s=details.get("ExecMainExitTimestampMonotonic", 0) / 1e6,
                changed_s=details.get("StateChangeTimestampMonotonic", 0) / 1e6,
            ),
            was_stopped=state is ActiveState.FAILED and was_stopped(details),
            loaded=load == "loaded",
            needs_reload=details.get("NeedDaemonReload", False),
        )

    async def _details(self, path: str) -> Mapping[str, Any]:
        service = await self._bus.get(path, "Service", _DETAILS)
        return service | await self._bus.get(path, "Unit", _TIMES)

    async def _details_at_rest(self, path: str, *, runs: bool) -> Mapping[str, Any]:
        """Return the details of a unit that stays as it is, read again only once it has changed.

        No signal reports a change of its file, so that property is read each time; nor that a
        result was cleared (reset-failed), so only units without a result are remembered. Of a unit
        that never ran no details are read: after a reload of systemd most of hundreds are such.
        """
        if (known := self._at_rest.get(path)) is not None:
            return {**known, **await self._bus.get(path, "Unit", (_STALE,))}
        changes = self._changes[path]
        details: Mapping[str, Any] = {_STARTED: runs}
        if not runs:
            details = await self._bus.get(path, "Unit", (_STARTED, _STALE))
        if details[_STARTED]:
            details = await self._details(path)
        if details.get("Result", "success") == "success" and changes == self._changes[path]:
            self._at_rest[path] = details
        return details

    async def _job(self, verb: str, unit: str) -> str:
        job = await self._queued(verb, unit)
        self._pin_soon(unit)  # the job keeps it in memory until then
        return job

    async def _queued(self, verb: str, unit: str) -> str:
        try:
            return await self._queue.queue(verb, unit)
        except CallError as error:
            raise _translated(error, unit) from error
        except TimeoutError as error:
            raise UnitError(f"systemd does not answer about {unit}") from error

    async def _await_job(self, path: str, *, timeout_s: float = _HOLD_TIMEOUT_S) -> None:
        result = self._early.pop(path, None)
        if result is None:
            waiting = self._jobs[path] = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    result = await waiting
            except TimeoutError as error:
                raise UnitError(f"job {path} does not end: systemctl list-jobs") from error
            finally:
                self._jobs.pop(path, None)
        if result != "done":
            raise UnitError(f"job {path} ended with {result!r}")

    def _changed(self, path: str, values: Mapping[str, Any]) -> None:
        """Notify of new values only: systemd repeats values, and each notification costs a look."""
        self._signals += 1
        self._changes[path] += 1
        self._at_rest.pop(path, None)
        known = self._known.setdefault(path, {})
        news = {k: values[k] for k in _TELLING if k in values and values[k] != known.get(k)}
        if news:
            known.update(news)
            self._notifier.notify()

    def _job_removed(self, path: str, unit: str, result: str) -> None:
        """Resolve a job; the signal may arrive before the reply that names the job."""
        self._signals += 1
        self._known.pop(unit_path(unit), None)
        waiting = self._jobs.get(path)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        elif unit == HOLD_UNIT or profile_of_build(unit) is not None:
            self._early[path] = result
            while len(self._early) > _MOST_EARLY:
                del self._early[next(iter(self._early))]
        self._notifier.notify()


def _translated(error: CallError, unit: str) -> UnitError | PermissionDeniedError:
    if error.name in DENIED:
        return PermissionDeniedError(
            f"systemd does not let the supervisor touch {unit}: sudo appliance apply"
        )
    if error.name == NO_SUCH_UNIT:
        return UnitError(f"{unit} is not installed: sudo appliance apply")
    return UnitError(f"{unit}: {error}")
