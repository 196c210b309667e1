"""The gate as a real process, on real locks and the memory of this machine."""

import fcntl
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.notify_socket import NotifySocket
from tests.programs import program, run, started

ONE_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The folders of one machine, and a systemctl that writes down what it is asked."""

    root: Path

    @property
    def lease(self) -> Path:
        return self.root / "leases" / "cpu"

    @property
    def refusal(self) -> Path:
        return self.root / "gate" / "a.json"

    @property
    def systemctl_calls(self) -> str:
        log = self.root / "systemctl.log"
        return log.read_text() if log.exists() else ""

    def gate(self, *arguments: object, deadline_s: float = 0.3) -> list[str]:
        folders = ("--lease-dir", self.lease.parent, "--gate-dir", self.refusal.parent)
        limits = ("--systemctl", self.root / "systemctl", "--deadline-s", deadline_s)
        return program("gate", "--name", "a", *folders, *limits, *arguments)

    def read_refusal(self) -> dict[str, object]:
        document = json.loads(self.refusal.read_text())
        assert isinstance(document, dict)
        return document


@pytest.fixture
def box(tmp_path: Path) -> Box:
    script = tmp_path / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/systemctl.log\n')
    script.chmod(0o755)
    return Box(root=tmp_path)


@contextmanager
def held(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable"))


LEASE = ("--lease", "cpu:exclusive")


def test_a_free_claim_is_admitted_and_left_free(box: Box) -> None:
    """Admission creates the lease, leaves it unlocked and forgets an old refusal."""
    box.refusal.parent.mkdir()
    box.refusal.write_text("{}")
    result = run(box.gate(*LEASE, "--ram-bytes", ONE_GIB // 1024))
    assert (result.returncode, result.stderr) == (0, "")
    assert stat.S_IMODE(box.lease.stat().st_mode) == 0o640
    assert not box.refusal.exists()
    assert box.systemctl_calls == ""
    with held(box.lease, fcntl.LOCK_EX | fcntl.LOCK_NB):
        pass


def test_a_rival_is_named_in_the_refusal(box: Box) -> None:
    """A lease in other hands ends in status 75, a cleared start limit and a file with the name."""
    with held(box.lease):
        result = run(box.gate(*LEASE), environment={"INVOCATION_ID": "1234"})
    assert result.returncode == 75
    assert box.systemctl_calls == "reset-failed appliance-backend-a.service\n"
    refusal = box.read_refusal()
    reason = refusal.pop("reason")
    assert isinstance(reason, str)
    assert f"(pid {os.getpid()}" in reason
    assert reason.startswith("cpu is held by ")
    written = refusal.pop("unix_s")
    assert isinstance(written, float)
    assert abs(time.time() - written) < 60
    assert refusal == {"verdict": "refused", "invocation_id": "1234"}
    assert stat.S_IMODE(box.refusal.stat().st_mode) == 0o644
    assert f"<3>a refused: {reason}" in result.stderr


def test_a_rival_that_lets_go_is_waited_for(box: Box, manager: NotifySocket) -> None:
    """A lock that is dropped within the grace does not end in a refusal."""
    box.lease.parent.mkdir()
    with box.lease.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        argv = box.gate(*LEASE, deadline_s=10)
        with started(argv, environment=manager.environment) as gate:
            manager.wait_for("STATUS=waiting for cpu: ")
            assert gate.poll() is None
            fcntl.flock(file, fcntl.LOCK_UN)
            assert gate.wait(timeout=9) == 0


@pytest.mark.parametrize(
    ("taken", "asked", "status"),
    [
        (fcntl.LOCK_SH, "shared", 0),
        (fcntl.LOCK_SH, "exclusive", 75),
        (fcntl.LOCK_EX, "shared", 75),
        (fcntl.LOCK_EX, "exclusive", 75),
    ],
)
def test_shared_leases_go_together(box: Box, taken: int, asked: str, status: int) -> None:
    """Only two shared holders of one lease get on."""
    with held(box.lease, taken):
        assert run(box.gate("--lease", f"cpu:{asked}")).returncode == status


def test_an_admission_is_written_into_the_leases(box: Box) -> None:
    """The wrapper of a rival that was admitted before finds it there; a refusal writes nothing."""
    assert run(box.gate(*LEASE)).returncode == 0
    assert box.lease.read_text().split() == ["exclusive", "a"]
    box.lease.write_text("")
    with box.lease.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run(box.gate(*LEASE)).returncode == 75
    assert box.lease.read_text() == ""


def test_two_gates_at_once_do_not_refuse_each_other(box: Box) -> None:
    """Gates that look at the same lease at the same moment both admit."""
    argv = box.gate(*LEASE, deadline_s=5)
    for _ in range(3):
        with started(argv) as one, started(argv) as two, started(argv) as three:
            assert [g.wait(timeout=10) for g in (one, two, three)] == [0, 0, 0]


def test_late_memory_names_the_largest_processes(box: Box) -> None:
    """Memory that is not back by the deadline ends in status 255, so that Restart= applies."""
    result = run(box.gate("--ram-bytes", available_bytes()))
    assert result.returncode == 255
    refusal = box.read_refusal()
    assert refusal["verdict"] == "late"
    assert " GiB of RAM free" in str(refusal["reason"])
    assert box.systemctl_calls.startswith("reset-failed")


def test_a_machine_that_is_too_small_is_not_waited_for(box: Box) -> None:
    """A need beyond the whole memory is refused at once, without a restart."""
    began = time.monotonic()
    result = run(box.gate("--ram-bytes", 1 << 50, deadline_s=60))
    assert time.monotonic() - began < 10
    assert result.returncode == 75
    assert "the machine has" in str(box.read_refusal()["reason"])


@pytest.mark.slow
def test_waiting_shows_and_keeps_the_start_alive(box: Box, manager: NotifySocket) -> None:
    """While waiting, the status says for what, and the start time-out moves on."""
    argv = box.gate("--ram-bytes", available_bytes(), deadline_s=1.3)
    with started(argv, environment=manager.environment):
        message = manager.wait_for("STATUS=waiting for memory: ")
        assert " GiB of RAM free" in message
        assert "EXTEND_TIMEOUT_USEC=" in message
        manager.wait_for("STATUS=late: ")
    assert len(manager.messages) <= 8  # a few a second


def test_a_stop_while_waiting_leaves_no_refusal(box: Box, manager: NotifySocket) -> None:
    """SIGTERM ends a waiting gate at once and says nothing about the profile."""
    argv = box.gate("--ram-bytes", available_bytes(), deadline_s=30)
    with started(argv, environment=manager.environment) as gate:
        manager.wait_for("STATUS=waiting for memory: ")
        gate.terminate()
        assert gate.wait(timeout=20) != 0
    assert not box.refusal.exists()


def test_a_broken_systemctl_does_not_hide_the_refusal(box: Box) -> None:
    """The refusal is written and its status kept when the start limit cannot be cleared."""
    (box.root / "systemctl").unlink()
    with held(box.lease):
        assert run(box.gate(*LEASE)).returncode == 75
    assert box.refusal.exists()


def test_an_unwritable_folder_does_not_change_the_verdict(box: Box) -> None:
    """Without a place for its file the gate still refuses, and logs why."""
    box.refusal.parent.write_text("not a folder")
    with held(box.lease):
        result = run(box.gate(*LEASE))
    assert result.returncode == 75
    assert "cannot write the verdict" in result.stderr


def test_a_lease_that_is_a_link_is_not_followed(box: Box) -> None:
    """A link in the lease folder is an error, not a lock on something else."""
    box.lease.parent.mkdir()
    target = box.root / "target"
    target.touch()
    box.lease.symlink_to(target)
    assert run(box.gate(*LEASE)).returncode == 255


@pytest.mark.parametrize(
    "arguments",
    [
        ("--name", "../x"),
        ("--name", ""),
        ("--lease", "../x:shared"),
        ("--lease", "gpu-0"),
        ("--lease", "gpu-x:shared"),
        ("--gpus", "all,1"),
        ("--ram-bytes", "-1"),
        ("--ram-bytes", "1e9"),
        ("--deadline-s", "nan"),
        ("--deadline-s", "soon"),
        ("--surprise", "1"),
        ("stray",),
        ("--name",),
    ],
)
def test_a_senseless_command_line_is_skipped_without_restart(
    box: Box, arguments: Sequence[str]
) -> None:
    """A wrong argument ends in one sentence and a status that systemd does not retry."""
    result = run(box.gate(*arguments))
    assert result.returncode == 64
    assert result.stderr.startswith("<3>gate: ")
    assert "Traceback" not in result.stderr


def test_a_start_waits_for_its_port(box: Box, manager: NotifySocket) -> None:
    """The gate admits when the port can be bound, and its verdict says what was awaited."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        argv = box.gate(*LEASE, "--port", port, deadline_s=10)
        with started(argv, environment=manager.environment) as gate:
            manager.wait_for(f"STATUS=waiting for port {port}: ")
            assert gate.poll() is None
            bound.close()
            assert gate.wait(timeout=9) == 0
    admitted = box.read_refusal()
    assert admitted["verdict"] == "admitted"
    assert re.fullmatch(rf"port {port} free after \d\.\d s", str(admitted["reason"]))


def test_a_port_that_does_not_come_back_is_late(box: Box) -> None:
    """At its deadline the gate fails the start, which systemd tries again; it says for how long."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert run(box.gate(*LEASE, "--port", port)).returncode == 255
    assert box.read_refusal()["verdict"] == "late"


def test_a_port_in_other_hands_is_refused_with_its_owner(box: Box) -> None:
    """A process that listens is no earlier run that ends: it is named, and the start skipped."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        result = run(box.gate(*LEASE, "--port", port, "--port-reuse", "address", deadline_s=0.2))
    assert result.returncode == 75
    reason = str(box.read_refusal()["reason"])
    assert reason.startswith(f"port {port} is in use by ")
    assert f"(pid {os.getpid()}" in reason


def test_an_unknown_program_binds_as_its_last_run_did(box: Box) -> None:
    """Connections that its own last run left say how it binds; those of another program do not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            client.recv(1)
    other = box.refusal.parent / f".port-{port}"
    other.parent.mkdir()
    other.symlink_to("/usr/bin/other")
    words = ("--port", port, "--port-program", "/usr/bin/own")
    assert run(box.gate(*LEASE, *words)).returncode == 255
    other.unlink()
    other.symlink_to("/usr/bin/own")
    assert run(box.gate(*LEASE, *words)).returncode == 0


@pytest.mark.parametrize("words", [("--port", 0), ("--port", 70000), ("--port-reuse", "all")])
def test_a_port_that_is_none_is_a_usage_error(box: Box, words: Sequence[object]) -> None:
    """A damaged unit starts nothing."""
    assert run(box.gate("--port", 9103, *words)).returncode == 64
