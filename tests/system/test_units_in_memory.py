"""Units that systemd keeps in memory for the supervisor, and those that it does not load for it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

_A = "appliance-backend-a.service"
_LISTED = "systemctl list-units --all --plain --no-legend 'appliance-backend-*'"
"""Loads nothing."""


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """A box with two profiles that can never run together."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """Shared box, on which no model runs."""
    shared.restore(None)
    return shared


def _in_memory(fleet: Fleet) -> list[str]:
    return [line.split()[0] for line in fleet.box.run(_LISTED).stdout.splitlines() if line.strip()]


# The first test: no unit of this box has run before it.
def test_a_look_at_profiles_loads_none_of_their_units(fleet: Fleet) -> None:
    """While nothing has run, systemd has no backend in memory, whatever is asked and applied."""
    states = {p["name"]: p["state"] for p in fleet.status()["profiles"]}
    fleet.profile("c", 9003)
    fleet.apply()
    assert states == {"a": "stopped", "b": "stopped"}
    assert len(fleet.status()["profiles"]) == 3
    assert _in_memory(fleet) == []
    fleet.switch("a")
    fleet.switch("c")


def test_looks_change_nothing_that_systemd_signals(fleet: Fleet) -> None:
    """The unit of `run` stays in memory, also where the supervisor began before polkit allowed it.

    A look that loads it makes systemd signal a change, and a status after a change looks again.
    """
    fleet.switch("a")
    listed = "systemctl list-units --all --plain --no-legend appliance-run.service"
    for _ in range(2):
        fleet.status()
        fleet.box.wait_for(f"{listed} | grep -q loaded")
        fleet.box.run("systemctl daemon-reload")


def test_a_unit_without_a_file_is_missing_though_systemd_does_not_know_it(fleet: Fleet) -> None:
    """A unit file that somebody removed is found missing, and a switch to it is refused."""
    fleet.box.run(f"rm /etc/systemd/system/{_A} && systemctl daemon-reload")
    assert fleet.cli("switch", "a").exit != 0
    fleet.switch("b")
    assert fleet.active() == ["b"]


def test_a_unit_that_ran_stays_in_memory_after_its_stop(fleet: Fleet) -> None:
    """Systemd keeps how it ended, although nothing else runs."""
    fleet.switch("a")
    assert fleet.cli("stop").exit == 0
    fleet.box.run("systemctl daemon-reload")
    assert _A in _in_memory(fleet)
    assert fleet.show("a", "InactiveExitTimestampMonotonic") != "0"


def test_the_unit_of_a_removed_profile_is_let_go(fleet: Fleet) -> None:
    """Systemd forgets a unit that ran once its profile is gone, and a new one by its name works."""
    fleet.switch("a")
    fleet.switch("b")
    for _ in range(2):
        fleet.box.run("rm /etc/appliance/profiles/a.toml")
        fleet.apply()
        fleet.box.wait_for(f"! {_LISTED} | grep -q {_A}")
        fleet.profile("a", 9001)
        fleet.apply()
        fleet.switch("a")
        fleet.switch("b")


_SAY = """
echo $$ >/sys/fs/cgroup$(systemctl show -P ControlGroup appliance-backend-a)/cgroup.procs
NOTIFY_SOCKET=/run/systemd/notify systemd-notify --status='busy with it'
"""


def test_a_status_right_after_a_change_shows_it(fleet: Fleet) -> None:
    """A new status text, a stop, a start and a death by hand are in the next status."""
    fleet.switch("a")

    def row() -> Mapping[str, Any]:
        return next(p for p in fleet.status()["profiles"] if p["name"] == "a")

    first = row()
    assert (first["state"], first["main_pid"]) == ("serving", fleet.main_pid("a"))
    fleet.box.run("sh", "-c", _SAY)
    assert row()["status_text"] == "busy with it"
    fleet.box.run(f"systemctl stop {_A}")
    assert (row()["state"], row()["main_pid"]) == ("stopped", None)
    fleet.box.run(f"systemctl start {_A}")
    assert row()["main_pid"] == fleet.main_pid("a") != first["main_pid"]
