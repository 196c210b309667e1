"""Watch over the health agent on a booted box: a hang, a crash loop, a shutdown, a stop by hand."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image, RigError

HEALTH = "appliance-health.service"
FAILED = "appliance-health-failed.service"
AGAIN = "appliance-health-again.timer"
SERVER = Path(__file__).parents[1] / "fakes" / "ntfy_server.py"
PROGRAM = "/usr/local/lib/test-engine/ntfy_server.py"
STATE = "/var/tmp/ntfy.json"  # noqa: S108 - in the box
SILENT = "-box-silent"
DEAD = "-health-agent-dead"


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box with a phone, and an agent that has begun its signs of life."""
    with Box(image) as box:
        fleet = Fleet(box)
        box.write(PROGRAM, SERVER.read_text("utf-8"))
        # At a shutdown it ends after the notifier, as a server elsewhere would.
        order = "-p Before=appliance-notifier.service"
        serve = f"/usr/bin/python3 {PROGRAM} --port 8085 --state {STATE}"
        box.run(f"systemd-run -q --unit=ntfy {order} {serve}")
        box.wait_for("grep -q ':1F95 ' /proc/net/tcp")
        box.run("appliance target add phone", stdin="http://127.0.0.1:8085/garage\n")
        box.run(f"systemctl restart {HEALTH}")
        yield fleet


def state(fleet: Fleet) -> Mapping[str, Any]:
    text = fleet.box.run(f"cat {STATE}", check=False).stdout or "{}"
    found: Mapping[str, Any] = json.loads(text)
    return found


def until(fleet: Fleet, is_so: Callable[[], bool], within_s: float) -> None:
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > within_s:
            shown = json.dumps(state(fleet), indent=1)
            raise RigError(f"not within {within_s} s\n{shown}\n{fleet.box.journal('-n80')}")
        time.sleep(0.2)


def due_s(fleet: Fleet) -> float | None:
    """Return the time at which "box silent" is delivered; None: nothing is scheduled."""
    kept = [one for one in state(fleet).get("scheduled", []) if one["sequence_id"].endswith(SILENT)]
    return kept[-1]["due_s"] if kept else None


def shown(fleet: Fleet, ending: str) -> list[str]:
    """Return the titles of what was delivered under a sequence id with this ending."""
    told = state(fleet).get("delivered", [])
    return [
        one["title"]
        for one in told
        if one["sequence_id"].endswith(ending) and one["event"] == "message"
    ]


def test_the_phone_keeps_a_message_that_the_box_is_silent(fleet: Fleet) -> None:
    """The agent has it scheduled soon after its first look, five minutes ahead."""
    until(fleet, lambda: due_s(fleet) is not None, 30)
    assert 200 < (due_s(fleet) or 0.0) - time.time() <= 300


def test_a_stop_by_hand_takes_it_back(fleet: Fleet) -> None:
    """An agent that a person stops is no dead box; its journal says what that means."""
    fleet.box.run(f"systemctl stop {HEALTH}")
    until(fleet, lambda: due_s(fleet) is None, 10)
    assert "nobody is told of faults" in fleet.box.journal("-u", HEALTH)
    assert shown(fleet, SILENT) == []
    fleet.box.run(f"systemctl start {HEALTH}")
    until(fleet, lambda: due_s(fleet) is not None, 30)


def test_a_loop_that_hangs_is_ended_by_systemd(fleet: Fleet) -> None:
    """Only a whole look feeds the watchdog: a process that stands still is killed and started again."""
    drop_in = "[Service]\nWatchdogSec=3s\n"
    fleet.box.write(f"/etc/systemd/system/{HEALTH}.d/50-test.conf", drop_in)
    fleet.box.run(f"systemctl daemon-reload; systemctl restart {HEALTH}")
    before = fleet.box.run(f"systemctl show -P MainPID {HEALTH}").stdout
    fleet.box.run(f"systemctl kill -s STOP {HEALTH}")
    fleet.box.run(f"rm -r /etc/systemd/system/{HEALTH}.d")
    fleet.box.wait_for(
        f"test $(systemctl show -P MainPID {HEALTH}) != {before.strip()}"
        f" && systemctl is-active -q {HEALTH}",
        timeout_s=60,
    )


def test_an_agent_that_cannot_start_is_told_without_it(fleet: Fleet) -> None:
    """After ten starts it is given up, told, and started again by a timer; then the entry says so."""
    fleet.box.write(
        f"/etc/systemd/system/{HEALTH}.d/50-test.conf",
        "[Service]\nExecStart=\nExecStart=/bin/false\nRestartSec=100ms\n",
    )
    fleet.box.run(f"systemctl daemon-reload; systemctl reset-failed {HEALTH}")
    fleet.box.run(f"systemctl restart {HEALTH}", check=False)
    until(fleet, lambda: bool(shown(fleet, DEAD)), 40)
    assert shown(fleet, DEAD)[0].endswith("the health agent is dead")
    fleet.box.wait_for(f"systemctl is-active -q {AGAIN}", timeout_s=5)
    fleet.box.run(f"rm -r /etc/systemd/system/{HEALTH}.d; systemctl daemon-reload")
    fleet.box.run(f"systemctl reset-failed {HEALTH}; systemctl start {HEALTH}")
    until(fleet, lambda: len(shown(fleet, DEAD)) > 1, 90)
    assert shown(fleet, DEAD)[-1].endswith("the health agent watches again")


def test_a_shutdown_is_no_silence(fleet: Fleet) -> None:
    """The message is pushed by the time that a reboot takes, before the notifier and the bus end."""
    until(fleet, lambda: due_s(fleet) is not None, 30)
    fleet.box.reboot()
    # The server of before the boot left its last state in a file.
    assert (due_s(fleet) or 0.0) - time.time() > 900
    assert shown(fleet, SILENT) == []
