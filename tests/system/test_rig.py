"""The rig keeps its promises: what survives a reboot, a power cut and the end of a box."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.rig import (
    Box,
    BoxInUseError,
    Image,
    RigError,
    shared_directory,
    sweep,
    work_dir,
)
from tests.system.rig.appliance import CHECKOUT
from tests.system.rig.cgroups import HIERARCHIES

BOOT_ID = "/proc/sys/kernel/random/boot_id"
STATE = "/var/lib/state"

SYNC = "import os; os.fsync(os.open('{}', os.O_RDONLY)); os.fsync(os.open('{}', os.O_RDONLY))"


@pytest.fixture
def bare(rig: type[Box]) -> Iterator[Box]:
    """A booted box without the appliance."""
    with rig() as box:
        yield box


def test_multi_user_is_reached_and_nothing_failed(bare: Box) -> None:
    """A box comes up whole: default target reached, no failed unit, nothing of the machine's."""
    assert bare.run("systemctl", "is-system-running").stdout == "running\n"
    assert bare.run("cat /sys/fs/cgroup/cgroup.procs; hostname").stdout.split()[-1] == bare.name


def test_reboot_keeps_the_disk_and_not_run(bare: Box) -> None:
    """A reboot keeps the disk, empties /run and changes the boot id."""
    before = bare.run("touch /var/lib/kept /run/lost; cat " + BOOT_ID).stdout
    bare.reboot()
    assert bare.run("test -e /var/lib/kept && ! test -e /run/lost; cat " + BOOT_ID).stdout != before


@pytest.mark.parametrize("path", ["/run/systemd/system/a.service", "/tmp/a"])  # noqa: S108 - a box's
def test_nothing_is_written_where_a_box_would_not_see_it(bare: Box, path: str) -> None:
    """A booted box mounts these directories anew, over what is on its disk."""
    with pytest.raises(RigError, match="would not be seen in the box"):
        bare.write(path, "")


def test_power_cut_gives_nothing_time_to_stop(bare: Box) -> None:
    """A power cut runs no stop command."""
    stop = "ExecStop=/bin/touch /var/lib/stopped"
    bare.unit("a.service", f"[Service]\nExecStart=/bin/sleep inf\n{stop}\n")
    bare.run("systemctl", "start", "a")
    bare.power_cut()
    assert bare.run("test -e /var/lib/stopped", check=False).returncode == 1
    bare.run("systemctl start a")
    bare.reboot()
    bare.run("test -e /var/lib/stopped")


@pytest.mark.parametrize(("synced", "expected"), [(True, "new"), (False, "old")])
def test_crash_disk_keeps_only_what_was_synced(
    rig: type[Box], *, synced: bool, expected: str
) -> None:
    """On a crash disk a power cut loses a rename that was not synced, and keeps one that was."""
    with rig(disk=STATE) as box:
        box.run(f"echo -n old >{STATE}/active; sync -f {STATE}")
        box.run(f"echo -n new >{STATE}/next; mv {STATE}/next {STATE}/active")
        if synced:
            box.run("python3", "-c", SYNC.format(f"{STATE}/active", STATE))
        box.power_cut()
        assert box.run("cat", f"{STATE}/active").stdout == expected


def test_crash_disk_is_kept_by_a_reboot(rig: type[Box]) -> None:
    """A reboot in good order loses nothing on a crash disk."""
    with rig(disk=STATE) as box:
        box.run(f"echo -n new >{STATE}/active")
        box.reboot()
        assert box.run("cat", f"{STATE}/active").stdout == "new"


def test_user_gets_its_groups_and_no_privilege(bare: Box) -> None:
    """A command run as a user has that user's groups and cannot write root's files."""
    bare.run("groupadd crew; useradd --groups crew ana")
    assert bare.run("id", "-Gn", user="ana").stdout.split() == ["ana", "crew"]
    assert bare.run("touch /etc/x", user="ana", check=False).returncode == 1


def test_environment_of_the_caller_stays_out(bare: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sees the box's environment and what was asked for, not the caller's."""
    monkeypatch.setenv("SECRET", "x")
    variables = bare.run("env", env={"ASKED": "1"}).stdout.splitlines()
    assert "ASKED=1" in variables
    assert not any(v.startswith("SECRET") for v in variables)


def test_address_filter_is_enforced(bare: Box) -> None:
    """IPAddressDeny= works in a box: the packets of a denied unit are counted and dropped."""
    listen = "import socket; s = socket.create_server(('127.0.0.1', 9)); s.accept()"
    talk = "import socket; socket.create_connection(('127.0.0.1', 9), 0.5)"
    deny = "-p IPAccounting=yes -p IPAddressDeny=any"
    with bare.stream("python3", "-c", listen):
        bare.wait_for("ss -Hltn | grep -q :9")
        denied = bare.run(f'systemd-run --quiet --wait {deny} python3 -c "{talk}"', check=False)
        allowed = bare.run(f'systemd-run --quiet --wait python3 -c "{talk}"', check=False)
    assert (denied.returncode, allowed.returncode) == (1, 0)


def test_stream_signals_reach_the_command(bare: Box) -> None:
    """A streamed command gives its lines as they come, and a signal sent to it is its own."""
    trap = "trap 'echo caught; exit 7' INT; echo up; while :; do sleep 0.05; done"
    with bare.stream(trap) as stream:
        lines = stream.lines()
        assert next(lines) == "up"
        stream.signal(signal.SIGINT)
        assert next(lines) == "caught"
        assert stream.wait() == 7


def test_command_out_of_time_is_killed(bare: Box) -> None:
    """A command that overruns its time is ended in the box too."""
    with pytest.raises(subprocess.TimeoutExpired):
        bare.run("exec sleep 4242", timeout_s=0.3)
    assert bare.run("pgrep", "-fx", "sleep 4242", check=False).returncode == 1


def test_failure_shows_what_was_printed(bare: Box) -> None:
    """A command that fails raises with its output, unless the caller wants to look itself."""
    with pytest.raises(RigError, match="ended with 3:\nout\nerr"):
        bare.run("echo out; echo err >&2; exit 3")


def test_boxes_run_side_by_side(rig: type[Box]) -> None:
    """Boxes started together do not see each other's units, files or processes."""

    def one(number: int) -> str:
        with rig() as box:
            box.unit("mark.service", f"[Service]\nExecStart=/bin/sleep {number}\n")
            box.run("systemctl start mark; touch /var/lib/$(hostname)")
            return box.run("pgrep -fx '/bin/sleep 77.'; ls -d /var/lib/box-*").stdout

    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(one, range(770, 773)))
    assert [len(text.split()) for text in seen] == [2, 2, 2]


def test_boxes_of_one_name_live_beside_each_other(
    rig: type[Box], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In different folders both run, and the end of one ends nothing of the other; in one folder the second is refused."""
    with rig(name="twin") as first:
        with (
            pytest.raises(BoxInUseError, match=f"belongs to process {os.getpid()}: kill"),
            rig(name="twin"),
        ):
            pass
        assert first.run("hostname").stdout == "twin\n"
        monkeypatch.setenv("APPLIANCE_RIG_DIR", str(tmp_path))
        with rig(name="twin") as second:
            assert second.run("hostname").stdout == "twin\n"
            assert second.group != first.group
        assert first.run("hostname").stdout == "twin\n"
        monkeypatch.undo()


def test_image_is_shared_and_not_changed_by_its_boxes(rig: type[Box]) -> None:
    """Boxes on one image start with its files and units, and do not see each other's changes."""

    def prepare(box: Box) -> None:
        install = "[Install]\nWantedBy=multi-user.target\n"
        box.unit("made.service", f"[Service]\nExecStart=/bin/sleep inf\n{install}")
        box.run("systemctl enable made; echo -n one >/etc/made")

    image = Image.build(rig(), prepare)
    try:
        with rig(image, disk="/var/lib/made") as first, rig(image) as second:
            first.run("systemctl is-active made; echo -n two >/etc/made")
            second.run("systemctl is-active made")
            assert second.run("cat /etc/made").stdout == "one"
    finally:
        image.close()


def test_processes_share_an_image(rig: type[Box], tmp_path: Path) -> None:
    """The second has what the first wrote, hid and deleted, and its owners and modes."""

    def prepare(box: Box) -> None:
        box.run(
            "echo -n one >/etc/made; chown 1234:4321 /etc/made; chmod 640 /etc/made;"
            " ln -s made /etc/link; rm /usr/bin/factor; rm -r /etc/skel; mkdir /etc/skel"
        )

    def fail(_box: Box) -> None:
        raise AssertionError("built twice")

    archive = tmp_path / "made.tar"
    first = Image.once(rig(), prepare, archive)
    second = Image.once(rig(), fail, archive)
    first.close()
    try:
        with rig(second) as box:
            assert (
                box.run("stat -c '%u:%g %a' /etc/made; cat /etc/link").stdout
                == "1234:4321 640\none"
            )
            assert box.run("ls /usr/bin/factor", check=False).returncode
            assert box.run("ls -A /etc/skel").stdout == ""
    finally:
        second.close()


def test_the_last_process_removes_what_is_shared(rig: type[Box]) -> None:  # noqa: ARG001
    """As long as one uses the directory, it is there."""
    run = uuid.uuid4().hex
    with shared_directory(run) as first:
        with shared_directory(run) as second:
            assert first == second
        assert first.exists()
    assert not first.exists()


def test_nothing_is_left_behind(rig: type[Box]) -> None:
    """A closed box leaves no directory, control group, loop device, mount or process."""
    loops = Path("/sys/block").glob("loop*/loop/backing_file")
    with rig(disk=STATE) as box:
        leader = box.leader
        assert any(box.name in p.read_text() for p in Path("/sys/block").glob("loop*/loop/b*_file"))
    assert not (work_dir() / box.name).exists()
    assert not any(list(h.glob(f"*{box.name}*")) for h in HIERARCHIES if h.exists())
    assert not any(box.name in p.read_text() for p in loops)
    assert box.name not in Path("/proc/self/mountinfo").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(leader, 0)


def test_the_machine_is_not_written(bare: Box) -> None:
    """The machine does not see what a box writes and deletes."""
    bare.run("touch /etc/from-the-box; rm /usr/bin/env")
    assert not Path("/etc/from-the-box").exists()
    assert Path("/usr/bin/env").exists()


@pytest.mark.usefixtures("rig")
def test_box_of_a_killed_owner_is_swept() -> None:
    """A box whose owner was killed is ended and removed by the next sweep."""
    code = (
        "from tests.system.rig import Box; import time\n"
        "b = Box().setup().boot(); print(b.name, b.leader, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen(
        ["/usr/bin/python3", "-B", "-c", code],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        name, leader = owner.stdout.readline().split()
        owner.kill()
    sweep()
    assert not (work_dir() / name).exists()
    until(lambda: not Path(f"/proc/{leader}").exists())


def test_box_boots_where_systemd_is_in_charge(rig: type[Box]) -> None:
    """A box boots inside a box: the way it goes on a machine whose PID 1 is systemd."""
    inner = (
        "from tests.system.rig import Box\n"
        "with Box(name='inner') as b:\n"
        "    b.run('systemctl is-system-running')\n"
        "    print(b.reboot().power_cut().run('hostname').stdout)\n"
    )
    with rig(read_only={"/mnt/source": CHECKOUT}) as box:
        where = {"PYTHONPATH": "/mnt/source", "APPLIANCE_RIG_DIR": "/var/rig"}
        assert box.run("python3", "-B", "-c", inner, env=where).stdout.strip() == "inner"
        assert "inner" not in box.run("systemctl list-units --no-legend '*.scope'").stdout


@pytest.mark.usefixtures("rig")
def test_a_box_may_stay_behind_and_reboots() -> None:
    """A box whose maker stays behind outlives the command, boots again, and is removed once it has shut down."""
    code = (
        "import sys\n"
        "from tests.system.rig import Box, stay_behind\n"
        "def work(leave):\n"
        "    with Box() as b:\n"
        "        print(b.name, b.leader, b.nspawn_pid)\n"
        "        leave()\n"
        "        b.keep()\n"
        "sys.exit(stay_behind(work))\n"
    )
    made = subprocess.run(
        ["/usr/bin/python3", "-B", "-c", code],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    name, leader, nspawn = made.stdout.split()
    directory = work_dir() / name
    sweep()
    assert Path(f"/proc/{leader}/root/etc/hostname").read_text().strip() == name
    subprocess.run(["nsenter", "-t", leader, "-a", "systemctl", "reboot"], check=True)
    until(lambda: (directory / "nspawn").read_text() not in {"", nspawn}, within_s=60)
    leader, nspawn = ((directory / file).read_text() for file in ("leader", "nspawn"))
    assert Path(f"/proc/{leader}/root/etc/hostname").read_text().strip() == name
    os.kill(int(nspawn), signal.SIGTERM)
    until(lambda: not directory.exists(), within_s=60)


def test_who_does_not_stay_behind_tells_its_status() -> None:
    """The command ends as its child does, where that fails before it could stay."""
    code = (
        "import sys; from tests.system.rig import stay_behind; sys.exit(stay_behind(lambda _: 3))"
    )
    done = subprocess.run(["/usr/bin/python3", "-B", "-c", code], cwd=CHECKOUT, check=False)
    assert done.returncode == 3


def until(condition: Callable[[], bool], within_s: float = 10) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
