"""A model that was evicted by hand comes back when what evicted it is lost by accident."""

import time

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box

RIVAL = "appliance-backend-b.service"


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with the profiles a and b, a serving and committed, and b given up at its second crash."""
    fleet = Fleet(box)
    fleet.pair()
    limit = "[Unit]\nStartLimitBurst=1\n[Service]\nRestartSec=200ms\n"
    box.write(f"/etc/systemd/system/{RIVAL}.d/limit.conf", limit)
    box.run("systemctl daemon-reload")
    fleet.switch("a")
    return fleet


def evict(fleet: Fleet) -> None:
    """Start b by hand, as a person would."""
    fleet.box.run("systemctl", "start", RIVAL)
    assert fleet.active() == ["b"]


def test_evicted_model_comes_back_when_its_rival_has_crashed_for_good(fleet: Fleet) -> None:
    """A model that was not stopped by hand comes back once systemd gives up on its rival."""
    evict(fleet)
    fleet.box.run("systemctl", "kill", "-s", "KILL", RIVAL)
    fleet.wait_serving("a", timeout_s=30)
    fleet.box.wait_for("appliance wait --for idle")
    document = fleet.status()
    last = document["last_operation"]
    assert (last["kind"], last["outcome"]) == ("repair", "done"), fleet.box.journal("-n40")


def test_evicted_model_stays_down_when_its_rival_is_stopped(fleet: Fleet) -> None:
    """The last deliberate act was a stop."""
    evict(fleet)
    fleet.box.run("systemctl", "stop", RIVAL)
    time.sleep(2.0)
    assert fleet.active() == []


def test_evicted_model_comes_back_when_its_rival_may_not_start_any_more(fleet: Fleet) -> None:
    """A rival that hits its start limit is lost before the model that it evicts has stopped."""
    evict(fleet)
    fleet.switch("a")
    pid = fleet.main_pid("a")
    done = fleet.box.run("systemctl", "start", RIVAL, check=False)
    assert done.returncode != 0
    fleet.box.wait_for(f"test $(systemctl show -P MainPID appliance-backend-a) -ne {pid}")
    fleet.wait_serving("a", timeout_s=30)
    fleet.box.wait_for("appliance wait --for idle")
    last = fleet.status()["last_operation"]
    assert (last["kind"], last["outcome"]) == ("repair", "done"), fleet.box.journal("-n40")
