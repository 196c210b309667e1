"""Pipes where the daemons keep their state: nobody waits for them."""

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box

STATE = (
    *("/var/lib/appliance/active", "/var/lib/appliance/keys.json"),
    *("/var/lib/appliance/state.sqlite", "/var/lib/appliance/state.sqlite-wal"),
    *("/var/lib/appliance/needs/a.json", "/run/appliance-supervisor/operation.json"),
    *("/run/appliance-gateway/state.json", "/run/appliance-gate/a.json"),
)


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with a serving, and a pipe in the place of each of these files."""
    fleet = Fleet(box)
    fleet.pair()
    fleet.switch("a")
    box.run("systemctl stop appliance-supervisor.socket appliance-supervisor appliance-gateway")
    for path in STATE:
        box.run(f"mkdir -p $(dirname {path}); rm -f {path}; mkfifo -m 666 {path}")
    return fleet


def test_pipes_in_the_place_of_state_hang_nobody(fleet: Fleet) -> None:
    """Root's status answers without the supervisor; both daemons start, and a switch works."""
    status = fleet.box.run("appliance status --json", check=False, timeout_s=20)
    assert status.returncode == 1, status
    fleet.box.run("systemctl start appliance-supervisor.socket", timeout_s=20)
    fleet.box.run("systemctl start appliance-supervisor appliance-gateway", timeout_s=20)
    assert fleet.status()["supervisor"]["state"] == "up"
    fleet.switch("b")
    assert fleet.active() == fleet.committed() == ["b"]
    fleet.box.run("systemctl restart appliance-gateway", timeout_s=20)
