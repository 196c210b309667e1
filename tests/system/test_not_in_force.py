"""Changes that wait, engines that crash again and again, and settings that cannot be read, on a booted box."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image

UNIT = "appliance-backend-a.service"
SETTINGS = "/etc/appliance/appliance.toml"
SUPERVISOR_STATUS = "systemctl show -P StatusText appliance-supervisor.service"


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box where a serves and is committed."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.profile("a", 9001)
        fleet.profile("b", 9002)
        fleet.apply()
        fleet.switch("a")
        yield fleet


def row(fleet: Fleet) -> dict[str, Any]:
    (found,) = (one for one in fleet.status()["profiles"] if one["name"] == "a")
    return dict(found)


def test_a_unit_edited_by_hand_waits_for_a_restart_until_it_has_one(fleet: Fleet) -> None:
    """The status knows of the edit and of the restart; adopting it names the restart, which settles both."""
    assert (row(fleet)["restart_pending"], row(fleet)["unit_changes"]) == (False, [])
    drop_in = f"/etc/systemd/system/{UNIT}.d/override.conf"
    fleet.box.write(drop_in, "[Service]\nEnvironment=HAND=1\n")
    fleet.box.run("systemctl daemon-reload")
    fleet.box.wait_for("appliance status a --json | grep -q '\"restart_pending\": true'")
    assert row(fleet)["unit_changes"] == [f"override.conf in /etc/systemd/system/{UNIT}.d"]
    told = fleet.apply("--adopt-changes")
    assert "restart to take effect: appliance restart a" in told
    assert "a restart is pending: appliance restart a" in row(fleet)["note"]
    assert "a restart is pending" in fleet.apply()
    fleet.box.run("appliance restart a")
    after = row(fleet)
    assert (after["restart_pending"], after["unit_changes"], after["note"]) == (False, [], None)


def test_files_that_no_apply_has_taken_are_told(fleet: Fleet) -> None:
    """A faulty file is told with its line after the apply that refused it."""
    fleet.box.write(f"{PROFILES}/c.toml", 'engine = "nosuch"\n')
    fleet.box.wait_for("appliance status | grep -q 'c.toml is not applied'")
    fleet.apply(check=False)
    fleet.box.wait_for("appliance status --json | grep -q '\"faulty\"'")  # looked at every 10 s
    (told,) = fleet.status()["profile_files"]
    assert (told["name"], told["state"]) == ("c", "faulty")
    assert told["text"].startswith("c.toml:1: ")
    fleet.box.run(f"rm {PROFILES}/c.toml")
    fleet.apply()
    fleet.box.wait_for("! appliance status --json | grep -q c.toml")


def test_a_removed_profile_is_taken_out_of_what_a_boot_serves(fleet: Fleet) -> None:
    """The apply says how; a shared model that runs goes on until it is stopped."""
    fleet.profile("s", 9003, top="gpus = []\nshared = true")
    fleet.apply()
    fleet.switch("s")
    assert fleet.committed() == ["a", "s"]
    fleet.box.run(f"rm {PROFILES}/s.toml")
    assert "a boot is still to start it: appliance uncommit s" in fleet.apply()
    told = fleet.cli("uncommit", "s")
    assert (told.exit, told.result["committed"]) == (0, ["a"])
    assert fleet.committed() == ["a"]
    assert fleet.active() == ["a", "s"]
    assert fleet.cli("stop", "s").exit == 0
    assert fleet.committed() == fleet.active() == ["a"]


def test_an_owner_of_devices_is_taken_out_only_when_that_is_meant(fleet: Fleet) -> None:
    """Without --exclusive the names stay; with it the model runs on, and the next boot starts none."""
    refused = fleet.cli("uncommit", "a")
    assert refused.exit == 1
    assert "if none is meant: appliance uncommit a --exclusive" in refused.result["message"]
    assert fleet.committed() == ["a"]
    pid = fleet.main_pid("a")
    told = fleet.cli("uncommit", "a", "--exclusive")
    assert told.result["message"] == (
        "a is not committed any more: a boot serves nothing; a serves until it is stopped"
    )
    assert (fleet.committed(), fleet.main_pid("a")) == ([], pid)
    fleet.box.reboot()
    fleet.box.wait_for("systemctl is-active -q appliance-supervisor.service")
    assert fleet.status()["verdict"]["state"] == "nothing"
    assert fleet.active() == []
    fleet.switch("a")
    assert fleet.committed() == ["a"]


def test_a_crash_loop_is_counted(fleet: Fleet) -> None:
    """Status and journal say how often systemd has started the engine again, and nothing of before."""
    crashed: Mapping[str, Any] = {}
    for _ in range(2):
        fleet.box.run("systemctl", "kill", "--kill-who=main", "-s", "USR2", UNIT)
        fleet.box.wait_for(f"systemctl show -P SubState {UNIT} | grep -q auto-restart")
        crashed = row(fleet)
        fleet.box.wait_for(f"systemctl is-active -q {UNIT}")
    assert (crashed["state"], crashed["restarts"], crashed["status_text"]) == ("restarting", 1, "")
    assert crashed["note"] == "exited with status 1; restarted once so far"
    said = "a crashed (exited with status 1; restarted once so far): systemd starts it again"
    assert said in fleet.box.journal("-u", "appliance-supervisor.service")


def test_a_typo_in_the_settings_ends_no_daemon(fleet: Fleet) -> None:
    """The line is in both statuses at once, the process stays, and a corrected file is enough."""
    try:
        fleet.box.write(SETTINGS, "look_evry_s = 1\n")
        fleet.box.run("systemctl restart appliance-supervisor")
        fleet.box.wait_for(f"{SUPERVISOR_STATUS} | grep -q look_evry_s")
        pid = fleet.box.run("systemctl show -P MainPID appliance-supervisor").stdout
        document = fleet.status()
        assert document["supervisor"]["state"] == "waiting"
        assert document["verdict"]["exit"] == 1
        assert "look_evry_s" in document["verdict"]["why"][0]
        refused = fleet.cli("switch", "b")
        assert (refused.exit, "look_evry_s" in refused.errors) == (78, True)
        assert fleet.box.run("systemctl show -P MainPID appliance-supervisor").stdout == pid
        assert fleet.active() == ["a"]
    finally:
        fleet.box.run(f"rm {SETTINGS}")
    fleet.box.wait_for('appliance status --json | grep -q \'"state": "up"\'')
    # The verdict is "degraded" for as long as gateway and agent have not answered the process.
    fleet.box.wait_for("appliance status")
    assert fleet.status()["verdict"]["state"] == "serving"
    assert fleet.box.run("systemctl show -P MainPID appliance-supervisor").stdout == pid
