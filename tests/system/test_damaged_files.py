"""Damaged files of what was applied: the last good ones hold, and it is said."""

import json

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box

APPLIED = "/var/lib/appliance-applied"
SUPERVISOR = "appliance-supervisor.service"
GATEWAY = "appliance-gateway.service"


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """A box on which a serves; the last apply of each test has written its files anew."""
    return shared_fleet


def restarts(box: Box, unit: str) -> str:
    """Return how often systemd started a service anew by itself, and its process now."""
    return box.run(f"systemctl show -P NRestarts -P MainPID -P ActiveState {unit}").stdout


def why(box: Box) -> list[str]:
    """The sentences of the status."""
    done = box.run("appliance status --json", check=False)
    found: list[str] = json.loads(done.stdout)["verdict"]["why"]
    return found


def test_damaged_files_stop_nobody(fleet: Fleet) -> None:
    """Supervisor and gateway start from the copies, serve, and say what root has to do."""
    box = fleet.box
    box.run(f"echo '{{' > {APPLIED}/manifest.json; truncate -s 40 {APPLIED}/gateway.json")
    box.run(f"systemctl restart {SUPERVISOR} {GATEWAY}")
    box.wait_for("appliance status --json | grep -q manifest.json.is.damaged")
    sentences = why(box)
    assert any("gateway.json is damaged" in s and "its copy is used" in s for s in sentences)
    for unit in (SUPERVISOR, GATEWAY):
        assert "active" in restarts(box, unit)
        assert "its copy is used" in box.run(f"journalctl -b -u {unit} -p err --no-pager").stdout
    fleet.switch("b")
    assert box.run("appliance apply", check=False).returncode == 0
    box.wait_for("! appliance status --json | grep -q damaged")
    fleet.switch("a")


def test_a_supervisor_without_any_manifest_waits(fleet: Fleet) -> None:
    """With its copy damaged too it neither ends over and over nor touches what serves."""
    box = fleet.box
    model = restarts(box, "appliance-backend-a.service")
    box.run(f"for f in manifest.json manifest.json.copy; do echo broken > {APPLIED}/$f; done")
    box.run(f"systemctl restart {SUPERVISOR}")
    before = restarts(box, SUPERVISOR)
    box.run("sleep 4")
    assert restarts(box, SUPERVISOR) == before
    assert "is damaged" in box.run(f"systemctl show -P StatusText {SUPERVISOR}").stdout
    assert restarts(box, "appliance-backend-a.service") == model
    assert box.run("appliance apply", check=False).returncode == 0
    box.wait_for('appliance status --json | grep -q \'"state": *"serving"\'')
    fleet.switch("b")
