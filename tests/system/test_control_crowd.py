"""One operator takes all that the sockets give, while another one and root work on."""

import json
import time

import pytest

from tests.system.fleet import OPERATOR, Fleet
from tests.system.rig import Box

NEIGHBOUR = "eve"
CONNECTIONS = 1100
"""More than a process may open by default."""
CROWD = f"""
import contextlib, socket, struct, sys, time
crowd = [socket.socket(socket.AF_UNIX) for _ in range({CONNECTIONS})]
for one in crowd:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
    with contextlib.suppress(OSError):
        one.connect(sys.argv[1])
    one.setblocking(False)
for _ in range(int(sys.argv[2])):
    for one in crowd:
        with contextlib.suppress(OSError):
            one.send(b"x" * int(sys.argv[3]))
print("ready", flush=True)
time.sleep(300)
"""


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with two operators, a serving."""
    fleet = Fleet(box)
    fleet.people()
    box.run(f"useradd -G appliance-operators {NEIGHBOUR}")
    fleet.pair()
    fleet.switch("a")
    box.write("/opt/crowd.py", CROWD)
    return fleet


def rss_mib(fleet: Fleet, unit: str) -> float:
    """The most memory that the unit's main process has had."""
    pid = fleet.box.run(f"systemctl show -P MainPID {unit}").stdout.strip()
    (line,) = fleet.box.run(f"grep VmHWM /proc/{pid}/status").stdout.splitlines()
    return int(line.split()[1]) / 1024


@pytest.mark.parametrize(("rounds", "sent"), [(1, 1), (12, 65_000)])
def test_1100_connections_of_an_operator_stop_no_neighbour(
    fleet: Fleet, rounds: int, sent: int
) -> None:
    """Lines without an end on each: another operator's status answers throughout, and root's switch."""
    argv = ("prlimit", "--nofile=4096", "/usr/bin/python3", "/opt/crowd.py")
    path = "/run/appliance/control.sock"
    with fleet.box.stream(*argv, path, str(rounds), str(sent), user=OPERATOR) as crowd:
        assert next(iter(crowd.lines())) == "ready"
        began = time.monotonic()
        while time.monotonic() - began < 12.0:  # beyond the deadline of a first line
            done = fleet.box.run("appliance status --json", user=NEIGHBOUR, check=False)
            assert done.returncode == 0, done
            assert json.loads(done.stdout)["supervisor"]["state"] == "up"
        fleet.switch("b")
        fleet.switch("a", user=NEIGHBOUR)
    assert rss_mib(fleet, "appliance-supervisor") < 150
    journal = fleet.box.journal("-u", "appliance-supervisor.service")
    assert "Traceback" not in journal, journal[-3000:]
    assert journal.count("has too many connections") <= 2
