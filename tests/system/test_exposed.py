# ruff: noqa: S104 - engines that listen on all addresses are what is looked for
"""Exposed listeners on a booted box: what the auditor tells, and what its and the checker's sandboxes allow."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from appliance.model.names import AUDITOR_USER, CHECKER_USER, HEALTH_USER
from tests.system.fleet import ENGINE, OPERATOR, STRANGER, Fleet
from tests.system.intrusion import described, intrude, succeeded
from tests.system.rig import Box, Image

FAR = "ip netns exec far"
"""Another machine: a network of its own at the other end of a cable."""
NEAR_IP, FAR_IP = "10.20.0.1", "10.20.0.2"
EVERYWHERE = "0"
"""Address of all interfaces, in a form that `appliance apply` does not know."""
ASK = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(20)
    connection.connect(sys.argv[1])
    request = {"protocol": {"min": 1, "max": 1}, "verb": sys.argv[2], "args": json.loads(sys.argv[3])}
    connection.sendall(json.dumps(request).encode() + b"\\n")
    print(connection.makefile().readlines()[-1])
"""
"""Asks on a socket, and prints the closing event."""
ELSEWHERE = """
import ctypes, signal, socket
def listening(port):
    one = socket.socket()
    one.bind(("0.0.0.0", port))
    one.listen()
    return one
before = listening(9301)
assert ctypes.CDLL(None).unshare(0x40000000) == 0
after = listening(9302)
signal.pause()
"""
"""Listens in the box's network, moves into one of its own, and listens there too."""
TOLD_WITHIN_S = 30.0
PATIENCE_S = 90.0
"""Time for a look at the GPUs, then one at the sockets and one of the watchdog, on a busy machine."""
AUDITOR_MAY = frozenset(
    {
        "see an engine's descriptors",
        "see the box's network",
        "read an engine's environment",
        "read the keys through another root",
    }
)
CHECKER_MAY = frozenset(
    {"reach the gateway's address", "reach an engine past the gateway", "listen"}
)
OPEN = (
    *("User=root", "Group=root", "CapabilityBoundingSet=~", "AmbientCapabilities="),
    *("PrivateNetwork=no", "IPAddressDeny=", "RestrictAddressFamilies=", "SystemCallFilter="),
    *("InaccessiblePaths=", "ProtectSystem=no", "ProtectProc=default", "RestrictNamespaces=no"),
)
"""Settings of a unit without a sandbox."""


@pytest.fixture(scope="module")
def fleet(gpu_image: Image) -> Iterator[Fleet]:
    """A box on which a listens on all addresses, whatever it is told, and b on loopback; with a cable."""
    with Box(gpu_image) as box:
        fleet = Fleet(box)
        fleet.people()
        fleet.profile("a", 9001, "--where", EVERYWHERE)
        fleet.profile("b", 9002)
        fleet.apply()
        box.run(
            f"ip netns add far; ip link add wg0 type veth peer name near netns far;"
            f" ip addr add {NEAR_IP}/24 dev wg0; ip link set wg0 up;"
            f" {FAR} ip addr add {FAR_IP}/24 dev near; {FAR} ip link set near up;"
            " appliance key add phone >/root/key"
        )
        fleet.switch("a")
        argv = ("/usr/bin/python3", "-S", ENGINE, "9100", "--where", EVERYWHERE, "--vram", "0:2")
        foreign(fleet, "miner", *argv)
        box.wait_for_listener(9100)
        yield fleet


def ask(fleet: Fleet, name: str, verb: str, **args: object) -> Mapping[str, Any]:
    """The closing event of a conversation that the health agent's user has."""
    argv = ["/usr/bin/python3", "-c", ASK, f"/run/appliance/{name}.sock", verb, json.dumps(args)]
    event: Mapping[str, Any] = json.loads(fleet.box.run(*argv, user=HEALTH_USER).stdout)
    assert event["event"] == "result", event
    return event


def listeners(fleet: Fleet, *pids: int) -> Mapping[int, Mapping[str, Any]]:
    """Listeners that the auditor tells of the box and of some processes, by port."""
    told = ask(fleet, "audit", "listeners", pids=pids)
    assert told["truncated"] is False
    return {one["port"]: one for one in told["listeners"]}


def reaches(fleet: Fleet, port: int) -> bool:
    """Whether another machine can connect to a port of the box."""
    connect = f"import socket; socket.create_connection(('{NEAR_IP}', {port}), timeout=2)"
    done = fleet.box.run(f'{FAR} python3 -c "{connect}"', check=False)
    return done.returncode == 0


def foreign(fleet: Fleet, name: str, *argv: str, user: str = STRANGER) -> int:
    """Start a unit that is not ours; its process."""
    fleet.box.run("systemd-run", "-q", f"--unit={name}", f"--uid={user}", *argv)
    return int(fleet.box.run(f"systemctl show -P MainPID {name}").stdout)


def exposed(fleet: Fleet, subject: str) -> Sequence[Mapping[str, Any]]:
    """Alerts of the agent that a subject listens beyond loopback, and fire."""
    document = json.loads(fleet.box.run("appliance", "alerts", "--json", user=OPERATOR).stdout)
    found = [a for a in document["alerts"] if a["rule"] == "exposed" and a["fired_unix_s"]]
    return [one for one in found if one["subject"] == subject]


def until(fleet: Fleet, condition: Callable[[], object]) -> None:
    """Wait until a condition about alerts holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        journal = fleet.box.journal("-u", "appliance-health", "-n", "40")
        assert time.monotonic() < deadline, journal
        time.sleep(0.5)


def test_an_engine_that_ignores_its_host_is_told_and_not_reached(fleet: Fleet) -> None:
    """A backend on all addresses is told within a second, and its unit's filter keeps others away."""
    one = listeners(fleet)[9001]
    pid = fleet.main_pid("a")
    assert one == {
        "address": "0.0.0.0",
        "port": 9001,
        "pid": pid,
        "process": "python3",
        "unit": "appliance-backend-a.service",
        "is_reachable": True,
    }
    took = []
    for _ in range(3):
        began = time.monotonic()
        listeners(fleet)
        took.append(time.monotonic() - began)
    assert min(took) < 1.0
    assert not reaches(fleet, 9001)


def test_an_exposed_engine_is_alerted(fleet: Fleet) -> None:
    """The agent alerts of a backend on all addresses within half a minute of its start."""
    until(fleet, lambda: exposed(fleet, "profile:a"))
    (alert,) = exposed(fleet, "profile:a")
    started = 'date +%s -d "$(systemctl show -P ActiveEnterTimestamp appliance-backend-a)"'
    assert alert["fired_unix_s"] - int(fleet.box.run(started).stdout) < TOLD_WITHIN_S
    assert alert["fact"] == "exposed: python3 listens on 0.0.0.0:9001"
    assert "the filter of its unit still keeps other machines out" in alert["details"]


def test_an_engine_on_loopback_is_told_as_such(fleet: Fleet) -> None:
    """A backend that listens where it is told to is no exposure."""
    fleet.switch("b")
    told = listeners(fleet)
    fleet.switch("a")
    assert told.keys() == {9002}
    assert (told[9002]["address"], told[9002]["is_reachable"]) == ("127.0.0.1", False)


def test_a_foreign_process_is_told_when_it_is_asked_for(fleet: Fleet) -> None:
    """A process of a person that listens on all addresses is named with its unit; others can reach it."""
    pid = int(fleet.box.run("systemctl show -P MainPID miner").stdout)
    assert 9100 not in listeners(fleet)
    one = listeners(fleet, pid)[9100]
    assert (one["pid"], one["unit"], one["is_reachable"]) == (pid, "miner.service", True)
    assert reaches(fleet, 9100)


def test_another_network_is_told_apart(fleet: Fleet) -> None:
    """Addresses of a network of one's own are not the box's; a socket that was taken along is."""
    fleet.box.write("/usr/local/lib/elsewhere.py", ELSEWHERE)
    pid = foreign(
        fleet, "elsewhere", "/usr/bin/python3", "/usr/local/lib/elsewhere.py", user="root"
    )
    fleet.box.wait_for(f"grep -q ':2456 ' /proc/{pid}/net/tcp")
    told = listeners(fleet, pid)
    assert {port: one["is_reachable"] for port, one in told.items()} == {
        9001: True,
        9301: True,
        9302: False,
    }


def test_watched_addresses_are_checked(fleet: Fleet) -> None:
    """The checker reaches this box and other machines, and says in its own words what is wrong.

    Its unit's status counts, and names no address; the auditor's filter leaves that one without a line.
    """
    serve = f"python3 -m http.server --bind {FAR_IP} 8000 >/dev/null 2>&1"
    fleet.box.run(f"cd / && systemd-run -q --unit=far-server sh -c '{FAR} {serve}'")
    fleet.box.wait_for(f"curl -sf -o /dev/null http://{FAR_IP}:8000/etc/hostname")
    expected = {
        f"http://{FAR_IP}:8000/etc/hostname": (True, 200, ""),
        f"http://{FAR_IP}:8000/nothing": (False, 404, "status 404"),
        f"http://{FAR_IP}:8001/": (False, None, "connection refused"),
        "http://127.0.0.1:9001/health": (True, 200, ""),
        "http://box.invalid/": (False, None, None),
    }
    for url, (up, status, detail) in expected.items():
        told = ask(fleet, "check", "url", url=url, timeout_s=5.0)
        assert (told["up"], told["status"]) == (up, status), told
        assert detail is None or told["detail"] == detail
    line = fleet.box.run("systemctl show -P StatusText appliance-checker").stdout
    assert re.fullmatch(r"[0-9]+ checks of 5 addresses · 3 are not up\n", line)
    assert fleet.box.run("systemctl show -P StatusText appliance-auditor").stdout == "\n"


@pytest.mark.parametrize("user", [OPERATOR, STRANGER, AUDITOR_USER, CHECKER_USER, "appliance"])
def test_the_agent_alone_asks(fleet: Fleet, user: str) -> None:
    """Neither people nor other daemons may ask the auditor or the checker."""
    for name in ("audit", "check"):
        argv = ["/usr/bin/python3", "-c", ASK, f"/run/appliance/{name}.sock", "url", "{}"]
        assert "PermissionError" in fleet.box.run(*argv, user=user, check=False).stderr


@pytest.mark.parametrize(
    ("unit", "may"),
    [("appliance-auditor", AUDITOR_MAY), ("appliance-checker", CHECKER_MAY)],
)
def test_one_that_was_taken_over_stays_in_its_sandbox(
    fleet: Fleet, unit: str, may: frozenset[str]
) -> None:
    """The auditor sees, and can neither act nor tell; the checker reaches, and has nothing to tell."""
    found = intrude(fleet, unit, "a")
    assert succeeded(found) == may, described(found)
    found = intrude(fleet, unit, "a", *OPEN)
    never = {"ask as the gateway"} & found.keys()  # the socket knows its one client by the uid
    assert found.keys() - succeeded(found) == never, described(found)


def test_an_exposed_holder_of_memory_is_alerted(fleet: Fleet) -> None:
    """The agent alerts of a foreign process on all addresses that holds memory of a GPU."""
    until(fleet, lambda: exposed(fleet, "box"))
    (alert,) = exposed(fleet, "box")
    assert alert["fact"] == "exposed: python3 listens on 0.0.0.0:9100"
