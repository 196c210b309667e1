"""At most one owner: stray enablement, rivals by hand, refusals, holds, crashes."""

import time

import pytest

from tests.system.fleet import ENGINE, Fleet
from tests.system.rig import Box


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """The box of the file, a serving."""
    return shared_fleet


@pytest.fixture
def unrepaired(box: Box) -> Fleet:
    """A box of its own, a serving: a model that was repaired within the hour is so only after a pause."""
    fleet = Fleet(box)
    fleet.pair()
    fleet.switch("a")
    return fleet


def unit(name: str) -> str:
    """The unit of a profile."""
    return f"appliance-backend-{name}.service"


def test_enable_is_a_no_op(fleet: Fleet) -> None:
    """A backend has no [Install] section: enabling it changes nothing."""
    fleet.box.run("systemctl", "enable", unit("b"), check=False)
    assert fleet.box.run("systemctl is-enabled", unit("b"), check=False).returncode != 0
    assert list((fleet.box.root / "etc/systemd/system").glob(f"*.wants/{unit('b')}")) == []


def test_start_by_hand_is_adopted_and_not_committed(fleet: Fleet) -> None:
    """`systemctl start` of a rival evicts the model; it serves, uncommitted, and shows as that."""
    fleet.box.run("systemctl", "start", unit("b"))
    assert fleet.active() == ["b"]
    time.sleep(1.0)
    assert fleet.active() == ["b"]
    assert fleet.committed() == ["a"]
    rows = {row["name"]: row for row in fleet.status()["profiles"]}
    assert rows["b"]["state"] == "serving"
    assert not rows["b"]["committed"]
    fleet.box.reboot()
    fleet.wait_serving("a")


def test_stop_by_hand_acts_like_a_hold_until_the_next_boot(fleet: Fleet) -> None:
    """After `systemctl stop` nothing of ours brings the model back, a boot does."""
    fleet.box.run("systemctl", "stop", unit("a"))
    time.sleep(2.0)
    assert fleet.active() == []
    fleet.box.reboot()
    fleet.wait_serving("a")


def test_rival_that_ignores_dependencies_is_refused(fleet: Fleet) -> None:
    """The gate refuses it without disturbing the owner or using up its start limit."""
    pid = fleet.main_pid("a")
    started = time.monotonic()
    for _ in range(6):
        fleet.box.run(
            "systemctl",
            "start",
            "--job-mode=ignore-dependencies",
            unit("b"),
            check=False,
            timeout_s=100,
        )
        if time.monotonic() - started > 40:
            break
    assert fleet.active() == ["a"]
    assert fleet.main_pid("a") == pid
    rows = {row["name"]: row for row in fleet.status()["profiles"]}
    assert rows["b"]["state"] == "refused"
    assert unit("a") in rows["b"]["note"]
    assert fleet.switch("b").exit == 0


def test_lease_holds_without_the_gate(fleet: Fleet) -> None:
    """With the gate taken out and Conflicts ignored, the kernel's lock still refuses."""
    pid = fleet.main_pid("a")
    fleet.box.write(
        f"/etc/systemd/system/{unit('b')}.d/nogate.conf",
        "[Service]\nExecCondition=\nRestart=no\n",
    )
    fleet.box.run("systemctl daemon-reload")
    fleet.box.run("systemctl", "start", "--job-mode=ignore-dependencies", unit("b"), check=False)
    assert fleet.active() == ["a"]
    assert fleet.main_pid("a") == pid
    assert fleet.show("b", "ExecMainStatus") == "79"


def test_hold_lasts_over_a_reboot(fleet: Fleet) -> None:
    """A hold without a time stops everything, survives a boot, and every status says so."""
    assert fleet.cli("hold").exit == 0
    assert fleet.active() == []
    fleet.box.reboot()
    fleet.box.wait_for("systemctl is-active appliance-hold.service")
    time.sleep(1.0)
    assert fleet.active() == []
    hold = fleet.status()["hold"]
    assert (hold["until_unix_s"], hold["kept"]) == (None, True)
    assert hold["requested_by"].startswith("root (uid 0, pid ")
    assert fleet.box.run("appliance status", check=False).returncode == 3
    assert fleet.cli("start").exit == 0
    assert fleet.active() == ["a"]
    fleet.box.reboot()
    fleet.wait_serving("a")


def test_a_start_past_the_conflict_with_a_hold_ends_it(fleet: Fleet) -> None:
    """A start with any job mode ends the hold: a box on hold must not serve."""
    assert fleet.cli("hold").exit == 0
    fleet.box.run("systemctl", "start", "--job-mode=ignore-dependencies", unit("b"))
    fleet.box.wait_for("! systemctl is-active -q appliance-hold.service", timeout_s=20)
    assert fleet.active() == ["b"]
    fleet.box.wait_for("test ! -e /var/lib/appliance/hold")
    assert fleet.status()["hold"] is None


def test_timed_hold_ends_by_itself(fleet: Fleet) -> None:
    """`hold --for` brings the committed model back when its time is over."""
    assert fleet.cli("hold", "--for", "4s").exit == 0
    assert fleet.active() == []
    assert fleet.wait_serving("a", timeout_s=20) > 2
    assert fleet.status()["hold"] is None


def test_crash_is_repaired_by_systemd(fleet: Fleet) -> None:
    """A killed engine is started again, alone."""
    pid = fleet.main_pid("a")
    fleet.box.run("systemctl", "kill", "-s", "KILL", unit("a"))
    fleet.box.wait_for(f"test $(systemctl show -P MainPID {unit('a')}) -gt 0", timeout_s=40)
    fleet.wait_serving("a", timeout_s=40)
    assert fleet.main_pid("a") not in {0, pid}


@pytest.mark.parametrize("number", ["KILL", "USR1"])
def test_crash_loop_is_repaired_when_systemd_gives_up(unrepaired: Fleet, number: str) -> None:
    """Once systemd restarts a committed model no more, killed or ended with 0, we do."""
    fleet = unrepaired
    drop_in = "[Unit]\nStartLimitBurst=2\n[Service]\nRestartSec=200ms\n"
    fleet.box.write(f"/etc/systemd/system/{unit('a')}.d/loop.conf", drop_in)
    fleet.box.run("systemctl daemon-reload; systemctl restart appliance-supervisor")
    fleet.switch("a")
    for _ in range(3):  # the reload has forgotten the first start
        fleet.wait_serving("a")
        pid = fleet.main_pid("a")
        fleet.box.run("systemctl", "kill", "--kill-who=main", "-s", number, unit("a"))
        fleet.box.wait_for(f"test $(systemctl show -P MainPID {unit('a')}) -ne {pid}")
        fleet.box.wait_for(f"! systemctl show -P SubState {unit('a')} | grep auto-restart")
    fleet.wait_serving("a", timeout_s=20)
    fleet.box.wait_for("appliance wait --for idle")
    last = fleet.status()["last_operation"]
    assert (last["kind"], last["outcome"]) == ("repair", "done"), fleet.box.journal("-n40")


def test_backend_that_binds_every_address_is_out_of_reach(fleet: Fleet) -> None:
    """Even an engine that listens on 0.0.0.0 is answered to nobody but loopback."""
    fleet.profile("open", 9003)
    engine = fleet.box.root / ENGINE.lstrip("/")
    engine.write_text(engine.read_text().replace('default="127.0.0.1"', 'default="0.0.0.0"'))
    fleet.apply()
    fleet.box.run("ip addr replace 10.10.10.1/32 dev lo")
    fleet.switch("open")
    fleet.box.run("curl -sf -m 3 http://127.0.0.1:9003/health")
    assert fleet.box.run("curl -s -m 2 http://10.10.10.1:9003/health", check=False).returncode == 28


def test_two_that_do_not_intersect_run_together(fleet: Fleet) -> None:
    """A shared profile serves beside another one, and a switch evicts exactly its rival."""
    fleet.profile("embedder", 9003, top="gpus = []\nshared = true")
    fleet.apply()
    fleet.switch("embedder")
    assert fleet.active() == ["a", "embedder"]
    fleet.switch("b")
    assert fleet.active() == ["b", "embedder"]
    assert fleet.committed() == ["b", "embedder"]
    fleet.box.reboot()
    fleet.wait_serving("b", "embedder")
