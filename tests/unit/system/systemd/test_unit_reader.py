"""Reader of units, on an in-memory bus."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pytest

from appliance.model.errors import UnitError
from appliance.model.observed import ActiveState
from appliance.system.systemd.bus import CallError, OnChanged, SystemBus, unit_path
from appliance.system.systemd.unit_reader import SystemUnitReader

A, B = "appliance-backend-a.service", "appliance-backend-b.service"
NOT_COUNTED = (1 << 64) - 1
RUNNING: dict[str, Any] = {
    "Result": "success",
    "NRestarts": 2,
    "MainPID": 77,
    "ExecMainStatus": 0,
    "StatusText": "serving",
    "IPAccounting": True,
    "IPEgressBytes": 0,
    "ExecMainExitTimestampMonotonic": 0,
    "Restart": "always",
    "RestartUSec": 5_000_000,
    "ActiveEnterTimestamp": 7_000_000,
    "InactiveEnterTimestampMonotonic": 0,
    "InactiveExitTimestampMonotonic": 0,
    "ActiveExitTimestampMonotonic": 0,
    "CPUUsageNSec": 3_000_000_000,
    "UserspaceTimestamp": 4_000_000,
}


class Systemd:
    """Units of a systemd, of which each call is counted."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}
        self.properties: dict[str, Any] = dict(RUNNING)
        self.calls: list[str] = []
        self.connections = 0
        self.fault: Exception | None = None
        self.on_changed: OnChanged = lambda _path, _values: None
        self.now_s = 0.0

    def show(self, unit: str, active: str = "active", sub: str = "running") -> None:
        """Have a unit in memory, in this state."""
        load, job = "loaded", 0
        self.rows[unit] = [unit, "text", load, active, sub, "", unit_path(unit), job, "", "/"]

    def open(self, *, on_changed: OnChanged, on_job_removed: object) -> "FakeBus":
        """Make a connection."""
        assert callable(on_job_removed)
        self.on_changed = on_changed
        self.connections += 1
        return FakeBus(self)

    def details(self) -> int:
        """Return how often the result of a unit was asked for."""
        return self.calls.count("Result")


class FakeBus(SystemBus):
    """Connection to it."""

    def __init__(self, systemd: Systemd) -> None:
        super().__init__(on_changed=lambda *_: None, on_job_removed=lambda *_: None)
        self._systemd = systemd

    async def __aenter__(self) -> Self:
        if self._systemd.fault is not None:
            raise UnitError("cannot talk to systemd")
        return self

    async def manager(self, member: str, signature: str = "", *body: object) -> Sequence[Any]:
        if self._systemd.fault is not None:
            raise self._systemd.fault
        assert (member, signature, body[0]) == ("ListUnitsByPatterns", "asas", [])
        wanted = body[1]
        assert isinstance(wanted, list)
        return ([row for name, row in self._systemd.rows.items() if name in wanted],)

    async def get(self, path: str, interface: str, names: Sequence[str]) -> dict[str, Any]:
        assert interface in {"Manager", "Service", "Unit"}
        assert path.startswith("/org/freedesktop/systemd1")
        self._systemd.calls += names
        return {name: self._systemd.properties[name] for name in names}


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def reader(systemd: Systemd) -> SystemUnitReader:
    return SystemUnitReader("/nowhere", lambda: systemd.now_s, systemd.open)


async def test_a_unit_is_read_with_its_details(systemd: Systemd, reader: SystemUnitReader) -> None:
    """State, restarts, main process, start and filter come from systemd itself."""
    systemd.show(A)
    reading = (await reader.units([A]))[A]
    look = reading.look
    assert (look.active, look.sub, look.loaded) == (ActiveState.ACTIVE, "running", True)
    assert (look.result, look.restarts, look.main_pid) == ("success", 2, 77)
    assert (look.active_since_unix_s, look.status_text, look.is_filtered) == (7.0, "serving", True)
    assert (reading.cpu_s, reading.exit_status, reading.has_job) == (3.0, 0, False)
    assert reader.booted_unix_s == 4.0


async def test_a_unit_that_is_not_in_memory_never_ran(
    systemd: Systemd, reader: SystemUnitReader
) -> None:
    """No unit is loaded to be observed; whether it is installed tells its file."""
    systemd.show(A)
    look = (await reader.units([A, B]))[B].look
    assert (look.active, look.loaded, look.active_since_unix_s) == (
        ActiveState.INACTIVE,
        False,
        None,
    )


Change = Callable[[Systemd], None]


def pass_a_minute(systemd: Systemd) -> None:
    """Let the details grow old."""
    systemd.now_s += 61.0


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        (lambda _: None, False),
        (lambda s: s.on_changed(unit_path(A), {"ActiveState": "active"}), True),
        (lambda s: s.on_changed(unit_path(B), {"ActiveState": "active"}), False),
        (lambda s: s.show(A, "deactivating", "stop-sigterm"), True),
        (pass_a_minute, True),
    ],
    ids=["nothing", "signal", "of another", "another state", "age"],
)
async def test_details_are_read_again_after_a_change(
    systemd: Systemd, reader: SystemUnitReader, change: Change, *, is_read: bool
) -> None:
    """A steady unit costs one list, and one call for its CPU time."""
    systemd.show(A)
    await reader.units([A])
    change(systemd)
    systemd.calls.clear()
    systemd.properties["CPUUsageNSec"] = 4_000_000_000
    assert (await reader.units([A]))[A].cpu_s == 4.0
    assert systemd.details() == is_read


async def test_a_unit_that_changes_is_read_at_each_look(
    systemd: Systemd, reader: SystemUnitReader
) -> None:
    """While a unit starts its text changes, which no signal tells."""
    systemd.show(A, "activating", "start")
    await reader.units([A])
    systemd.properties["StatusText"] = "loading: 4 GiB"
    assert (await reader.units([A]))[A].look.status_text == "loading: 4 GiB"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, True),
        ({"IPEgressBytes": NOT_COUNTED}, False),
        ({"IPAccounting": False, "IPEgressBytes": NOT_COUNTED}, None),
        ({"MainPID": 0, "IPEgressBytes": NOT_COUNTED}, None),
    ],
)
async def test_a_filter_is_enforced_where_bytes_are_counted(
    systemd: Systemd,
    reader: SystemUnitReader,
    properties: Mapping[str, Any],
    expected: bool | None,  # noqa: FBT001 - a column of the table
) -> None:
    """A running unit that asks for accounting and has none has no filter either."""
    systemd.show(A)
    systemd.properties |= properties
    assert (await reader.units([A]))[A].look.is_filtered is expected


async def test_a_unit_that_failed_too_often_is_told(
    systemd: Systemd, reader: SystemUnitReader
) -> None:
    """The result stays of the crash; that it waited for a restart before tells the limit."""
    systemd.show(A, "failed", "failed")
    systemd.properties |= {"Result": "exit-code", "MainPID": 0, "ExecMainStatus": 3}
    reading = (await reader.units([A]))[A]
    assert (reading.look.result, reading.exit_status, reading.cpu_s) == ("exit-code", 3, None)
    assert reading.look.was_stopped, "nothing restarts it, though it is to be restarted always"
    systemd.properties |= {
        "ExecMainExitTimestampMonotonic": 1_000_000,
        "InactiveEnterTimestampMonotonic": 6_000_000,
    }
    look = (await reader.units([A]))[A].look
    assert (look.result, look.was_stopped) == ("start-limit-hit", False)


async def test_units_of_other_kinds_have_a_state(
    systemd: Systemd, reader: SystemUnitReader
) -> None:
    """A timer or mount that is watched has no main process to ask for."""
    systemd.show("data.mount", "active", "mounted")
    look = (await reader.units(["data.mount"]))["data.mount"].look
    assert (look.active, look.main_pid, look.is_filtered) == (ActiveState.ACTIVE, 0, None)
    assert systemd.details() == 0


async def test_cpu_time_that_is_not_counted_is_none(
    systemd: Systemd, reader: SystemUnitReader
) -> None:
    """A unit without accounting has no CPU time, which is not zero."""
    systemd.show(A)
    systemd.properties["CPUUsageNSec"] = NOT_COUNTED
    assert (await reader.units([A]))[A].cpu_s is None


@pytest.mark.parametrize(
    "fault", [CallError("x", "gone"), TimeoutError(), ConnectionError("gone"), EOFError()]
)
async def test_a_lost_connection_is_made_again(
    systemd: Systemd, reader: SystemUnitReader, fault: Exception
) -> None:
    """A fault is an error of this look; the next one connects anew and reads everything."""
    systemd.show(A)
    await reader.units([A])
    systemd.fault = fault
    for _ in range(2):
        with pytest.raises(UnitError, match="systemd"):
            await reader.units([A])
    systemd.fault = None
    systemd.calls.clear()
    assert (await reader.units([A]))[A].look.main_pid == 77
    assert systemd.details() == 1
    assert systemd.connections == 3
    await reader.close()
