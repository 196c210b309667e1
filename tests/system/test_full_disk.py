"""A state directory on a full disk: nothing that serves is stopped in vain."""

from collections.abc import Iterator

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box

STATE = "/var/lib/appliance"
NO_ROOM = f"{STATE}/%s: No space left on device: make room, see df -h {STATE}"


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Iterator[Fleet]:
    """A box with the profiles a and b, a serving and committed; then its state's disk is full."""
    box = shared_fleet.box
    fill(box)
    yield shared_fleet
    make_room(box)
    assert "Traceback" not in box.journal("-u", "appliance-supervisor")


def fill(box: Box) -> None:
    """Leave no block for anybody, the superuser's reserve included."""
    box.run(
        f"for size in 1M 4k 1; do dd if=/dev/zero of={STATE}/filler bs=$size oflag=append"
        f" conv=notrunc status=none 2>/dev/null; done; sync -f {STATE}; ! echo > {STATE}/more;"
        f" rm -f {STATE}/more"
    )


def make_room(box: Box) -> None:
    box.run(f"rm -f {STATE}/filler; sync -f {STATE}")


def test_a_switch_is_refused_and_nothing_is_stopped(fleet: Fleet) -> None:
    """Also --dry-run says so; what a boot serves and what serves now stay as they are."""
    pid = fleet.main_pid("a")
    for options in (("--dry-run",), ()):
        answer = fleet.cli("switch", "b", *options)
        assert answer.exit == 1, answer
        assert NO_ROOM % "active" in f"{answer.events}"
    assert (fleet.main_pid("a"), fleet.committed()) == (pid, ["a"])
    make_room(fleet.box)
    fleet.switch("b")
    assert (fleet.active(), fleet.committed()) == (["b"], ["b"])
    assert fleet.box.run(f"ls -A {STATE} | grep reserved", check=False).stdout == ""


def test_a_hold_is_refused_and_nothing_is_stopped(fleet: Fleet) -> None:
    """A hold that a reboot would forget is none, so the models go on serving."""
    pid = fleet.main_pid("a")
    answer = fleet.cli("hold")
    assert answer.exit == 1, answer
    assert NO_ROOM % "hold" in answer.result["message"]
    assert fleet.main_pid("a") == pid
    assert fleet.box.run("systemctl is-active appliance-hold", check=False).stdout == "inactive\n"


def test_a_disk_that_fills_up_during_a_switch_does_not_matter(fleet: Fleet) -> None:
    """Room for the commit was reserved before anything was stopped; a reboot serves the new model."""
    make_room(fleet.box)
    fleet.profile("slow", 9003, "--delay", "3")
    fleet.apply()
    assert fleet.cli("switch", "slow", "--no-wait").exit == 0
    fleet.box.wait_for("systemctl show -P SubState appliance-backend-slow | grep -q start")
    fill(fleet.box)
    answer = fleet.cli("wait")
    assert (answer.exit, fleet.committed()) == (0, ["slow"]), answer
    fleet.box.power_cut()
    fleet.wait_serving("slow", timeout_s=30)


def test_what_serves_uncommitted_goes_on_serving(fleet: Fleet) -> None:
    """A switch to a model that was started by hand cannot commit it, and leaves it alone."""
    fleet.box.run("systemctl start appliance-backend-b")
    fleet.wait_serving("b")
    pid = fleet.main_pid("b")
    answer = fleet.cli("switch", "b")
    assert answer.exit == 1, answer
    assert NO_ROOM % "active" in answer.result["message"]
    assert (fleet.main_pid("b"), fleet.committed()) == (pid, ["a"])


def test_what_writes_nothing_needs_no_room(fleet: Fleet) -> None:
    """Restart, stop, start and the switch back to what is committed work, history or not."""
    fleet.box.run("systemctl start appliance-backend-b")
    fleet.wait_serving("b")
    for argv in (("switch", "a"), ("restart",), ("stop",), ("start",)):
        answer = fleet.cli(*argv)
        assert answer.exit == 0, answer
    assert fleet.active() == ["a"]
    assert fleet.status()["committed"] == ["a"]
