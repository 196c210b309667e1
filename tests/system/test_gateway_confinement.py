"""A gateway that was taken over: what it can do, in exactly the sandbox of its unit."""

import json
from collections.abc import Iterator, Mapping

import pytest

from tests.system.fleet import Fleet
from tests.system.intrusion import described, intrude, succeeded
from tests.system.rig import Box, Image

LAUNCHER = """
import os, shutil, socket, time
path = "/run/appliance-run/socket"
listener = socket.socket(socket.AF_UNIX)
listener.bind(path + ".new")
shutil.chown(path + ".new", group="appliance-operators")
os.chmod(path + ".new", 0o660)
listener.listen()
os.rename(path + ".new", path)
time.sleep(60)
"""
"""Listens as the program behind `appliance run` does, for longer, and while models serve."""
ALLOWED = frozenset({"read the keys", "switch on request"})
NEVER = frozenset(
    {
        "write the manifest",
        "write the settings",
        "add a lease",
        "read others' credentials",
        "write an engine's memory",
        "signal an engine",
        "switch to what is not on request",
        "hold through the request socket",
        "probe as the health agent",
        "ask as the page",
        "watch the supervisor",
        "clear units",
    }
)
"""Closed to the supervisor's user as well."""


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box on which a serves, a key is kept, and requests may switch to a, not to b."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.profile("a", 9001, tables='[gateway]\nswitch = "on-request"\n')
        fleet.profile("b", 9002)
        box.write("/etc/appliance/appliance.toml", '[gateway]\nmin_residency = "0s"\n')
        fleet.apply()
        fleet.switch("a")
        box.run("appliance key add phone")
        box.run(
            "install -d -m 700 /run/credentials/x; install -m 600 /dev/null /run/credentials/x/secret"
        )
        yield fleet


def intrusion(fleet: Fleet, *settings: str) -> Mapping[str, str]:
    """Return the intruder's findings in the gateway's sandbox, with more settings of the unit."""
    box = fleet.box
    box.run("rm -f /run/appliance-run/socket")
    box.run("systemd-run", "-q", "--unit=launcher", "/usr/bin/python3", "-c", LAUNCHER)
    box.wait_for("test -S /run/appliance-run/socket")
    # Else the directory of the real one would change hands.
    found = intrude(fleet, "appliance-gateway", "a", "RuntimeDirectory=", *settings)
    box.run("systemctl stop launcher")
    return found


def test_a_taken_over_gateway_stays_in_its_sandbox(fleet: Fleet) -> None:
    """A gateway can read hashes of keys and ask for switches on request, and nothing else."""
    found = intrusion(fleet)
    assert succeeded(found) == ALLOWED, described(found)


def test_with_the_supervisors_user_every_way_was_open(fleet: Fleet) -> None:
    """The same program as the supervisor's user and an operator shows that it can succeed."""
    found = intrusion(
        fleet,
        "User=appliance",
        "Group=appliance",
        "SupplementaryGroups=appliance-operators",
        "InaccessiblePaths=",
        "ProtectSystem=no",
        "ProtectProc=default",
        "SystemCallFilter=",
    )
    closed = found.keys() - succeeded(found)
    # The request socket knows its one client by the uid.
    assert closed == NEVER | {"switch on request"}, described(found)


def test_what_it_is_for_still_works(fleet: Fleet) -> None:
    """A request of a client with a key switches the box, and the key is named."""
    fleet.switch("b")
    key = fleet.box.run("appliance key add tablet --may-switch").stdout.strip()
    body = '{"model": "a", "prompt": "x"}'
    ask = f"curl -sf -m 20 http://127.0.0.1:8010/v1/completions -H 'x-api-key: {key}' -d '{body}'"
    fleet.box.wait_for(ask, timeout_s=20)
    assert fleet.active() == ["a"]
    told = "switch a for key tablet as appliance-gateway (uid "
    assert told in fleet.box.journal("-u", "appliance-supervisor")


def test_the_launcher_refuses_services(fleet: Fleet) -> None:
    """A daemon's user that became an operator by some mistake gets no command run."""
    become = "setpriv --reuid appliance --regid appliance --groups appliance-operators"
    call = "import socket; c = socket.socket(1); c.connect('/run/appliance-run/socket')"
    fleet.await_command()
    told = fleet.box.run(f'{become} python3 -c "{call}; print(c.makefile().read())"').stdout
    assert json.loads(told)["event"] == "refused"
    fleet.box.run("systemctl stop appliance-run")
    journal = fleet.box.journal("-u", "appliance-run")
    assert "user appliance (uid " in journal
    assert "is a service" in journal


def test_a_supervisor_that_was_stopped_stays_so(fleet: Fleet) -> None:
    """The gateway's socket goes and comes with the control socket: no request starts it again."""
    both = "appliance-supervisor.socket appliance-supervisor"
    fleet.box.run(f"systemctl stop {both}")
    done = fleet.box.run("systemctl is-active appliance-request.socket", check=False)
    assert done.stdout == "inactive\n"
    fleet.box.run(f"systemctl start {both}")
    fleet.box.run("systemctl is-active appliance-request.socket appliance-supervisor")
    fleet.switch("b")
