"""An engine whose worker is frozen while its API process still says that all is well."""

import json
import time

import pytest

from appliance.status.stalls import STALLED_AFTER_S
from tests.system.chat import ask, ask_streaming
from tests.system.fleet import Fleet
from tests.system.rig import Box

GATEWAY = 8010
FOUND_WITHIN_S = 90


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with the profile a serving, whose answers are made by a process of their own."""
    fleet = Fleet(box)
    fleet.profile("a", 9001, "--apart")
    fleet.apply()
    fleet.switch("a")
    return fleet


def test_frozen_worker_with_requests_in_flight_degrades_the_status(fleet: Fleet) -> None:
    """The health path answers all the time; the status says who waits, and forgets it afterwards."""
    assert "hello" in ask(fleet.box, GATEWAY, "x", model="a")
    main = fleet.main_pid("a")
    worker = fleet.box.run(f"cat /proc/{main}/task/{main}/children").stdout.split()[0]
    fleet.box.run("kill", "-STOP", worker)
    with ask_streaming(fleet.box, GATEWAY, "x", model="a") as waiting:
        deadline = time.monotonic() + FOUND_WITHIN_S
        while fleet.status()["verdict"]["state"] == "serving" and time.monotonic() < deadline:
            fleet.box.run("curl -sf http://127.0.0.1:9001/health")
            time.sleep(2.0)
        done = fleet.box.run("appliance status --json", check=False)
        document = json.loads(done.stdout)
        assert (done.returncode, document["verdict"]["state"]) == (1, "degraded")
        (row,) = document["profiles"]
        assert (row["state"], row["stall"]["in_flight"]) == ("unresponsive", 1)
        assert row["stall"]["quiet_s"] >= STALLED_AFTER_S
        shown = fleet.box.run("appliance status", check=False).stdout
        assert "no progress: 1 request in flight, no byte and no CPU for " in shown
        fleet.box.run("kill", "-CONT", worker)
        waiting.process.wait(30)
    fleet.box.wait_for("appliance status", timeout_s=30)
    assert fleet.main_pid("a") == main
