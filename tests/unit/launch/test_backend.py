"""The wrapper and the poller, as real processes around a real HTTP server."""

import fcntl
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from appliance.launch.ask_build import ask
from appliance.launch.leases import LeaseLock
from appliance.model.engine_build import either
from appliance.wire.build_record import encoded
from tests.fakes import scripted_llama_server as scripted
from tests.fakes.notify_socket import NotifySocket
from tests.programs import (
    control_group,
    engine,
    eventually,
    free_port,
    inside,
    program,
    run,
    started,
)

NO_GROUP = "needs root to make a control group; whose listener it is stays unproved"


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    path = tmp_path / "leases" / "cpu"
    path.parent.mkdir()
    path.touch()
    return path


def wrapper(
    lease: Path, *arguments: object, port: int | None = None, how: str = "exclusive"
) -> list[str]:
    where = ("--port", port) if port else ()
    common = ("--name", "a", "--lease", f"cpu:{how}", "--lease-dir", lease.parent)
    return program("backend", *common, *where, *arguments)


def is_free(lease: Path) -> bool:
    with lease.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_engine_is_announced_when_it_answers(manager: NotifySocket, lease: Path) -> None:
    """READY comes with the endpoint and the time it took, from a process that then goes away."""
    port = free_port()
    argv = wrapper(lease, "--", *engine("--port", port, "--after-s", 0.3), port=port)
    with started(argv, environment=manager.environment) as process:
        ready = manager.wait_for("READY=1")
        text = rf"STATUS=serving on 127\.0\.0\.1:{port}, ready after \d\.\d\d s"
        assert re.search(text, ready)
        manager.wait_for("BARRIER=1")
        assert len(manager.barriers) == 1
        manager.pass_barriers()
        assert process.stderr is not None
        assert "<6>serving on" in process.stderr.readline()
        # The wrapper has become the engine, and the poller is nobody's zombie.
        assert b"model_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert children_of(process.pid) == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("admitted", "how", "status"),
    [
        (None, "exclusive", 78),
        ("exclusive a", "exclusive", 78),
        ("exclusive b", "exclusive", 75),
        ("shared b", "exclusive", 75),
        ("exclusive ab", "exclusive", 75),
        ("shared b", "shared", 78),
        ("exclusive b", "shared", 75),
    ],
)
def test_a_start_that_was_overtaken_gives_its_lock_up(
    lease: Path, admitted: str | None, how: str, status: int
) -> None:
    """A start that a later admission overtook ends with 75, not with 78 for a missing engine."""
    if admitted is not None:
        word, name = admitted.split()
        one = LeaseLock("cpu", exclusive=word == "exclusive", directory=str(lease.parent))
        one.mark("a-longer-name-that-was-there-before")
        one.mark(name)
    ended = run(wrapper(lease, "--", "/missing", port=free_port(), how=how))
    assert ended.returncode == status
    assert is_free(lease)


def test_temporary_files_of_the_last_run_are_gone_when_the_engine_starts(
    manager: NotifySocket, lease: Path, tmp_path: Path
) -> None:
    """The wrapper clears the directory that it is told, once the leases are its own."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    (directory / "left").touch()
    port = free_port()
    argv = wrapper(lease, "--temporary", directory, "--", *engine("--port", port), port=port)
    with lease.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run(argv, environment=manager.environment).returncode == 79
        assert (directory / "left").exists()
    with started(argv, environment=manager.environment):
        manager.wait_for("READY=1")
        assert not (directory / "left").exists()


def test_the_poller_waits_until_its_message_is_read(manager: NotifySocket, lease: Path) -> None:
    """The poller stays until the manager has passed the barrier."""
    port = free_port()
    argv = wrapper(lease, "--", *engine("--port", port), port=port)
    with started(argv, environment=manager.environment) as process:
        manager.wait_for("BARRIER=1")
        pollers = _processes_with("appliance.launch.backend", str(port))
        assert len(pollers) == 1
        assert process.pid not in pollers
        manager.pass_barriers()
        assert eventually(lambda: not _processes_with("appliance.launch.backend", str(port)))


def _processes_with(*words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if all(w in line.split("\0") for w in words):
                found.append(int(entry.name))
    return found


def test_an_engine_on_a_unix_socket_is_announced(
    manager: NotifySocket, lease: Path, tmp_path: Path
) -> None:
    """The health check works over a unix socket, too."""
    path = tmp_path / "engine.sock"
    argv = wrapper(lease, "--socket", path, "--", *engine("--socket", path))
    with started(argv, environment=manager.environment):
        assert f"serving on {path}" in manager.wait_for("READY=1")


def test_the_engine_inherits_the_lease_but_not_the_notification_socket(
    manager: NotifySocket, lease: Path, tmp_path: Path
) -> None:
    """The engine holds the lock file open and cannot speak to the service manager."""
    port, report = free_port(), tmp_path / "report"
    argv = wrapper(lease, "--", *engine("--port", port, "--report", report), port=port)
    kept = {"KEPT": "1", "HTTPS_PROXY": "http://proxy.corp:3128"}
    with started(argv, environment={**manager.environment, **kept}) as process:
        manager.wait_for("READY=1")
        found = json.loads(report.read_text())
        assert found["pid"] == process.pid
        assert str(lease) in found["open"]
        assert not any("pidfd" in target for target in found["open"])
        assert found["environment"]["KEPT"] == "1"
        assert found["environment"]["NO_PROXY"] == "localhost,127.0.0.1"
        assert "NOTIFY_SOCKET" not in found["environment"]


def test_the_lease_ends_with_the_engine_also_while_the_poller_waits(
    manager: NotifySocket, lease: Path
) -> None:
    """The poller does not keep the lease of an engine that was killed."""
    port = free_port()
    argv = wrapper(lease, "--", *engine("--port", port), port=port)
    with started(argv, environment=manager.environment) as process:
        manager.wait_for("BARRIER=1")  # not passed: the poller is still there
        assert not is_free(lease)
        process.kill()
        process.wait()
        assert eventually(lambda: is_free(lease))


def test_an_orphaned_worker_keeps_the_lease(manager: NotifySocket, lease: Path) -> None:
    """A worker that outlives the engine still owns the device."""
    port = free_port()
    argv = wrapper(lease, "--", *engine("--port", port, "--orphan"), port=port)
    with started(argv, environment=manager.environment) as process:
        manager.wait_for("READY=1")
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            assert not is_free(lease)
        finally:
            os.kill(worker, signal.SIGKILL)
        assert eventually(lambda: is_free(lease))


def test_the_poller_ends_with_the_engine(manager: NotifySocket, lease: Path) -> None:
    """An engine that dies while loading takes its poller along, and READY never comes."""
    port = free_port()
    argv = wrapper(lease, "--", *engine("--port", port, "--after-s", 60), port=port)
    with started(argv, environment=manager.environment) as process:
        manager.wait_for("STATUS=loading")
        process.kill()
        process.wait()
        assert eventually(lambda: not _processes_with("appliance.launch.backend", str(port)))
    assert not any("READY" in m for m in manager.messages)


def test_a_health_check_that_fails_is_named_and_not_ready(
    manager: NotifySocket, lease: Path
) -> None:
    """Only status 200 is ready; another is shown while waiting."""
    port = free_port()
    argv = wrapper(
        lease, "--health", "/v1/x", "--", *engine("--port", port, "--status", 404), port=port
    )
    with started(argv, environment=manager.environment):
        assert "/v1/x answers 404" in manager.wait_for("answers 404")
        assert not any("READY" in m for m in manager.messages)


@pytest.mark.parametrize("unix", [False, True])
def test_a_stranger_on_the_endpoint_is_not_our_engine(
    manager: NotifySocket, lease: Path, tmp_path: Path, *, unix: bool
) -> None:
    """A healthy answer from a process outside the unit's control group is not READY."""
    port, path = free_port(), tmp_path / "engine.sock"
    where = ("--socket", path) if unix else ("--port", port)
    argv = wrapper(lease, *where, "--", *engine("--hang"))
    with control_group("appliance-test") as group, started(engine(*where)) as stranger:
        if group is None:
            pytest.skip(NO_GROUP)
        assert eventually(lambda: _answers(path if unix else ("127.0.0.1", port)))
        with started(inside(group, argv), environment=manager.environment):
            manager.wait_for("is answered by a process that is not this backend's")
            stranger.kill()
            stranger.wait()
            path.unlink(missing_ok=True)
            moved = inside(group, engine(*where))
            with started(moved):
                # The same answer from inside the group is ready.
                manager.wait_for("READY=1")


def _answers(address: Path | tuple[str, int]) -> bool:
    if isinstance(address, Path):
        return address.is_socket()
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


@pytest.mark.slow
def test_a_hung_engine_is_not_kept_alive(manager: NotifySocket, lease: Path) -> None:
    """Heartbeats of a deadlocked engine do not extend the start time-out; work does."""
    port = free_port()
    hung = wrapper(lease, "--no-progress-s", 7, "--", *engine("--hang"), port=port)
    with control_group("appliance-test") as group:
        if group is None:
            pytest.skip(NO_GROUP)
        with started(inside(group, hung), environment=manager.environment):
            manager.wait_for("EXTEND_TIMEOUT_USEC=7000000")  # the start of the engine
            manager.drain(1.5)  # the interpreter's own start is work
            quiet = manager.drain(3)
    assert len(quiet) >= 2
    assert all("STATUS=loading: " in m for m in quiet)
    assert not any("EXTEND" in m for m in quiet)


@pytest.mark.slow
def test_a_working_engine_is_given_time(manager: NotifySocket, lease: Path) -> None:
    """Each second with CPU time extends the start time-out by the deadline on no progress."""
    port = free_port()
    busy = engine("--port", port, "--work-s", 3)
    argv = wrapper(lease, "--no-progress-s", 7, "--", *busy, port=port)
    with started(argv, environment=manager.environment):
        manager.wait_for("READY=1")
    loading = [m for m in manager.messages if "STATUS=loading: " in m]
    assert len(loading) >= 2
    assert re.search(r"STATUS=loading: [\d.]+ [MG]iB resident, \d s\b", loading[0])
    assert all("EXTEND_TIMEOUT_USEC=7000000" in m for m in loading)


def test_a_held_lease_is_waited_for_briefly(lease: Path) -> None:
    """With a lease in other hands the engine is not started, and the holder is named."""
    with lease.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run(wrapper(lease, "--", "/bin/false", port=free_port()))
    assert result.returncode == 79
    assert f"cpu is held by {_own_name()} (pid {os.getpid()}" in result.stderr


def _own_name() -> str:
    return Path("/proc/self/comm").read_text().strip()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("--port", "1", "--", "/nonexistent/engine"), 78, "engine /nonexistent/engine"),
        (("--port", "1"), 64, "no engine"),
        (("--", "/bin/true"), 64, "exactly one of --port and --socket"),
        (("--port", "1", "--socket", "/x", "--", "/bin/true"), 64, "exactly one"),
        (("--port", "70000", "--", "/bin/true"), 64, "not a port"),
        (("--port", "1", "--lease", "disk:shared", "--", "/bin/true"), 64, "not a lease"),
        (("--port", "1", "--patch-command", "x", "--", "/bin/true"), 64, "not a JSON list"),
        (("--port", "1", "--lease", "gpu-7:shared", "--", "/bin/true"), 78, "gpu-7"),
    ],
)
def test_what_no_restart_can_mend(
    lease: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    """A start that cannot work ends with its own status and one sentence."""
    result = run(wrapper(lease, *arguments))
    assert result.returncode == status
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_an_engine_is_started_in_the_words_of_its_build(
    manager: NotifySocket, lease: Path, tmp_path: Path
) -> None:
    """The program is asked where there is no record; a record that is current is believed."""
    program_file = tmp_path / "bin/llama-server"
    program_file.parent.mkdir()
    program_file.write_text(scripted.text_of(scripted.BEFORE, sys.executable))
    program_file.chmod(0o755)
    record = tmp_path / "record.json"
    port = free_port()
    words = (*either(("--load-mode", "mlock"), ("--mlock",)), *either(("--metricks",)))
    command = (str(program_file), *words, "--port", str(port))
    asks = ("--ask-build", "help", "--build-record", record)
    ended = run(wrapper(lease, *asks, "--", *command, port=port), environment=manager.environment)
    assert "<4>a: b8900 (0123abc) has no --metricks" in ended.stderr
    assert "invalid argument: --metricks" in ended.stderr
    known = ask("help", str(program_file))
    record.write_text(encoded(known))
    command = (str(program_file), *words[:-3], "--port", str(port))
    argv = wrapper(lease, *asks, "--", *command, port=port)
    with started(argv, environment=manager.environment) as process:
        manager.wait_for("READY=1")
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"\0--mlock\0--port\0" in line
