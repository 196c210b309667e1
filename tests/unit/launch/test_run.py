"""The program that runs an operator's command: real sockets, users, locks and processes."""

import contextlib
import fcntl
import grp
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from appliance.wire import run_ticket
from appliance.wire.run_request import BadRequest, Request
from tests.fakes.notify_socket import NotifySocket
from tests.programs import eventually, program, started

CALLER = Path(__file__).with_name("run_caller.py")
UID, GID, OTHER_GID = 54321, 54322, 54323
ANSWER = "of the supervisor"
GROUP = "daemon"
"""Stands for the operators' group: every system has it."""
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="not root: that commands run as their callers is not shown"
)


def document(*argv: str, **changed: Any) -> dict[str, Any]:
    """A request that is right but for what is changed."""
    right = {"argv": list(argv or ["true"]), "env": {"PATH": "/usr/bin:/bin"}, "cwd": "/"}
    return {**right, "umask": 0o027, "gpus": [], "token": ANSWER, **changed}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"argv": []}, "argv is no list of words"),
        ({"argv": "true"}, "argv is no list of words"),
        ({"argv": [""]}, "argv names no command"),
        ({"argv": ["a\0b"]}, "argv is no text"),
        ({"argv": ["true", 1]}, "argv is no text"),
        ({"argv": ["true", "\ud800"]}, "argv is no text"),
        ({"env": []}, "env is no object"),
        ({"env": {"A=B": "c"}}, "env has a variable without a name"),
        ({"env": {"": "c"}}, "env has a variable without a name"),
        ({"env": {"A": None}}, "env is no text"),
        ({"cwd": "tmp"}, "cwd is not an absolute path"),
        ({"cwd": None}, "cwd is no text"),
        ({"umask": -1}, "umask is no number from 0 to 511"),
        ({"umask": 0o1000}, "umask is no number from 0 to 511"),
        ({"umask": True}, "umask is no number from 0 to 511"),
        ({"gpus": "some"}, 'gpus is neither "all" nor a list of indexes'),
        ({"gpus": None}, 'gpus is neither "all" nor a list of indexes'),
        ({"gpus": [256]}, "gpus is no number from 0 to 255"),
        ({"gpus": ["0"]}, "gpus is no number from 0 to 255"),
        ({"token": None}, "token is no text"),
    ],
)
def test_every_type_is_checked(changed: Mapping[str, Any], problem: str) -> None:
    """A request with anything in it that is not what it should be is refused, by name."""
    with pytest.raises(BadRequest, match=problem):
        Request({**document(), **changed})


def test_a_request_is_an_object() -> None:
    """Any other JSON is refused."""
    with pytest.raises(BadRequest, match="not a JSON object"):
        Request([])


@pytest.mark.parametrize(
    ("gpus", "leases", "shown"),
    [
        ("all", ("gpu-all:exclusive",), None),
        ([1, 0, 1], ("gpu-all:shared", "gpu-0:exclusive", "gpu-1:exclusive"), "0,1"),
        ([], ("cpu:exclusive",), ""),
    ],
)
def test_the_claim(gpus: object, leases: tuple[str, ...], shown: str | None) -> None:
    """The claimed devices are locked, and are the only GPUs that the command sees."""
    request = Request(document(gpus=gpus, env={"HIP_VISIBLE_DEVICES": "7"}))
    assert request.leases() == leases
    env = request.environment()
    assert env.get("CUDA_VISIBLE_DEVICES") == shown
    assert env["HIP_VISIBLE_DEVICES"] == ("7" if shown is None else shown)
    assert ("CUDA_DEVICE_ORDER" in env) == (shown is not None)


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/usr/bin/python3", "python3"), ("a\nb", "a?b"), ("x" * 99, "x" * 32), ("bin/", "a command")],
)
def test_its_name_for_people(path: str, shown: str) -> None:
    """The last part of the path, on one line, and not for ever."""
    assert Request(document(path)).what == shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The folders of one machine, open to other users."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.root / "run" / "socket"

    @property
    def lease(self) -> Path:
        return self.root / "leases" / "cpu"

    def report(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.root / "run" / "last.json").read_text())
        return found

    @property
    def ticket(self) -> Path:
        return self.root / "ticket.json"

    def admit(self, uid: int = UID, *, token: str = ANSWER, gpus: Sequence[int] = ()) -> None:
        """Issue a ticket, as the supervisor does before it starts the unit."""
        text = run_ticket.encoded(operation=12, uid=uid, gpus=gpus, token=token)
        self.ticket.write_text(text)
        self.ticket.chmod(0o644)

    @contextmanager
    def launcher(
        self, *, connect_s: float = 10.0, deadline_s: float = 0.3, grace_s: float = 5.0
    ) -> Iterator[subprocess.Popen[str]]:
        if not self.ticket.exists():
            self.admit()
        admitted = ("--ticket", self.ticket, "--owner", "root")
        folders = ("--directory", self.root / "run", "--lease-dir", self.root / "leases")
        times = ("--connect-s", connect_s, "--deadline-s", deadline_s, "--grace-s", grace_s)
        argv = program("run", *folders, "--group", GROUP, *admitted, *times)
        with started(argv, environment=self.environment) as process:
            yield process


@pytest.fixture
def box() -> Iterator[Box]:
    """Folders that others than root may enter."""
    root = Path(tempfile.mkdtemp(prefix="appliance-run-"))
    root.chmod(0o755)
    yield Box(root=root)
    shutil.rmtree(root)


class Caller:
    """A caller's process: his output, and what the launcher told him."""

    def __init__(self, process: subprocess.Popen[bytes], told: int) -> None:
        self.process = process
        self._told = told
        self.lines: list[Mapping[str, Any]] = []
        self._buffer = b""

    def wait_for(self, event: str, *, within_s: float = 20.0) -> Mapping[str, Any]:
        """The first such event that comes; everything before it is in `lines`."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if select.select([self._told], [], [], 0.1)[0]:
                chunk = os.read(self._told, 65536)
                *whole, self._buffer = (self._buffer + chunk).split(b"\n")
                self.lines += map(json.loads, whole)
                if not chunk:
                    break
            if found := [line for line in self.lines if line["event"] == event]:
                return found[0]
        raise AssertionError(f"no {event!r} in {self.lines}")

    def output(self) -> str:
        """Return the text that the command wrote to its standard output."""
        out, _ = self.process.communicate(timeout=20)
        return out.decode()


@contextmanager
def calling(
    box: Box,
    request: object,
    *options: str,
    groups: Sequence[int] | None = None,
    stdin: bytes | None = None,
    uid: int = UID,
) -> Iterator[Caller]:
    """Call as an operator who is nobody else, in these `groups` only, or as another user."""
    read, write = os.pipe()
    operators = [grp.getgrnam(GROUP).gr_gid, OTHER_GID]
    process = subprocess.Popen(
        [sys.executable, "-I", CALLER, box.socket, json.dumps(request), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[write],
        env={"TELL": str(write)},
        user=uid,
        group=GID,
        extra_groups=operators if groups is None else groups,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (111, 222)),  # noqa: PLW1509
    )
    os.close(write)
    try:
        if stdin is not None:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            process.stdin = None
        yield Caller(process, read)
    finally:
        process.kill()
        process.communicate()
        os.close(read)


SHOW = """
import os, json, resource, signal, sys
print(json.dumps({
  "ids": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
  "cwd": os.getcwd(), "umask": os.umask(0), "env": dict(os.environ),
  "session": os.getsid(0) == os.getpid(), "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
  "pipe": signal.getsignal(signal.SIGPIPE) is not None, "stdin": sys.stdin.read(),
  "descriptors": {n: os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{n}")},
}))
"""


@needs_root
def test_the_command_is_its_callers(box: Box) -> None:
    """User, groups, directory, mask, limits, variables and streams are his; only leases are ours."""
    env = {"PATH": "/usr/bin:/bin", "MINE": "yes", "LC_ALL": "C.UTF-8"}
    request = document(sys.executable, "-I", "-c", SHOW, env=env, cwd="/usr")
    with box.launcher() as launcher, calling(box, request, stdin=b"hello") as caller:
        assert caller.wait_for("ended") == {"event": "ended", "exit": 0}
        seen = json.loads(caller.output())
        assert launcher.wait(20) == 0
    operators = grp.getgrnam(GROUP).gr_gid
    assert seen["ids"] == [[UID] * 3, [GID] * 3, sorted([operators, OTHER_GID])]
    assert (seen["cwd"], seen["umask"], seen["session"]) == ("/usr", 0o027, True)
    assert seen["limit"] == [111, 222]
    assert seen["env"] == {**env, **seen["env"]}
    assert not [name for name in seen["env"] if name in {"NOTIFY_SOCKET", "INVOCATION_ID"}]
    assert seen["stdin"] == "hello"
    ours = {n: to for n, to in seen["descriptors"].items() if int(n) > 2}
    assert list(ours.values()) == [str(box.lease)]
    assert box.report() == {
        **box.report(),
        "ran": True,
        "who": f"{Path(sys.executable).name} of user {UID}",
    }


@needs_root
@pytest.mark.parametrize(
    ("argv", "told", "text"),
    [
        (["sh", "-c", "exit 7"], {"exit": 7}, "with status 7 after "),
        (["sh", "-c", "kill -9 $$"], {"signal": 9}, "with signal 9 (SIGKILL) after "),
        (["nosuch"], {"exit": 127}, "with status 127 after "),
        (["/etc/passwd"], {"exit": 126}, "with status 126 after "),
    ],
)
def test_how_it_ended(box: Box, argv: Sequence[str], told: Mapping[str, int], text: str) -> None:
    """The status, or the signal, goes to the caller and stands in the report."""
    with box.launcher() as launcher, calling(box, document(*argv)) as caller:
        assert caller.wait_for("ended") == {"event": "ended", **told}
        assert launcher.wait(20) == 0
    assert box.report()["text"].startswith(text)


@needs_root
def test_a_directory_that_it_may_not_enter(box: Box) -> None:
    """A directory is entered as the caller, who is told why that failed."""
    (box.root / "closed").mkdir(mode=0o700)
    request = document(cwd=str(box.root / "closed"))
    with box.launcher(), calling(box, request) as caller:
        assert caller.wait_for("ended")["exit"] == 126
        assert "closed: Permission denied" in caller.output()


@needs_root
def test_a_stranger_is_kept_out_twice(box: Box) -> None:
    """By the socket's mode; were that open, by the kernel's word on who he is."""
    with box.launcher() as launcher:
        with calling(box, document(), groups=[OTHER_GID]) as stranger:
            assert "PermissionError" in stranger.output()
        status = box.socket.stat()
        assert (status.st_uid, status.st_mode & 0o777) == (0, 0o660)
        box.socket.chmod(0o666)
        with calling(box, document("true"), groups=[OTHER_GID]) as stranger:
            stranger.process.wait(20)
            with pytest.raises(AssertionError, match="no 'ready' in"):
                stranger.wait_for("ready")
        with calling(box, document("echo", "mine")) as caller:
            assert caller.wait_for("ended")["exit"] == 0
        assert launcher.wait(20) == 0
        assert not box.socket.exists()


@needs_root
def test_a_service_is_refused_whatever_its_groups(box: Box) -> None:
    """A user that systemd made for a unit, among the operators by some mistake, runs nothing."""
    with box.launcher() as launcher:
        with calling(box, document("echo", "mine"), uid=61184) as engine:
            engine.process.wait(20)
            with pytest.raises(AssertionError, match="no 'ready' in"):
                engine.wait_for("ready")
        with calling(box, document("echo", "mine")) as caller:
            assert caller.wait_for("ended")["exit"] == 0
        assert launcher.wait(20) == 0


@needs_root
@pytest.mark.parametrize(
    ("request_", "options", "problem"),
    [
        ({"argv": 1}, (), "argv is no list of words"),
        (document(), ("--extra",), "other descriptors"),
        (document(), ("--long",), "too long"),
    ],
)
def test_a_hostile_request_is_refused(
    box: Box, request_: object, options: Sequence[str], problem: str
) -> None:
    """A malformed request runs nothing, and the reason is told."""
    with box.launcher(connect_s=1.0) as launcher, calling(box, request_, *options) as caller:
        if problem != "too long":
            assert problem in caller.wait_for("refused")["text"]
        assert launcher.wait(20) == 0
    assert box.report()["ran"] is False
    assert problem in box.report()["text"]


@needs_root
def test_a_held_lease_refuses(box: Box) -> None:
    """A command waits a little for a held lease, says so, and names the holder of the claim."""
    box.lease.parent.mkdir()
    box.lease.touch()
    with box.lease.open() as file, box.launcher() as launcher:
        fcntl.flock(file, fcntl.LOCK_EX)
        with calling(box, document("true")) as caller:
            text = caller.wait_for("refused")["text"]
            assert text.startswith("cpu is held by ")
            assert f"pid {os.getpid()}" in text
            assert "waiting for cpu" in caller.lines[0]["text"]
            assert launcher.wait(20) == 0
    assert (box.report()["ran"], box.report()["text"]) == (False, text)


@needs_root
@pytest.mark.parametrize(
    ("uid", "changed", "problem"),
    [
        (UID + 1, {}, "is not the admitted user"),
        (0, {}, "is not the admitted user"),
        (UID, {"token": "another"}, "lacks the token"),
        (UID, {"gpus": "all"}, "asks for another claim"),
    ],
    ids=["another operator", "root", "another request", "another claim"],
)
def test_an_operator_cannot_take_another_operators_slot(
    box: Box, uid: int, changed: Mapping[str, Any], problem: str
) -> None:
    """An operator who was not admitted is refused; the rightful caller's command runs."""
    taken = box.root / "taken"
    with box.launcher() as launcher:
        with calling(box, document("touch", str(taken), **changed), uid=uid) as thief:
            assert problem in thief.wait_for("refused")["text"]
        with calling(box, document("echo", "mine")) as caller:
            assert caller.wait_for("ended")["exit"] == 0
            assert caller.output() == "mine\n"
        assert launcher.wait(20) == 0
    assert not taken.exists()
    assert (box.report()["ran"], box.report()["operation"]) == (True, 12)


@needs_root
def test_a_thousand_thieves_take_no_time_from_the_caller(box: Box) -> None:
    """Connections of others are closed as they come, also such that send nothing."""
    with box.launcher() as launcher:
        assert eventually(box.socket.exists)
        for _ in range(1000):
            with socket.socket(socket.AF_UNIX) as thief:  # root, who was not admitted
                thief.connect(str(box.socket))
        with calling(box, document("true")) as caller:
            assert caller.wait_for("ended")["exit"] == 0
        assert launcher.wait(20) == 0


@needs_root
def test_a_ticket_is_good_for_one_command(box: Box) -> None:
    """The same token has nothing run a second time."""
    with box.launcher() as launcher, calling(box, document("true")) as caller:
        caller.wait_for("ended")
        assert launcher.wait(20) == 0
    with box.launcher() as launcher:
        assert launcher.wait(20) == 0
    assert box.report()["text"] == "the supervisor's ticket was used by an earlier command"


def _make_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@needs_root
@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (Path.unlink, "the supervisor has asked for no command"),
        (lambda path: path.chmod(0o666), "can be written by others than user 0"),
        (lambda path: os.chown(path, UID, -1), "can be written by others than user 0"),
        (_make_a_pipe, "a pipe, not a file"),
        (lambda path: path.write_text("[" * 9000), "the ticket is nested too deeply"),
        (lambda path: path.write_text("[]"), "the ticket is not a JSON object"),
        (lambda path: path.write_text('{"operation": -1}'), "operation is no number"),
        (lambda path: path.write_text("x" * 99_999), "larger than"),
    ],
    ids=["none", "writable", "another's", "pipe", "deep", "list", "number", "huge"],
)
def test_a_ticket_that_is_not_the_supervisors_admits_nobody(
    box: Box, spoil: Callable[[Path], object], problem: str
) -> None:
    """Only a regular file that nobody else can write says whose command is run."""
    box.admit()
    spoil(box.ticket)
    argv = program("run", "--directory", box.root / "run", "--group", GROUP)
    with started([*argv, "--ticket", str(box.ticket), "--owner", "root"]) as launcher:
        assert launcher.wait(20) == 0
    assert (box.report()["ran"], box.report()["operation"]) == (False, None)
    assert problem in box.report()["text"]


@needs_root
def test_nobody_comes(box: Box) -> None:
    """Without a caller it ends, and says so."""
    with box.launcher(connect_s=0.2) as launcher:
        assert launcher.wait(20) == 0
    assert box.report()["text"] == "no caller sent a command within 0 s"


@needs_root
def test_a_caller_who_never_says_go(box: Box) -> None:
    """A caller that goes before its command began has none run for it."""
    with box.launcher() as launcher:
        with calling(box, document("true"), "--mute") as caller:
            caller.wait_for("ready")
        assert launcher.wait(20) == 0
    assert (box.report()["ran"], box.report()["text"]) == (
        False,
        "the caller closed the connection",
    )


LISTEN = """
import os, signal, time
for name in ("INT", "TERM", "HUP", "USR1", "WINCH"):
    signal.signal(getattr(signal, "SIG" + name), lambda n, _: os.write(1, signal.Signals(n).name.encode() + b"\\n"))
print("listening", flush=True)
time.sleep(60)
"""


def wait_for_line(caller: Caller, text: str) -> None:
    """Read the command's output up to a line."""
    assert caller.process.stdout is not None
    for line in caller.process.stdout:
        if line.strip() == text.encode():
            return
    raise AssertionError(f"no {text!r}")


@needs_root
def test_signals_are_passed_on(box: Box) -> None:
    """A signal that the caller receives is passed on to the command."""
    request = document(sys.executable, "-I", "-c", LISTEN)
    with box.launcher(), calling(box, request) as caller:
        wait_for_line(caller, "listening")
        for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGWINCH, signal.SIGTERM):
            caller.process.send_signal(number)
            wait_for_line(caller, number.name)


@needs_root
def test_it_ends_with_its_caller(box: Box) -> None:
    """A caller that is killed takes its command along: SIGHUP and SIGTERM, then SIGKILL."""
    out = box.root / "out"
    out.touch()
    out.chmod(0o666)
    script = f"import os; os.dup2(os.open({str(out)!r}, os.O_WRONLY), 1)\n{LISTEN}"
    script = script.replace("time.sleep(60)", "\nwhile True: time.sleep(1)")
    request = document(sys.executable, "-I", "-c", script)
    with box.launcher(grace_s=0.5) as launcher, calling(box, request) as caller:
        assert eventually(lambda: "listening" in out.read_text())
        caller.process.kill()
        assert launcher.wait(20) == 0
    assert sorted(out.read_text().split()) == ["SIGHUP", "SIGTERM", "listening"]
    text = box.report()["text"]
    assert text.startswith("with signal 9 (SIGKILL) after ")
    assert text.endswith(": the caller closed the connection and it did not end")


@needs_root
def test_it_is_stopped_with_its_unit(box: Box) -> None:
    """SIGTERM to all, as systemd sends it: the launcher waits for the command, and reports."""
    with box.launcher() as launcher, calling(box, document("sleep", "60")) as caller:
        caller.wait_for("ready")
        assert eventually(lambda: holders(box.lease) == 2)
        for pid in pids(box.lease):
            os.kill(pid, signal.SIGTERM)
        assert caller.wait_for("ended") == {"event": "ended", "signal": 15}
        assert launcher.wait(20) == 0
    assert box.report()["text"].endswith(": it was stopped")


@needs_root
def test_it_is_stopped_before_it_begins(box: Box) -> None:
    """A stop while it waits leaves word, too, however many signals come."""
    with box.launcher() as launcher:
        assert eventually(box.socket.exists)
        launcher.send_signal(signal.SIGTERM)
        while launcher.poll() is None:
            launcher.send_signal(signal.SIGHUP)
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(0.001)
        assert launcher.returncode == 0
    assert (box.report()["ran"], box.report()["text"]) == (False, "it was stopped")


def pids(lease: Path) -> list[int]:
    """Processes that have the lease open, the launcher first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(fd.samefile(lease) for fd in folder.iterdir() if fd.exists()):
                found.append(int(folder.parent.name))
        except OSError:
            continue
    return sorted(found)


def holders(lease: Path) -> int:
    """Return how many processes have the file open."""
    return len(pids(lease)) if lease.exists() else 0


@needs_root
def test_what_it_leaves_keeps_the_lease(box: Box) -> None:
    """A worker that outlives the command and the launcher still has the claim."""
    request = document("sh", "-c", "sleep 60 & exit 0")
    with box.launcher() as launcher, calling(box, request) as caller:
        caller.wait_for("ended")
        assert launcher.wait(20) == 0
        (orphan,) = pids(box.lease)
        with box.lease.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(orphan, signal.SIGKILL)


@needs_root
def test_nobody_is_told_the_arguments(box: Box, manager: NotifySocket) -> None:
    """Neither the journal nor systemd nor the report learns more than the command's name."""
    box = Box(root=box.root, environment=manager.environment)
    request = document("sh", "-c", "true secret", env={"PATH": "/bin", "KEY": "secret"})
    with box.launcher() as launcher, calling(box, request) as caller:
        caller.wait_for("ended")
        assert launcher.wait(20) == 0
        assert launcher.stderr is not None
        journal = launcher.stderr.read()
    while manager.receive(within_s=0.2) is not None:
        pass
    ready = [m for m in manager.messages if "READY=1" in m]
    assert ready == [f"READY=1\nSTATUS=sh of user {UID}"]
    assert f"sh of user {UID} (uid {UID}, pid " in journal
    assert "secret" not in journal + "".join(manager.messages) + json.dumps(box.report())
