"""Web process on a booted box: activation, confinement, what it tells, and its end when nobody looks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from appliance.model.operations import Phase
from appliance.web.guards import ASK_EVERY_S
from tests.system.fleet import Fleet
from tests.system.intrusion import described, intrude, succeeded
from tests.system.rig import Box, Image

WEB: Final = "appliance-web.service"
AT: Final = "http://127.0.0.1:8011"
IDLE_S: Final = 10
ALLOWED: Final = frozenset(
    {"read the status", "read speeds and alerts", "reach the socket for tokens"}
)
SETTINGS: Final = "/etc/appliance/appliance.toml"
USUAL: Final = f'[web]\nidle = "{IDLE_S}s"\n'
FAR: Final = "ip netns exec far"
"""Another machine: a network of its own at the other end of a cable."""
NEAR: Final = "10.20.0.1"
LOOPBACK: Final = frozenset({"127.0.0.1", "[::1]"})
REFUSED: Final = 7
TIMED_OUT: Final = 28
"""Exit statuses of curl for a refused connection, and for one without an answer."""
NEVER: Final = frozenset({"ask as the gateway", "switch without a token", "silence an alert"})
"""Closed to root as well: sockets that know their one client by its uid, and ask for a token."""


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box on which a serves; its web process leaves after ten seconds."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.switch("a")
        box.write(SETTINGS, USUAL)
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


CROWD: Final = """
import socket, time
held = [socket.create_connection(("127.0.0.1", 8011)) for _ in range(256)]
for one in held:
    one.sendall(b"GET /api/v1/stream HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
for one in held:
    assert one.recv(12) == b"HTTP/1.1 200"
print("held", flush=True)
time.sleep(600)
"""
"""Program that holds as many streams as there may be connections."""


def test_one_user_keeps_no_other_out(fleet: Fleet) -> None:
    """The process, which has another network, learns from the kernel whose a connection is."""
    fleet.box.write("/srv/crowd.py", CROWD)
    fleet.box.run("systemd-run -q -u crowd -p User=65534 python3 -u /srv/crowd.py")
    try:
        fleet.box.wait_for("journalctl -u crowd | grep -q held")
        assert get(fleet, "/livez") == {"status": "ok"}
    finally:
        fleet.box.run("systemctl stop crowd")


def test_it_leaves_when_nobody_looks(fleet: Fleet) -> None:
    """The unit ends well, and the next request starts it again."""
    get(fleet, "/livez")
    fleet.box.wait_for(
        f"systemctl show -P ActiveState {WEB} | grep -qx inactive", timeout_s=IDLE_S + 20
    )
    assert show(fleet, "Result") == "success"
    assert get(fleet, "/livez") == {"status": "ok"}


@dataclass(frozen=True, slots=True)
class Cabled:
    """The box with a cable to another machine, and a page that other machines are to reach."""

    box: Box

    def apply(self, more: str = f'listen = ["127.0.0.1", "::1", "{NEAR}"]\n', top: str = "") -> str:
        """Apply with these lines in [web]; returns exit status, errors and what changed."""
        self.box.write(SETTINGS, f"{top}{USUAL}{more}")
        done = self.box.run("appliance apply", check=False)
        return f"{done.returncode} {done.stderr}{done.stdout}"

    def listening(self) -> set[str]:
        """Return the addresses at which systemd has the page's port."""
        lines = self.box.run("ss -Hltn sport = :8011").stdout.splitlines()
        return {line.split()[3].rpartition(":")[0] for line in lines}

    def ask(
        self,
        path: str,
        *,
        far: bool = True,
        token: bool = False,
        at: str = NEAR,
        within_s: int = 60,
    ) -> str:
        """Return the status of an answer; 000 and curl's exit status: there is none."""
        given = '-H "Authorization: Bearer $(cat /root/token)"' if token else ""
        done = self.box.run(
            f"{FAR if far else ''} curl -s -o /dev/null -m {within_s} -w '%{{http_code}}' {given}"
            f" http://{at}:8011{path}",
            check=False,
        )
        return done.stdout if done.returncode == 0 else f"{done.stdout} {done.returncode}"


@pytest.fixture
def cabled(fleet: Fleet) -> Iterator[Cabled]:
    """No token exists, and the setting is not applied."""
    box = fleet.box
    box.run("ip netns add far && ip link add wg0 type veth peer name near netns far")
    box.run(f"{FAR} ip addr add 10.20.0.2/24 dev near; {FAR} ip link set near up")
    box.run(f"ip addr add {NEAR}/24 dev wg0 && ip link set wg0 up")
    box.run("appliance token ls | awk 'NR > 1 { print $2 }' | xargs -rn1 appliance token rm")
    yield Cabled(box)
    box.write(SETTINGS, USUAL)
    box.run("rm -f /etc/systemd/system/appliance-web.socket.d/60-mine.conf; ip netns del far")
    box.run("appliance apply; systemctl daemon-reload", check=False)
    box.run(f"systemctl stop {WEB} appliance-web.socket; systemctl start appliance-web.socket")


def test_other_machines_reach_it_with_a_token_alone(cabled: Cabled) -> None:
    """By the settings, once applied, and only while a token exists: nothing is open by mistake."""
    box = cabled.box
    assert "78 the status API stays on this machine" in cabled.apply()
    assert cabled.listening() == LOOPBACK
    assert cabled.ask("/livez").endswith(f" {REFUSED}")

    box.run("appliance token add phone >/root/token")
    assert "create appliance-web.socket.d/50-applied.conf" in cabled.apply()
    assert cabled.listening() == {*LOOPBACK, NEAR}
    assert [cabled.ask(p) for p in ("/livez", "/api/v1/status", "/metrics")] == ["401"] * 3
    assert [cabled.ask(p) for p in ("/", "/login")] == ["303", "200"]
    assert [cabled.ask(p, token=True) for p in ("/", "/api/v1/status", "/metrics")] == ["200"] * 3
    assert cabled.ask("/livez", far=False) == "401"
    assert cabled.ask("/livez", far=False, at="127.0.0.1") == "200"

    box.run("appliance token rm phone")
    box.run(f"sleep {ASK_EVERY_S + 1}")
    assert cabled.ask("/livez", token=True).startswith("000 ")
    assert cabled.ask("/livez", far=False, at="127.0.0.1") == "200"
    assert "closed to other machines: no operator has a token" in box.journal("-u", WEB)
    box.run(f"systemctl stop {WEB}")
    assert cabled.ask("/livez", token=True).startswith("000 ")

    assert "78 the status API stays on this machine" in cabled.apply()
    assert cabled.listening() == LOOPBACK
    assert cabled.ask("/livez", token=True).endswith(f" {REFUSED}")
    box.run("appliance token add phone >/root/token")
    assert cabled.apply().startswith("0 ")
    assert cabled.ask("/livez", token=True) == "200"
    assert "remove appliance-web.socket.d/50-applied.conf" in cabled.apply("")
    assert cabled.listening() == LOOPBACK


def test_a_socket_unit_that_was_changed_by_hand_opens_nothing(cabled: Cabled) -> None:
    """Neither the filter of the unit nor, without it, the process lets anybody in."""
    box = cabled.box
    box.run("appliance token add phone >/root/token")
    lines = f"[Socket]\nListenStream={NEAR}:8011\n"
    for more, is_dropped in (("", True), ("IPAddressAllow=any\n", False)):
        box.unit("appliance-web.socket.d/60-mine.conf", lines + more)
        box.run(f"systemctl stop {WEB} appliance-web.socket; systemctl start appliance-web.socket")
        assert cabled.listening() == {*LOOPBACK, NEAR}
        answer = cabled.ask("/livez", token=True, within_s=3 if is_dropped else 60)
        assert answer.startswith("000 ")
        assert answer.endswith(f" {TIMED_OUT}") is is_dropped
        assert cabled.ask("/livez", far=False, at="127.0.0.1") == "200"
    assert f"listens on {NEAR} port 8011, which the settings do not name" in box.journal("-u", WEB)


def test_the_port_is_that_of_the_settings(cabled: Cabled) -> None:
    """Applied, it is another one at once; nothing is left at the old one."""
    assert cabled.apply("", "status_port = 8012\n").startswith("0 ")
    assert cabled.listening() == set()
    assert cabled.box.run("curl -sf http://127.0.0.1:8012/livez").stdout == '{"status":"ok"}'
    assert cabled.apply("").startswith("0 ")
    assert cabled.ask("/livez", far=False, at="127.0.0.1") == "200"
