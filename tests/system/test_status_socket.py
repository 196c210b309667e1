"""The status socket under a real systemd: its rights, its watch, and a supervisor that was stopped."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from appliance.model.names import STATUS_SOCKET_UNIT
from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

PYTHON: Final = "/opt/appliance/current/bin/python"
FOLLOWER: Final = """
import asyncio, json
from pathlib import Path
from appliance.wire.status_stream import StatusFollower


async def follow():
    async for document in StatusFollower.on(Path("/run/appliance/status.sock")).documents():
        rows = [] if document is None else document.profiles
        serving = [row.name for row in rows if row.state == "serving"]
        print(json.dumps(None if document is None else serving), flush=True)


asyncio.run(follow())
"""
"""Prints the names that serve at each document, null when the connection is lost."""
GPUS: Final = """
import json
from appliance.wire.client import ask
from appliance.wire.status_socket import STATUS, GpuEvidenceRequest

print(json.dumps(ask(STATUS, "/run/appliance/status.sock", GpuEvidenceRequest()).details))
"""
"""Prints the state of the GPUs."""
OPEN: Final = "import socket; socket.socket(socket.AF_UNIX).connect('/run/appliance/{}.sock')"


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box on which a serves, with a process that follows the status and has no other right."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.switch("a")
        box.write("/etc/follower.py", FOLLOWER)
        box.run(
            *("systemd-run", "-q", "--unit=follower", "-p", "DynamicUser=no", "-p", "User=nobody"),
            *("-p", "SupplementaryGroups=appliance-status", "-p", "StandardOutput=file:/run/told"),
            *("-p", "LimitCORE=0", PYTHON, "-I", "/etc/follower.py"),
        )
        yield fleet


def told(fleet: Fleet) -> Sequence[object]:
    """Return what the follower was told, in order, each thing once until it changes."""
    lines = [json.loads(line) for line in fleet.box.run("cat /run/told").stdout.splitlines()]
    return [now for now, before in zip(lines, [..., *lines], strict=False) if now != before]


def until_told(fleet: Fleet, line: str) -> None:
    """Wait until the follower's last line is this one."""
    fleet.box.wait_for(f"tail -n 1 /run/told | grep -qxF '{line}'", timeout_s=20)


def test_a_watch_is_told_a_switch(fleet: Fleet) -> None:
    """The profiles that serve are told by themselves; the process has asked once."""
    until_told(fleet, '["a"]')
    fleet.switch("b")
    until_told(fleet, '["b"]')
    serving = told(fleet)
    assert (serving[0], serving[-1]) == (["a"], ["b"])
    assert None not in serving


@pytest.mark.parametrize("socket", ["control", "gateway", "request", "jobs", "token"])
def test_the_group_opens_no_other_socket(fleet: Fleet, socket: str) -> None:
    """Members may look; every socket on which something can be changed is closed to them."""
    become = "setpriv --reuid nobody --regid nogroup --groups appliance-status"
    fleet.box.run(f'{become} {PYTHON} -I -c "{OPEN.format("status")}"')
    closed = fleet.box.run(f'{become} {PYTHON} -I -c "{OPEN.format(socket)}"', check=False)
    assert "PermissionError" in closed.stderr
    stranger = "setpriv --reuid nobody --regid nogroup --clear-groups"
    closed = fleet.box.run(f'{stranger} {PYTHON} -I -c "{OPEN.format("status")}"', check=False)
    assert "PermissionError" in closed.stderr


def test_the_gpus_are_told_without_their_driver(fleet: Fleet) -> None:
    """A box without GPUs says so, to a process that may open no device."""
    fleet.box.write("/etc/gpus.py", GPUS)
    become = "setpriv --reuid nobody --regid nogroup --groups appliance-status"
    told = json.loads(fleet.box.run(f"{become} {PYTHON} -I /etc/gpus.py").stdout)
    assert told["gpus"] == []
    assert told["problem"]


def test_a_supervisor_that_dies_is_found_again(fleet: Fleet) -> None:
    """The follower is told of the loss, and by the next process what serves."""
    fleet.box.run("systemctl kill -s KILL appliance-supervisor")
    fleet.box.wait_for("grep -qx null /run/told", timeout_s=20)
    until_told(fleet, '["b"]')


def test_a_follower_starts_no_supervisor_that_was_stopped(fleet: Fleet) -> None:
    """The status socket stops with the service, though the control socket stays and can start it."""
    fleet.box.run("systemctl stop appliance-supervisor.service")
    until_told(fleet, "null")
    states = "systemctl is-active appliance-supervisor.service appliance-status.socket"
    # Longer than the first five pauses of the follower.
    assert fleet.box.run(f"sleep 3; {states}", check=False).stdout == "inactive\ninactive\n"
    fleet.box.run("systemctl start appliance-supervisor.service")
    until_told(fleet, '["b"]')
    fleet.box.run(f"systemctl is-active {STATUS_SOCKET_UNIT}")
    fleet.box.run("systemctl restart appliance-supervisor.service")
    fleet.box.run(f"systemctl is-active {STATUS_SOCKET_UNIT} appliance-supervisor.service")
    fleet.switch("a")
    until_told(fleet, '["a"]')


def test_restarts_in_a_row_leave_every_socket(fleet: Fleet) -> None:
    """However often daemons restart, their sockets stay; one that was stopped comes back as is advised."""
    daemons = "appliance-supervisor appliance-gateway appliance-health"
    fleet.box.run(f"for n in 1 2 3 4 5 6 7 8; do systemctl restart {daemons} || exit; done")
    sockets = "ls /usr/local/lib/systemd/system/appliance-*.socket | xargs -n1 basename"
    states = fleet.box.run(f"systemctl is-active $({sockets})").stdout.split()
    assert set(states) == {"active"}
    fleet.box.run(f"systemctl stop {STATUS_SOCKET_UNIT} && systemctl restart appliance-supervisor")
    assert fleet.box.run(f"systemctl is-active {STATUS_SOCKET_UNIT}").stdout.strip() == "active"
    until_told(fleet, '["a"]')
