"""Web process on a booted box: activation, confinement, what it tells, and its end when nobody looks."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from appliance.domain.operations import Phase
from tests.system.fleet import Fleet
from tests.system.intrusion import described, intrude, succeeded
from tests.system.rig import Box, Image

WEB: Final = "appliance-web.service"
AT: Final = "http://127.0.0.1:8011"
IDLE_S: Final = 10
ALLOWED: Final = frozenset(
    {"read the status", "read speeds and alerts", "reach the socket for tokens"}
)
NEVER: Final = frozenset({"ask as the gateway", "switch without a token", "silence an alert"})
"""Closed to root as well: sockets that know their one client by its uid, and ask for a token."""


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box on which a serves; its web process leaves after ten seconds."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.switch("a")
        box.write("/etc/appliance/appliance.toml", f'[web]\nidle = "{IDLE_S}s"\n')
        yield fleet


def get(fleet: Fleet, path: str, *options: str) -> Any:
    """Return the JSON that a path answers with."""
    return json.loads(fleet.box.run("curl", "-sS", "-m", "20", *options, AT + path).stdout)


def show(fleet: Fleet, prop: str) -> str:
    """Return a property of the web process's unit."""
    return fleet.box.run("systemctl", "show", "-P", prop, WEB).stdout.strip()


def test_a_request_starts_the_process_as_its_own_user(fleet: Fleet) -> None:
    """No process runs before; then one without rights does, in a network of its own."""
    assert show(fleet, "ActiveState") == "inactive"
    assert get(fleet, "/livez") == {"status": "ok"}
    assert show(fleet, "ActiveState") == "active"
    pid = show(fleet, "MainPID")
    status = fleet.box.run(f"cat /proc/{pid}/status").stdout
    web, group = (
        fleet.box.run(c).stdout.strip()
        for c in ("id -u appliance-web", "getent group appliance-status")
    )
    assert f"Uid:\t{web}\t{web}\t{web}\t{web}\n" in status
    assert f"Groups:\t{group.split(':')[2]} \n" in status or group.split(":")[2] in status
    assert "CapEff:\t0000000000000000\n" in status
    rss_kib = int(status.partition("VmRSS:")[2].split()[0])
    assert rss_kib < 90 * 1024
    own = fleet.box.run(
        f"nsenter -t {pid} -n ip -o address || nsenter -t {pid} -n cat /proc/net/dev"
    ).stdout
    assert "host0" not in own


def test_the_status_is_that_of_the_command(fleet: Fleet) -> None:
    """Profiles, states and marks are the same; times and loads differ by the moment."""
    told, printed = get(fleet, "/api/v1/status"), fleet.status()
    for key in ("host", "version", "committed", "hold", "watches"):
        assert told[key] == printed[key]
    states = [
        [(row["name"], row["state"], row["mark"]) for row in d["profiles"]] for d in (told, printed)
    ]
    assert states[0] == states[1]


def test_it_listens_on_loopback_alone_and_knows_its_names(fleet: Fleet) -> None:
    """Another name is refused, which is what a page elsewhere would have."""
    listening = fleet.box.run("ss -Hltn sport = :8011").stdout.split()
    assert listening[3] == "127.0.0.1:8011"
    assert get(fleet, "/livez", "-H", "Host: evil.example")["status"] == 403


def test_a_stream_tells_every_phase_of_a_switch_in_order(fleet: Fleet) -> None:
    """Documents may skip a short phase; events skip none."""
    with fleet.box.stream("curl", "-sSN", "-m", "60", f"{AT}/api/v1/stream") as stream:
        lines = stream.lines()
        assert any(line == "event: snapshot" for line in lines)
        fleet.switch("b")
        phases: list[str] = []
        for line in lines:
            told = json.loads(line[6:]) if line.startswith("data: {") else {}
            change = told.get("change", {})
            if change.get("event") == "phase" and change["phase"] not in phases:
                phases.append(change["phase"])
            if change.get("event") == "result":
                break
        stream.process.terminate()
    order = [phase.value for phase in Phase if phase.value in phases]
    assert phases == order
    assert {"preflight", "stop", "start", "warm-up", "commit"} <= {*phases}
    fleet.switch("a")


def test_a_taken_over_process_stays_in_its_sandbox(fleet: Fleet) -> None:
    """Without a token it can look at the box, and nothing else; root without its sandbox could."""
    fleet.people()
    fleet.box.run("appliance key add phone; appliance token add phone")
    found = intrude(fleet, "appliance-web", "a")
    assert succeeded(found) == ALLOWED, described(found)
    found = intrude(
        fleet,
        "appliance-web",
        "a",
        "User=root",
        "Group=root",
        "CapabilityBoundingSet=~",
        "InaccessiblePaths=",
        "PrivateNetwork=no",
        "IPAddressDeny=",
        "RestrictAddressFamilies=",
        "ProtectSystem=no",
        "ProtectProc=default",
        "SystemCallFilter=",
    )
    assert found.keys() - succeeded(found) == NEVER, described(found)


def test_it_leaves_when_nobody_looks(fleet: Fleet) -> None:
    """The unit ends well, and the next request starts it again."""
    get(fleet, "/livez")
    fleet.box.wait_for(
        f"systemctl show -P ActiveState {WEB} | grep -qx inactive", timeout_s=IDLE_S + 20
    )
    assert show(fleet, "Result") == "success"
    assert get(fleet, "/livez") == {"status": "ok"}
