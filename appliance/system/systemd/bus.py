"""Connection to systemd over the system bus: calls, properties, signals, and events for their changes.

The only module that imports dbus-fast. Errors become `CallError` or `UnitError`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusError

from appliance.model.errors import UnitError

SYSTEMD: Final = "org.freedesktop.systemd1"
MANAGER_PATH: Final = "/org/freedesktop/systemd1"
MANAGER: Final = f"{SYSTEMD}.Manager"
_PROPERTIES: Final = "org.freedesktop.DBus.Properties"
_BUS: Final = "org.freedesktop.DBus"
_BUS_PATH: Final = "/org/freedesktop/DBus"
_TIMEOUT_S: Final = 25.0
_JOB_REMOVED: Final = f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'"
_UNIT_CHANGED: Final = (
    f"type='signal',sender='{SYSTEMD}',interface='{_PROPERTIES}',member='PropertiesChanged',"
    f"path_namespace='{MANAGER_PATH}/unit',arg0='{SYSTEMD}.Unit'"
)
"""Match rules for all units at once: dbus-daemon allows a connection 512, and each rule costs time.
Rules are for properties of every unit only: signals of a service's properties come with each of its
messages, and reading them all costs more than one call for the property that matters."""
_MOST_CALLS: Final = 64
"""Limit of pending calls: dbus-daemon ends a connection's 129th with an error (dbus-daemon(1))."""
DENIED: Final = frozenset(
    {f"{_BUS}.Error.AccessDenied", f"{_BUS}.Error.InteractiveAuthorizationRequired"}
)

OnChanged = Callable[[str, Mapping[str, Any]], None]
"""Callback with the path of a unit and its new property values by name."""
OnJobRemoved = Callable[[str, str, str], None]
"""Callback with path, unit and result of a job that ended."""


class CallError(Exception):
    """Error answer of systemd to a call. `name` is the error's D-Bus name."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{text} [{name}]")
        self.name = name


class SystemBus:
    """Connection to the bus, used as an async context manager.

    Args:
        on_changed: Called for units that `watch` was given.
        on_job_removed: Called for units that `watch` was given.
    """

    def __init__(self, *, on_changed: OnChanged, on_job_removed: OnJobRemoved) -> None:
        self._on_changed = on_changed
        self._on_job_removed = on_job_removed
        self._bus: MessageBus | None = None
        self._turns = asyncio.Semaphore(_MOST_CALLS)
        self._watched: set[str] = set()
        """Units and their object paths, as keys to each other; no text is both."""

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                self._bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
                self._bus.add_message_handler(self._on_message)
                for rule in (_JOB_REMOVED, _UNIT_CHANGED):
                    await self._call(_BUS, _BUS_PATH, _BUS, "AddMatch", "s", rule)
                await self.manager("Subscribe")
        except (OSError, TimeoutError, DBusError, CallError) as error:
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
        """Wait until the connection is lost."""
        if self._bus is not None:
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    def watch(self, unit: str) -> None:
        """Report from now on changes of state of `unit`, and the ends of its jobs."""
        self._watched |= {unit, unit_path(unit)}

    async def manager(self, member: str, signature: str = "", *body: object) -> Sequence[Any]:
        """Call a method of systemd's manager. Raises `CallError` or TimeoutError."""
        return await self._call(SYSTEMD, MANAGER_PATH, MANAGER, member, signature, *body)

    async def get(self, path: str, interface: str, names: Sequence[str]) -> dict[str, Any]:
        """Return properties of one object. Raises `CallError` or TimeoutError."""
        replies = await asyncio.gather(
            *(
                self._call(SYSTEMD, path, _PROPERTIES, "Get", "ss", f"{SYSTEMD}.{interface}", name)
                for name in names
            )
        )
        return {name: reply[0].value for name, reply in zip(names, replies, strict=True)}

    def _on_message(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        if message.member == "JobRemoved":
            _id, path, unit, result = message.body
            if unit in self._watched:
                self._on_job_removed(path, unit, result)
        elif message.member == "PropertiesChanged" and message.path in self._watched:
            values = {name: variant.value for name, variant in message.body[1].items()}
            self._on_changed(message.path, values)

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
        async with asyncio.timeout(_TIMEOUT_S), self._turns:
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
            raise CallError(reply.error_name or "unknown error", text)
        return reply.body


def unit_path(unit: str) -> str:
    """Return the object path of a unit; all but letters and digits become _ and two hex digits."""
    escaped = "".join(
        c if c.isascii() and c.isalnum() and not (i == 0 and c.isdigit()) else f"_{ord(c):02x}"
        for i, c in enumerate(unit)
    )
    return f"{MANAGER_PATH}/unit/{escaped}"


class AwaitedChange:
    """Next change as one waiter awaits it: taken from a `ChangeNotifier` before the look."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, timeout_s: float) -> bool:
        """Tell whether something changed since this was taken; False: `timeout_s` passed."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True

    def has_happened(self) -> bool:
        """Tell whether something has changed since this was taken."""
        return self._event.is_set()


class ChangeNotifier:
    """Broadcast event that re-arms itself: no change between a look and a wait is lost."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake every waiter that took a change before this call."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def change(self) -> AwaitedChange:
        """Return the next change, to be awaited after a look."""
        return AwaitedChange(self._event)
