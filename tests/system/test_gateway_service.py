"""The gateway as a service: its sockets, its sandbox, other machines, and another process of it."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image
from tests.system.rig.appliance import fetch_wheels, sources
from tests.system.test_install import change_version

GATEWAY = "appliance-gateway.service"
MAIN_PID = f"systemctl show -P MainPID {GATEWAY}"
HERE = "http://127.0.0.1:8010"
SETTINGS = "/etc/appliance/appliance.toml"
REFUSED = 7
"""Exit status of curl for a refused connection."""
FAR = "ip netns exec far"
"""Another machine: a network of its own at the other end of a cable."""
ASK = """curl -sN -m 20 {url}/v1/completions -d '{{"model":"a","prompt":"x","stream":true}}'"""
USUAL = {"127.0.0.1:8010", "[::1]:8010"}
NEW_CERTIFICATE = (
    "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=box -days 2"
    " -keyout /etc/tls/key.pem -out /etc/tls/chain.pem 2>/dev/null"
)
STATUS_CODE = "curl -s -o /dev/null -m 5 -w '%{{http_code}}' {more} {url}/v1/models"


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """The box of all tests but one: two models, of which a streams for two seconds."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.profile("a", 9001, "--chunks", "40", "--pause", "0.05")
        fleet.profile("b", 9002)
        fleet.apply()
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Iterator[Fleet]:
    """Shared box with a serving, and with the gateway's sockets as they were installed."""
    shared.restore("a")
    yield shared
    if (shared.box.root / SETTINGS.lstrip("/")).exists():
        shared.restore("a")
        units = f"appliance-gateway.socket {GATEWAY}"
        # The gateway keeps other sockets than systemd's once its settings have changed.
        shared.box.run(f"systemctl stop {units}; systemctl start {units}")


@pytest.fixture
def cabled(fleet: Fleet) -> Iterator[Fleet]:
    """The same box, with a cable to another machine that has an address already, and a key."""
    fleet.box.run("ip netns add far && ip link add wg0 type veth peer name near netns far")
    fleet.box.run(f"{FAR} ip addr add 10.20.0.2/24 dev near; {FAR} ip link set near up")
    fleet.box.run("appliance key add phone >/root/key")
    yield fleet
    fleet.box.run("ip link del wg0; ip link del lan0", check=False)  # a namespace takes its time
    fleet.box.run("ip netns del far; appliance key rm phone; rm -rf /root/gone", check=False)


def main_pid(box: Box) -> int:
    """The gateway's main process."""
    return int(box.run(MAIN_PID).stdout)


def reload(box: Box) -> None:
    """Have another process take over; returns when it has."""
    before = main_pid(box)
    box.run(f"systemctl reload {GATEWAY}")
    box.wait_for(f"test $({MAIN_PID}) != {before}")


def listened(box: Box) -> set[str]:
    """Addresses and ports that anything but an engine listens on, at the gateway's port."""
    lines = box.run("ss -Hltn sport = :8010").stdout.splitlines()
    return {line.split()[3] for line in lines}


def settings(fleet: Fleet, *lines: str, check: bool = True) -> str:
    """Apply with these lines in [gateway]; what apply wrote."""
    fleet.box.write(SETTINGS, "\n".join(["[gateway]", *lines, ""]))
    done = fleet.box.run("appliance apply", check=check)
    return done.stdout + done.stderr


def code(box: Box, url: str, *, far: bool = False, key: bool = False, more: str = "") -> str:
    """The status that a request for the models gets; 000: no answer."""
    given = '-H "Authorization: Bearer $(cat /root/key)"' if key else ""
    command = STATUS_CODE.format(more=f"{given} {more}", url=url)
    return box.run(f"{FAR if far else ''} {command}", check=False).stdout


def test_it_is_there_when_it_is_asked_for(fleet: Fleet) -> None:
    """The gateway listens on loopback alone; stopped, the first client starts it again."""
    assert listened(fleet.box) == USUAL
    fleet.box.run(f"systemctl stop {GATEWAY}")
    assert listened(fleet.box) == USUAL
    assert "data: [DONE]" in fleet.box.run(ASK.format(url=HERE)).stdout
    assert main_pid(fleet.box)


def test_loopback_without_ipv6(fleet: Fleet) -> None:
    """Clients that try ::1 first are served there; where it is off, both sockets start, and 127.0.0.1 is served."""
    sockets = "appliance-gateway.socket appliance-web.socket"
    both = [HERE, "http://localhost:8010", "http://[::1]:8010"]
    page = [f"http://{host}:8011/livez" for host in ("127.0.0.1", "[::1]")]
    assert [code(fleet.box, url) for url in both] == ["200"] * 3
    assert [head(fleet.box, url) for url in page] == ["200"] * 2
    off = "sysctl -qw net.ipv6.conf.lo.disable_ipv6"
    try:
        fleet.box.run(f"{off}=1; systemctl stop {GATEWAY} appliance-web.service {sockets}")
        fleet.box.run(f"systemctl start {sockets}; systemctl is-active {sockets}")
        assert [code(fleet.box, url) for url in both] == ["200", "200", "000"]
        assert [head(fleet.box, url) for url in page] == ["200", "000"]
        assert "cannot listen" not in fleet.box.run(f"journalctl -b -u {GATEWAY} -p err").stdout
    finally:
        fleet.box.run(f"{off}=0")
    assert [code(fleet.box, url) for url in both] == ["200"] * 3


def head(box: Box, url: str) -> str:
    """The status that HEAD gets; 000: no answer."""
    return box.run(f"curl -sI -o /dev/null -m 5 -w '%{{http_code}}' {url}", check=False).stdout


def test_it_is_confined(fleet: Fleet) -> None:
    """No privilege, no more exposed than the supervisor, and nothing of an operator's in reach."""
    found = []
    for unit in (GATEWAY, "appliance-supervisor.service"):
        text = fleet.box.run(f"systemd-analyze security --no-pager {unit} | tail -1").stdout
        match = re.search(r": ([0-9.]+)", text)
        assert match
        found.append(float(match[1]))
    assert found[0] <= found[1]
    status = fleet.box.run(f"cat /proc/$({MAIN_PID})/status").stdout
    assert re.search(r"CapEff:\s+0+\n", status)
    assert re.search(r"NoNewPrivs:\s+1\n", status)
    assert re.search(r"Seccomp:\s+2\n", status)
    rss = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert rss
    assert int(rss[1]) < 45 << 10


def test_a_reload_keeps_streams_and_lets_nobody_wait(fleet: Fleet) -> None:
    """A stream ends whole in the old process; the new one answers at once."""
    before = main_pid(fleet.box)
    with fleet.box.stream("bash", "-c", ASK.format(url=HERE)) as stream:
        lines = stream.lines()
        assert next(lines).startswith("data: ")
        began_s = time.monotonic()
        fleet.box.run(f"systemctl reload {GATEWAY}")
        assert code(fleet.box, HERE) == "200"
        fleet.box.wait_for(f"test $({MAIN_PID}) != {before}")
        assert code(fleet.box, HERE) == "200"
        assert time.monotonic() - began_s < 5
        fleet.box.run(f"test -d /proc/{before}")
        assert "data: [DONE]" in list(lines)
    fleet.box.wait_for(f"test ! -d /proc/{before}")
    log = fleet.box.journal("-u", GATEWAY)
    assert f"[{before}]: ended: 1 requests finished, 0 were cut" in log


def test_a_restart_tells_a_stream_that_it_is_cut(fleet: Fleet) -> None:
    """At the deadline an error event and a proper end; who comes meanwhile is answered after."""
    settings(fleet, 'stop = "300ms"')
    fleet.box.wait_for("grep -q stop_s.*0.3 /var/lib/appliance-applied/gateway.json")
    reload(fleet.box)
    with fleet.box.stream("bash", "-c", ASK.format(url=HERE) + "; echo rc $?") as stream:
        lines = stream.lines()
        assert next(lines).startswith("data: ")
        fleet.box.run(f"systemctl restart --no-block {GATEWAY}")
        assert code(fleet.box, HERE) == "200"
        rest = list(lines)
    assert any("being restarted" in line for line in rest)
    assert rest[-1] == "rc 0"


def test_without_a_supervisor_it_goes_on(fleet: Fleet) -> None:
    """A gateway routes by the last state of the supervisor, even if killed meanwhile."""
    box = fleet.box
    box.run("systemctl stop appliance-supervisor.socket appliance-supervisor.service")
    for end in (f"kill -9 $({MAIN_PID})", f"systemctl restart {GATEWAY}"):
        before = main_pid(box)
        box.run(end)
        assert "data: [DONE]" in box.run(ASK.format(url=HERE)).stdout
        assert main_pid(box) != before


def test_profiles_applied_without_a_supervisor_are_known_when_it_is_back(fleet: Fleet) -> None:
    """A supervisor that starts has the gateway read the profiles, of which it may have missed an apply."""
    fleet.box.run("systemctl stop appliance-supervisor.service appliance-supervisor.socket")
    fleet.profile("c", 9003)
    fleet.apply()
    fleet.box.run("systemctl start appliance-supervisor.socket appliance-supervisor.service")
    fleet.box.wait_for(f"curl -sf {HERE}/v1/models | grep -q '\"c\"'", timeout_s=30)
    # In the tutorial's order: the file goes, then apply; the gateway looks each second.
    fleet.box.run(f"rm {PROFILES}/c.toml")
    fleet.apply()
    fleet.box.wait_for(f"! curl -sf {HERE}/v1/models | grep -q '\"c\"'", timeout_s=5)


def test_the_port_can_be_changed(fleet: Fleet) -> None:
    """Applied, it is another one, with no restart; after a boot it is systemd's own again."""
    box, there = fleet.box, "http://127.0.0.1:8015"
    before = box.run(f"systemctl show -P ActiveEnterTimestamp {GATEWAY}").stdout
    settings(fleet, "port = 8015")
    box.wait_for("ss -Hltn sport = :8015 | grep -q 127.0.0.1")
    box.wait_for("! ss -Hltn sport = :8010 | grep -q 127.0.0.1")
    assert code(box, there) == "200"
    assert box.run(f"systemctl show -P ActiveEnterTimestamp {GATEWAY}").stdout == before
    box.run(f"systemctl restart {GATEWAY}")
    assert code(box, there) == "200"
    box.reboot()
    box.wait_for(f"systemctl is-active {GATEWAY}")
    assert code(box, there) == "200"
    assert box.run(f"systemctl show -P NFileDescriptorStore {GATEWAY}").stdout == "0\n"


def another_way_in(box: Box) -> None:
    """A second cable to the other machine, which sends what comes from 10.30.0.2 through it."""
    box.run(
        "ip link add lan0 type veth peer name side netns far; ip addr add 10.30.0.1/24 dev lan0"
    )
    box.run(f"ip link set lan0 up; {FAR} ip addr add 10.30.0.2/24 dev side")
    box.run(f"{FAR} ip link set side up; {FAR} ip rule add from 10.30.0.2 table 7")
    box.run(f"{FAR} ip route add default via 10.30.0.1 dev side table 7")


def test_an_interface_may_come_late_and_go(cabled: Fleet) -> None:
    """An interface is served while it has an address, with a key; other listeners stay open."""
    box = cabled.box
    settings(cabled, 'listen = ["127.0.0.1", "wg0"]')
    own = {"127.0.0.1:8010", "[::1]:8010"}
    assert listened(box) == own
    near = "http://10.20.0.1:8010"
    box.run("ip addr add 10.20.0.1/24 dev wg0 && ip link set wg0 up")
    box.wait_for("ss -Hltn sport = :8010 | grep -q 10.20.0.1")
    assert code(box, near, far=True) == "401"
    assert code(box, near, far=True, key=True) == "200"
    assert code(box, near, key=True) == "200"
    another_way_in(box)
    other = box.run(f"{FAR} curl -s -m 5 --interface 10.30.0.2 {near}/v1/models", check=False)
    assert other.returncode == REFUSED
    for kill in (f"kill -9 $({MAIN_PID})", f"systemctl restart {GATEWAY}"):
        before = main_pid(box)
        box.run(kill)
        assert code(box, near, far=True, key=True) == "200"
        assert main_pid(box) != before
    reload(box)
    assert code(box, near, far=True, key=True) == "200"
    box.run("ip link del wg0")
    box.wait_for("! ss -Hltn sport = :8010 | grep -q 10.20.0.1")
    assert code(box, HERE) == "200"


def test_an_address_is_listened_on_before_it_comes(cabled: Fleet) -> None:
    """Applied while clients are served, with no restart; and from the boot on, by systemd."""
    box = cabled.box
    before = box.run(f"systemctl show -P ActiveEnterTimestamp {GATEWAY}").stdout
    settings(cabled, 'listen = ["127.0.0.1", "10.20.0.1"]')
    box.wait_for("ss -Hltn sport = :8010 | grep -q 10.20.0.1")
    assert box.run(f"systemctl show -P ActiveEnterTimestamp {GATEWAY}").stdout == before
    box.run("ip addr add 10.20.0.1/24 dev wg0 && ip link set wg0 up")
    assert code(box, "http://10.20.0.1:8010", far=True, key=True) == "200"
    box.reboot()
    box.wait_for(f"systemctl is-active {GATEWAY}")
    assert listened(box) == {"127.0.0.1:8010", "10.20.0.1:8010"}
    assert "ListenStream" in box.run("systemctl cat appliance-gateway.socket").stdout
    box.run("appliance key rm phone")
    assert settings(cabled, "", check=True).count("remove appliance-gateway.socket.d") == 1
    box.wait_for("! ss -Hltn sport = :8010 | grep -q 10.20.0.1")
    assert box.run("systemctl list-units --failed --no-legend").stdout == ""


def test_without_a_key_others_are_hung_up_on(cabled: Fleet) -> None:
    """Apply says so, and the gateway too, when the last key goes while it listens."""
    box = cabled.box
    settings(cabled, 'listen = ["127.0.0.1", "10.20.0.1"]')
    box.run("ip addr add 10.20.0.1/24 dev wg0 && ip link set wg0 up")
    near = "http://10.20.0.1:8010"
    box.wait_for("ss -Hltn sport = :8010 | grep -q 10.20.0.1")
    assert code(box, near, far=True, key=True) == "200"
    box.run("appliance key rm phone; sleep 1.5")
    assert code(box, near, far=True, key=True) == "000"
    assert code(box, HERE) == "200"
    assert "there is no key (appliance key add NAME)" in box.journal("-u", GATEWAY)
    said = settings(cabled, 'listen = ["127.0.0.1", "10.20.0.1"]', check=False)
    assert "the gateway stays on this machine" in said
    box.wait_for("! ss -Hltn sport = :8010 | grep -q 10.20.0.1")


def test_tls_beyond_and_never_in_the_clear(cabled: Fleet) -> None:
    """Files are handed over by systemd, and renewed ones with a restart; without them only others are closed out."""
    box = cabled.box
    box.run(f"mkdir -p /etc/tls && {NEW_CERTIFICATE}")
    box.run("ip addr add 10.20.0.1/24 dev wg0 && ip link set wg0 up")
    files = ('tls_certificate = "/etc/tls/chain.pem"', 'tls_key = "/etc/tls/key.pem"')
    said = settings(cabled, 'listen = ["127.0.0.1", "10.20.0.1"]', *files)
    assert f"restart to take effect: sudo systemctl restart {GATEWAY}" in said
    box.run(f"systemctl restart {GATEWAY}")
    near = "10.20.0.1:8010"
    assert code(box, f"https://{near}", far=True, key=True, more="-k") == "200"
    assert code(box, f"http://{near}", far=True, key=True) == "000"
    assert code(box, HERE) == "200"
    waits = "the renewed certificate waits for a restart"
    assert waits not in box.run("appliance status", check=False).stdout
    box.run(NEW_CERTIFICATE)
    box.wait_for(f"appliance status | grep -q '{waits}: sudo systemctl restart {GATEWAY}'")
    assert code(box, f"https://{near}", far=True, key=True, more="-k") == "200"
    box.run(f"systemctl restart {GATEWAY}")
    box.wait_for(f"appliance status | grep -q TLS && ! appliance status | grep -q '{waits}'")
    box.run(f"mv /etc/tls /root/gone; systemctl restart {GATEWAY}")
    assert code(box, HERE) == "200"
    assert code(box, f"https://{near}", far=True, key=True, more="-k") == "000"
    assert "the certificate cannot be used" in box.journal("-u", GATEWAY)


def test_an_upgrade_hands_over(image: Image) -> None:
    """The new release takes over while the old one ends its streams; nobody is refused."""
    with Box(image, read_only=sources(fetch_wheels())) as box:
        fleet = Fleet(box)
        # Streams that last longer than an upgrade takes on a busy machine.
        fleet.profile("a", 9001, "--chunks", "3600", "--pause", "0.05")
        fleet.apply()
        fleet.switch("a")
        before = main_pid(box)
        upgrade = change_version(box)
        with box.stream("bash", "-c", ASK.format(url=HERE).replace("-m 20", "")) as stream:
            lines = stream.lines()
            assert next(lines).startswith("data: ")
            box.run(upgrade, timeout_s=200)
            assert main_pid(box) != before
            box.run(f"test -d /proc/{before}")
            assert next(lines) is not None
        assert "Stopping appliance-gateway" not in box.journal("-u", GATEWAY)
        maps = f"/proc/$({MAIN_PID})/maps"
        assert (
            box.run(f"grep -c $(readlink -f /opt/appliance/current)/ {maps}").stdout.strip() != "0"
        )
