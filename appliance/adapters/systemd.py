"""Backend units over D-Bus (org.freedesktop.systemd1), with dbus-fast.

Subscribes before it asks, so that no change between an observation and a wait is lost.
Source: org.freedesktop.systemd1(5).
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusError

from appliance.adapters.pulse import Pulse, PulseChange
from appliance.domain.errors import PermissionDeniedError, UnitError
from appliance.domain.names import HOLD_UNIT, profile_of, unit_of
from appliance.domain.observed import ActiveState, Observed, ObservedUnit

_log = logging.getLogger(__name__)

_DEST: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
_MANAGER: Final = f"{_DEST}.Manager"
_UNIT: Final = f"{_DEST}.Unit"
_SERVICE: Final = f"{_DEST}.Service"
_PROPERTIES: Final = "org.freedesktop.DBus.Properties"
_BUS: Final = "org.freedesktop.DBus"
_OURS: Final = f"{_PATH}/unit/appliance_2d"
"""Object paths of units whose name begins with ``appliance-``."""
_CALL_TIMEOUT_S: Final = 25.0
_HOLD_TIMEOUT_S: Final = 120.0
_NO_SUCH_UNIT: Final = f"{_DEST}.NoSuchUnit"
_DENIED: Final = frozenset(
    {f"{_BUS}.Error.AccessDenied", f"{_BUS}.Error.InteractiveAuthorizationRequired"}
)


class _CallError(Exception):
    """systemd answered a call with an error."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{text} [{name}]")
        self.name = name


class SystemdUnits:
    """The port `Units` on the system bus. Use it as an async context manager."""

    def __init__(self) -> None:
        self._bus: MessageBus | None = None
        self._pulse = Pulse()
        self._boot_id = ""
        self._jobs: dict[str, asyncio.Future[str]] = {}
        self._early: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                self._bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
                self._bus.add_message_handler(self._on_message)
                for rule in _match_rules():
                    await self._call(_BUS, "/org/freedesktop/DBus", _BUS, "AddMatch", "s", rule)
                await self._manager("Subscribe")
                self._boot_id = await self._when_booted()
        except (OSError, TimeoutError, DBusError, _CallError) as error:
            raise UnitError(f"cannot talk to systemd: {error}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bus is not None:
            self._bus.disconnect()

    async def closed(self) -> None:
        """Returns when the connection to the bus is lost."""
        if self._bus is not None:
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    @property
    def boot_id(self) -> str:
        """When this systemd began: the kernel's boot id does not change with a container's boot."""
        return self._boot_id

    async def _when_booted(self) -> str:
        times = ("UserspaceTimestamp", "UserspaceTimestampMonotonic")
        return "-".join([str(await self._get(_PATH, _MANAGER, name)) for name in times])

    def change(self) -> PulseChange:
        """Notices the next change of any unit of ours."""
        return self._pulse.change()

    async def observe(self, names: Iterable[str]) -> Observed:
        """The units of the profiles `names`, the hold unit and the system's state."""
        wanted = [unit_of(name) for name in names]
        try:
            listed, state = await asyncio.gather(
                self._manager("ListUnitsByNames", "as", [*wanted, HOLD_UNIT]),
                self._get(_PATH, _MANAGER, "SystemState"),
            )
            rows = {row[0]: row for row in listed[0]}
            units = await asyncio.gather(*(self._unit(rows[unit]) for unit in wanted))
        except (TimeoutError, DBusError, _CallError) as error:
            raise UnitError(f"cannot read units from systemd: {error}") from error
        return Observed(
            units={
                profile_of(unit) or unit: seen for unit, seen in zip(wanted, units, strict=True)
            },
            hold_active=rows[HOLD_UNIT][3] == "active",
            going_down=state == "stopping",
        )

    async def start(self, name: str) -> None:
        """Clear the start limit of profile `name` and queue its start; does not wait."""
        await self._clear_start_limit(unit_of(name))
        await self._job("StartUnit", unit_of(name))

    async def stop(self, name: str) -> None:
        """Queue a stop of profile `name`; does not wait."""
        await self._job("StopUnit", unit_of(name))

    async def start_hold(self) -> None:
        """Start the unit that conflicts with every backend; returns when it is active."""
        await self._await_job(await self._job("StartUnit", HOLD_UNIT))

    async def stop_hold(self) -> None:
        """Stop that unit."""
        await self._await_job(await self._job("StopUnit", HOLD_UNIT))

    async def _unit(self, row: Sequence[Any]) -> ObservedUnit:
        """One row of ListUnitsByNames, with details only where a process is or was."""
        _name, _text, load, active, sub, _following, path, job_id, *_ = row
        if active == "inactive" and not job_id:
            return ObservedUnit(sub=sub, loaded=load == "loaded")
        service, since, reload = await asyncio.gather(
            self._service(path),
            self._get(path, _UNIT, "ActiveEnterTimestamp"),
            self._get(path, _UNIT, "NeedDaemonReload"),
        )
        return ObservedUnit(
            active=ActiveState(active),
            sub=sub,
            has_job=bool(job_id),
            result=service["Result"],
            status_text=service["StatusText"],
            main_pid=service["MainPID"],
            exit_status=service["ExecMainStatus"],
            since_unix_s=since / 1e6,
            loaded=load == "loaded",
            needs_reload=reload,
        )

    async def _clear_start_limit(self, unit: str) -> None:
        """Starts by hand count against the limit too; a unit not in memory has none."""
        try:
            await self._manager("ResetFailedUnit", "s", unit)
        except _CallError as error:
            if error.name != _NO_SUCH_UNIT:
                raise _translated(error, unit) from error
        except TimeoutError as error:
            raise UnitError(f"systemd does not answer about {unit}") from error

    async def _job(self, verb: str, unit: str) -> str:
        try:
            (path,) = await self._manager(verb, "ss", unit, "replace")
        except _CallError as error:
            raise _translated(error, unit) from error
        except TimeoutError as error:
            raise UnitError(f"systemd does not answer about {unit}") from error
        return str(path)

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

    def _on_message(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        if message.member == "JobRemoved":
            _id, path, unit, result = message.body
            if unit == HOLD_UNIT:
                self._hold_job_ended(path, result)
            if unit == HOLD_UNIT or profile_of(unit):
                self._pulse.beat()
        elif message.member == "PropertiesChanged" and (message.path or "").startswith(_OURS):
            self._pulse.beat()

    def _hold_job_ended(self, path: str, result: str) -> None:
        """The signal may arrive before the reply that names the job."""
        waiting = self._jobs.get(path)
        if waiting is None:
            self._early = {path: result}
        elif not waiting.done():
            waiting.set_result(result)

    async def _manager(self, member: str, signature: str = "", *body: object) -> Sequence[Any]:
        return await self._call(_DEST, _PATH, _MANAGER, member, signature, *body)

    async def _get(self, path: str, interface: str, name: str) -> Any:
        (value,) = await self._call(_DEST, path, _PROPERTIES, "Get", "ss", interface, name)
        return value.value

    async def _service(self, path: str) -> dict[str, Any]:
        """The properties of a service that say how it is."""
        names = ("Result", "StatusText", "MainPID", "ExecMainStatus")
        values = await asyncio.gather(*(self._get(path, _SERVICE, name) for name in names))
        return dict(zip(names, values, strict=True))

    async def _call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str,
        *body: object,
    ) -> Sequence[Any]:
        if self._bus is None:
            raise UnitError("not connected to systemd")
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            reply = await self._bus.call(
                Message(
                    destination=destination,
                    path=path,
                    interface=interface,
                    member=member,
                    signature=signature,
                    body=list(body),
                )
            )
        if reply.message_type is MessageType.ERROR:
            text = str(reply.body[0]) if reply.body else member
            raise _CallError(reply.error_name or "unknown error", text)
        return reply.body


def _match_rules() -> Sequence[str]:
    sender = f"type='signal',sender='{_DEST}'"
    backends = f"{_PATH}/unit"
    return (
        f"{sender},interface='{_MANAGER}',member='JobRemoved'",
        f"{sender},interface='{_PROPERTIES}',path_namespace='{backends}',arg0='{_UNIT}'",
        f"{sender},interface='{_PROPERTIES}',path_namespace='{backends}',arg0='{_SERVICE}'",
    )


def _translated(error: _CallError, unit: str) -> UnitError | PermissionDeniedError:
    if error.name in _DENIED:
        return PermissionDeniedError(
            f"systemd does not let the supervisor touch {unit}: sudo appliance apply"
        )
    if error.name == _NO_SUCH_UNIT:
        return UnitError(f"{unit} is not installed: sudo appliance apply")
    return UnitError(f"{unit}: {error}")
