"""The health agent on a booted box: what it measures, what its death costs, what it may not do."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.system.fleet import OPERATOR, STRANGER, Fleet
from tests.system.intrusion import described, intrude, succeeded
from tests.system.rig import Box, Image

HEALTH = "appliance-health.service"
TOOLS = "/usr/local/lib/test-engine"
ASK = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(20)
    connection.connect("/run/appliance/health.sock")
    request = {"protocol": {"min": 1, "max": 1}, "verb": sys.argv[1], "args": json.loads(sys.argv[2])}
    connection.sendall(json.dumps(request).encode() + b"\\n")
    print(connection.makefile().readlines()[-1])
"""
"""Asks the health agent, and prints the closing event."""
EVIDENCE = """
import sqlite3
database = sqlite3.connect("file:/var/lib/appliance-health/measurements.sqlite?mode=ro", uri=True)
for (evidence,) in database.execute("SELECT evidence FROM probes"):
    print(evidence)
"""
"""Prints the evidence of each stored probe."""
SETTINGS = """
[health]
probe_every = "1m"
trial_speed = 100
"""
ALLOWED = frozenset({"read the status", "probe", "read the manifest", "write its measurements"})
NEVER = frozenset({"ask as the gateway"})
"""Closed to root as well: the socket knows its one client by the uid."""


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box on which a serves, with an agent whose minutes are shorter than a second."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.people()
        fleet.profile("a", 9001, "--obey", "--pause", "0.005")
        fleet.profile("b", 9002)
        box.write("/etc/appliance/appliance.toml", SETTINGS)
        fleet.apply()
        box.run(f"systemctl restart {HEALTH}")
        fleet.switch("a")
        yield fleet


def ask(fleet: Fleet, verb: str, user: str | None = None, **args: object) -> Mapping[str, Any]:
    """The closing event of a conversation with the agent."""
    done = fleet.box.run("/usr/bin/python3", "-c", ASK, verb, json.dumps(args), user=user)
    event: Mapping[str, Any] = json.loads(done.stdout)
    return event


def shown(fleet: Fleet, *properties: str, unit: str = HEALTH) -> list[str]:
    """Properties of a unit."""
    words = [word for name in properties for word in ("-P", name)]
    return fleet.box.run("systemctl", "show", *words, unit).stdout.split("\n")[: len(properties)]


def until_measured(fleet: Fleet) -> Mapping[str, Any]:
    """The report on a's speed, once the agent that runs now has measured it."""
    fleet.box.write(f"{TOOLS}/ask.py", ASK)
    fleet.box.wait_for(
        f"python3 {TOOLS}/ask.py speeds '{{}}' | grep -Eq '\"rate\": ?[0-9]'", timeout_s=30
    )
    report: Mapping[str, Any] = ask(fleet, "speeds", OPERATOR)["profiles"]["a"]
    return report


def test_a_serving_profile_is_measured(fleet: Fleet) -> None:
    """The model's speed is known soon after it has begun to serve, from probes that no client notices."""
    report = until_measured(fleet)
    decode = next(series for series in report["series"] if series["series"] == "decode")
    # A token every 5 ms; a busy machine takes longer, or delivers late tokens together.
    assert 50 < decode["rate"] < 300
    assert "1 profile watched" in fleet.box.run(f"systemctl show -P StatusText {HEALTH}").stdout
    assert fleet.status()["gateway"]["profiles"][0]["requests"] == 0
    owner = fleet.box.run(f"ps -o user:32= -p $(systemctl show -P MainPID {HEALTH})").stdout
    assert owner == "appliance-health\n"


def test_evidence_comes_with_the_probes(fleet: Fleet) -> None:
    """In its sandbox the agent sees the backend's CPU time beside that of the box."""
    until_measured(fleet)
    told = fleet.box.run("/usr/bin/python3", "-c", EVIDENCE).stdout.splitlines()
    shares = [row["other_cpu_share"] for row in map(json.loads, told) if "other_cpu_share" in row]
    assert shares
    assert all(0 <= share <= 1 for share in shares)


def test_operators_read_the_measurements(fleet: Fleet) -> None:
    """Status, history and baseline are answered to operators; a stranger is told what to join."""
    until_measured(fleet)
    fleet.box.wait_for("appliance status | grep -Eq '^ +speed +[0-9.]+ tok/s'", timeout_s=20)
    text = fleet.box.run("appliance history --since 1h --json", user=OPERATOR).stdout
    history = json.loads(text)
    assert history["name"] == "a"
    assert history["rows"]["decode"]
    raw = fleet.box.run("appliance history a --raw", user=OPERATOR).stdout.splitlines()
    assert len(raw) > len(history["rows"]["decode"])
    assert "decode" in fleet.box.run("appliance baseline show a", user=OPERATOR).stdout
    refused = fleet.box.run("appliance events", user=STRANGER, check=False)
    assert (refused.returncode, "usermod -aG appliance-operators" in refused.stderr) == (77, True)
    unknown = fleet.box.run("appliance probe nobody", user=OPERATOR, check=False)
    assert unknown.returncode == 4


def test_its_death_costs_nobody_anything(fleet: Fleet) -> None:
    """Killed, the agent comes back with what it has measured; model and supervisor stay."""
    until_measured(fleet)
    others = ("appliance-backend-a", "appliance-supervisor", "appliance-gateway")
    before = [shown(fleet, "MainPID", unit=unit) for unit in others]
    (old,) = shown(fleet, "MainPID")
    probes = fleet.box.run("ls -l /var/lib/appliance-health").stdout
    assert "measurements.sqlite" in probes
    fleet.box.run(f"kill -9 {old}")
    fleet.box.wait_for(f"test $(systemctl show -P MainPID {HEALTH}) -ne {old}", timeout_s=20)
    fleet.box.wait_for(f"systemctl is-active -q {HEALTH}", timeout_s=20)
    assert until_measured(fleet)["last_valid_unix_s"] is not None
    assert [shown(fleet, "MainPID", unit=unit) for unit in others] == before


def test_a_supervisor_that_was_stopped_is_not_started_by_it(fleet: Fleet) -> None:
    """The agent waits for a supervisor that is away, says so, and measures on when it is back."""
    fleet.box.run("systemctl stop appliance-supervisor.service")
    fleet.box.wait_for(
        f"systemctl show -P StatusText {HEALTH} | grep -q 'supervisor does not answer'",
        timeout_s=30,
    )
    assert shown(fleet, "ActiveState", unit="appliance-supervisor.service") == ["inactive"]
    assert shown(fleet, "ActiveState") == ["active"]
    fleet.box.run("systemctl start appliance-supervisor.service")
    fleet.box.wait_for(
        f"! systemctl show -P StatusText {HEALTH} | grep -q 'does not answer'", timeout_s=30
    )


def test_an_agent_that_was_stopped_stays_so(fleet: Fleet) -> None:
    """A status does not start the agent, and a switch does without it."""
    fleet.box.run(f"systemctl stop {HEALTH}")
    assert fleet.status()["committed"] == ["a"]
    assert shown(fleet, "ActiveState") == ["inactive"]
    fleet.switch("b")
    fleet.switch("a")
    fleet.box.run(f"systemctl start {HEALTH}")
    until_measured(fleet)


def test_operators_may_ask_it_and_strangers_may_not(fleet: Fleet) -> None:
    """The socket's group decides."""
    assert ask(fleet, "speeds", OPERATOR)["exit"] == 0
    done = fleet.box.run("python3", "-c", ASK, "speeds", "{}", user=STRANGER, check=False)
    assert "PermissionError" in done.stderr


def test_a_taken_over_agent_stays_in_its_sandbox(fleet: Fleet) -> None:
    """The agent can look at the box and probe, and nothing else; root without its sandbox could."""
    fleet.box.run("appliance key add phone")
    found = intrude(fleet, "appliance-health", "a")
    assert succeeded(found) == ALLOWED, described(found)
    found = intrude(
        fleet,
        "appliance-health",
        "a",
        "User=root",
        "Group=root",
        "CapabilityBoundingSet=~",
        "StateDirectory=",
        "InaccessiblePaths=",
        "PrivateNetwork=no",
        "IPAddressDeny=",
        "RestrictAddressFamilies=",
        "ProtectSystem=no",
        "ProtectProc=default",
        "SystemCallFilter=",
    )
    assert found.keys() - succeeded(found) == NEVER, described(found)
