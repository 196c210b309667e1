"""Engines that end by themselves come back, whatever their status; engines that were stopped do not."""

import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

UNIT = "appliance-backend-a.service"
RESTART_S = 2
LATER_S = RESTART_S + 1.5
"""Time after which a restart would have come."""


def drop_in(fleet: Fleet, name: str, text: str) -> None:
    """Change the unit of a for the test."""
    fleet.box.write(f"/etc/systemd/system/{UNIT}.d/{name}.conf", text)
    fleet.box.run("systemctl daemon-reload")


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """A box with the profiles a and b, whose crashes nobody counts."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.profile("a", 9001, "--delay", "0.8")
        fleet.profile("b", 9002)
        fleet.apply()
        patience = f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec={RESTART_S}s\n"
        drop_in(fleet, "patience", patience)
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """The box of all tests here, a serving and committed; whatever the test before has stopped."""
    shared.restore("a")
    return shared


def end(fleet: Fleet, number: str) -> None:
    """Send a signal to the engine itself: USR1 and TERM end it with status 0, USR2 with 1."""
    fleet.box.run("systemctl", "kill", "--kill-who=main", "-s", number, UNIT)


def wait_restarting(fleet: Fleet) -> None:
    """Wait until systemd pauses before it starts a again."""
    fleet.box.wait_for(f"systemctl show -P SubState {UNIT} | grep -q auto-restart")


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("USR1", "ended by itself with status 0"),
        ("TERM", "ended by itself with status 0"),
        ("HUP", "ended by itself with signal 1"),
        ("USR2", "exited with status 1"),
        ("KILL", "was killed by signal 9"),
        ("ABRT", "was killed by signal 6"),
    ],
)
def test_an_engine_that_ends_by_itself_is_started_again(
    fleet: Fleet, number: str, words: str, *, ready: bool
) -> None:
    """An engine's end is a crash in status and journal, before READY and after it."""
    if not ready:
        fleet.box.run(f"systemctl restart --no-block {UNIT}")
        # The engine's own process: the wrapper has become it.
        engine = f"/proc/$(systemctl show -P MainPID {UNIT})/cmdline"
        fleet.box.wait_for(f"grep -q delay {engine} && ! grep -q bin/appliance-backend {engine}")
        time.sleep(0.3)
        assert fleet.show("a", "ActiveState") == "activating"
    pid = fleet.main_pid("a")
    crash = f"a crashed ({words}"  # and how often it was started again, on this box for all tests
    told = fleet.box.journal("-u", "appliance-supervisor").count(crash)
    end(fleet, number)
    wait_restarting(fleet)
    document = fleet.status()
    row = document["profiles"][0]
    assert row["state"] == "restarting"
    assert re.fullmatch(rf"{words}(; restarted (once|\d+ times) so far)?", row["note"])
    assert document["verdict"]["why"] == [
        f"a is committed but restarting ({row['note']}): appliance logs a"
    ]
    assert fleet.box.journal("-u", "appliance-supervisor").count(crash) == told + 1
    fleet.wait_serving("a", timeout_s=20)
    assert fleet.main_pid("a") not in {0, pid}


def test_an_engine_that_its_watchdog_ends_is_started_again(fleet: Fleet) -> None:
    """A missed WatchdogSec= is a crash like others."""
    drop_in(fleet, "watchdog", "[Service]\nWatchdogSec=1s\n")
    fleet.box.run(f"systemctl restart {UNIT}")
    wait_restarting(fleet)
    row = fleet.status()["profiles"][0]
    assert (row["state"], row["note"]) == ("restarting", "stopped answering its watchdog")
    drop_in(fleet, "watchdog", "")
    fleet.wait_serving("a", timeout_s=20)


def test_an_engine_that_ends_with_status_0_fails_its_switch(fleet: Fleet) -> None:
    """The roll-back names the end, and does not speak of a stop by hand."""
    fleet.profile("b", 9002, "--die", "ready", "--die-status", "0")
    fleet.apply(check=False)  # it speaks of our drop-in
    answer = fleet.cli("switch", "b")
    fleet.profile("b", 9002)
    fleet.apply(check=False)
    assert answer.exit == 10
    assert "b did not start: the engine ended by itself with status 0" in answer.result["message"]
    fleet.wait_serving("a")


def by_switch(fleet: Fleet) -> None:
    """A switch to another model."""
    fleet.switch("b")


def by_rival(fleet: Fleet) -> None:
    """A rival that is started by hand."""
    fleet.box.run("systemctl start appliance-backend-b.service")


def by_hold(fleet: Fleet) -> None:
    """A hold."""
    assert fleet.cli("hold").exit == 0


def by_hold_unit(fleet: Fleet) -> None:
    """The hold's unit, started by hand."""
    fleet.box.run("systemctl start appliance-hold.service")


def by_stop(fleet: Fleet) -> None:
    """A stop with the command."""
    assert fleet.cli("stop", "a").exit == 0


def by_systemctl(fleet: Fleet) -> None:
    """A stop with systemctl."""
    fleet.box.run(f"systemctl stop {UNIT}")


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize(
    "stop", [by_switch, by_rival, by_hold, by_hold_unit, by_stop, by_systemctl]
)
def test_what_was_stopped_stays_stopped(
    fleet: Fleet, stop: Callable[[Fleet], None], *, crashed: bool
) -> None:
    """Restart=always acts on no stop job, neither of what serves nor of what waits to restart."""
    if crashed:
        end(fleet, "USR1")
        wait_restarting(fleet)
    stop(fleet)
    assert "a" not in fleet.active()
    time.sleep(LATER_S)
    assert "a" not in fleet.active()
    assert fleet.show("a", "ActiveState") == "inactive"


def test_a_command_is_not_disturbed_by_a_model_that_crashed(fleet: Fleet) -> None:
    """A model that waited for its restart when a command took its place comes back afterwards."""
    end(fleet, "USR1")
    wait_restarting(fleet)
    seconds = LATER_S + 1
    with fleet.box.stream(
        "appliance", "run", "--gpus", "none", "--", "/bin/sleep", str(seconds)
    ) as command:
        fleet.box.wait_for("systemctl is-active -q appliance-run.service")
        time.sleep(LATER_S)
        assert fleet.active() == []
        command.process.wait(30)
    fleet.wait_serving("a", timeout_s=20)


def test_a_reboot_in_the_pause_before_a_restart(fleet: Fleet) -> None:
    """The shutdown is not held up, and the boot starts the committed model."""
    end(fleet, "USR1")
    wait_restarting(fleet)
    fleet.box.reboot()
    fleet.wait_serving("a", timeout_s=20)


def test_what_the_gate_or_the_wrapper_refuses_is_not_tried_again(fleet: Fleet) -> None:
    """A skipped ExecCondition= and the statuses 78 and 79 end a start once, as before."""
    past = "systemctl start --job-mode=ignore-dependencies appliance-backend-b.service"
    fleet.box.write(
        "/etc/systemd/system/appliance-backend-b.service.d/fast.conf",
        "[Service]\nRestartSec=200ms\n",
    )
    fleet.box.run("systemctl daemon-reload")
    fleet.box.run(past, check=False, timeout_s=100)
    time.sleep(1.0)
    assert fleet.show("b", "ActiveState") == "inactive"
    assert fleet.show("b", "NRestarts") == "0"
    fleet.box.write(
        "/etc/systemd/system/appliance-backend-b.service.d/nogate.conf",
        "[Service]\nExecCondition=\n",
    )
    fleet.box.run("systemctl daemon-reload")
    fleet.box.run(past, check=False)
    time.sleep(1.0)
    assert (fleet.show("b", "ExecMainStatus"), fleet.show("b", "NRestarts")) == ("79", "0")
    assert fleet.show("b", "ActiveState") == "failed"
    assert fleet.active() == ["a"]
    fleet.box.run(
        "rm -r /etc/systemd/system/appliance-backend-b.service.d; systemctl daemon-reload"
    )
