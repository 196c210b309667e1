"""A process that the kernel cannot end: systemd gives up on it, the gate does not."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

FREEZER = Path("/sys/fs/cgroup/freezer")
"""A task frozen by version 1 of the freezer does not even die of SIGKILL, as in state D."""

pytestmark = pytest.mark.skipif(
    not (FREEZER / "cgroup.procs").exists(),
    reason="no freezer of control groups version 1: processes that cannot be ended stay unproved",
)


def unit(name: str) -> str:
    """The unit of a profile."""
    return f"appliance-backend-{name}.service"


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """Two rivals on the CPU with short deadlines."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        for name, port in (("a", 9001), ("b", 9002)):
            deadlines = 'deadlines = { stop = "1s", release = "4s", drain = "1s" }'
            fleet.profile(name, port, top=f"gpus = []\n{deadlines}")
        fleet.apply()
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """Shared box, a serving."""
    shared.restore("a")
    return shared


def outer_pid(box: Box, inner: int) -> int:
    """Return the pid on this machine of process `inner` of a box."""
    space = Path(f"/proc/{box.leader}/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, StopIteration):
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == space:
                lines = (entry / "status").read_text().splitlines()
                if int(next(x for x in lines if x.startswith("NSpid")).split()[-1]) == inner:
                    return int(entry.name)
    raise AssertionError(f"no process {inner} in the box")


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Keep a process from ending within the block."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    before = next(x for x in lines if ":freezer:" in x).split(":")[2]
    group = FREEZER / f"appliance-tests-{pid}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        for left in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has died meanwhile
                Path(f"{FREEZER}{before}/cgroup.procs").write_text(left)
        deadline = time.monotonic() + 5
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()


def test_nobody_starts_beside_what_cannot_be_ended(fleet: Fleet) -> None:
    """The gate refuses a rival while a process of the old model is left, with and without its lease.

    Its own unit waits for it, and starts when it is gone.
    """
    inner = fleet.main_pid("a")
    with frozen(outer_pid(fleet.box, inner)):
        fleet.box.run("systemctl", "start", unit("b"), check=False, timeout_s=60)
        assert fleet.show("a", "ActiveState") == "failed"
        assert fleet.show("b", "Result") == "exec-condition"
        assert f"cpu is held by python3 (pid {inner}, {unit('a')}" in fleet.show("b", "StatusText")
        # As if it had closed the lease, like a worker that was not forked but spawned.
        fleet.box.run("rm /run/appliance-leases/cpu")
        fleet.box.run("systemctl", "start", unit("b"), check=False, timeout_s=60)
        said = fleet.show("b", "StatusText")
        assert f"{unit('a')} has not ended: python3 (pid {inner}, {unit('a')}" in said
        assert fleet.show("b", "NRestarts") == "0"
        fleet.box.run("systemctl", "start", "--no-block", unit("a"))
        fleet.box.wait_for(f"systemctl show -P StatusText {unit('a')} | grep '1 process of it'")
    fleet.wait_serving("a", timeout_s=20)
    assert fleet.main_pid("a") != inner


def test_workers_that_ignore_sigterm_do_not_outlive_their_unit(fleet: Fleet) -> None:
    """KillMode=mixed: with the main process gone, whatever is left gets SIGKILL before a rival starts."""
    group = f"/sys/fs/cgroup/appliance.slice/{unit('a')}"
    fleet.box.write(
        "/root/stubborn",
        f"trap '' TERM\necho $$ > {group}/cgroup.procs\necho $$ > /run/stubborn\n"
        "while true; do sleep 0.1; done\n",
    )
    fleet.box.run("setsid sh /root/stubborn < /dev/null > /dev/null 2>&1 &")
    fleet.box.wait_for("test -s /run/stubborn")
    worker = fleet.box.run("cat /run/stubborn").stdout.strip()
    assert worker in fleet.box.run(f"cat {group}/cgroup.procs").stdout.split()
    began = time.monotonic()
    fleet.box.run("systemctl", "start", unit("b"))
    assert time.monotonic() - began < 5
    assert fleet.active() == ["b"]
    assert fleet.show("a", "Result") == "success"
    assert fleet.box.run(f"kill -0 {worker}", check=False).returncode != 0
