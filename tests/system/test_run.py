"""`appliance run` on a real systemd: the model makes room, and comes back however it ends."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import CompletedProcess
from typing import Any, Final

import pytest

from tests.pretend import Gpus
from tests.system.fleet import OPERATOR, STRANGER, Fleet
from tests.system.rig import RigError
from tests.system.rig.stream import Stream

RUN: Final = ("appliance", "run", "--gpus", "none", "--")
MARK: Final = "/home/marker"
"""File that a command writes once it runs."""


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """A box with an operator, a stranger, and the profiles a and b on the CPU, a serving."""
    shared_fleet.people()
    shared_fleet.box.run(f"install -d -m 1777 /home; rm -f {MARK}")
    return shared_fleet


def run(fleet: Fleet, *command: str, **options: Any) -> CompletedProcess[str]:
    """Run a command as the operator, to its end."""
    return fleet.box.run(*RUN, *command, user=OPERATOR, check=False, **options)


@contextmanager
def running(fleet: Fleet, script: str = "exec sleep 300") -> Iterator[Stream]:
    """A command that is left running."""
    fleet.box.run(f"rm -f {MARK}")
    command = ("sh", "-c", f"touch {MARK}; {script}")
    with fleet.box.stream(*RUN, *command, user=OPERATOR) as stream:
        fleet.box.wait_for(f"test -e {MARK}")
        fleet.box.wait_for("systemctl -q is-active appliance-run")
        yield stream


def last(fleet: Fleet) -> dict[str, Any]:
    """The operation that ended last."""
    operation: dict[str, Any] = fleet.status()["last_operation"]
    return operation


def settled(fleet: Fleet) -> dict[str, Any]:
    """Wait until nothing is operated on; how it ended."""
    fleet.wait_serving("a", timeout_s=30)
    fleet.box.run("appliance", "wait", "--for", "idle", "--timeout", "20s")
    return last(fleet)


def test_the_model_makes_room_and_comes_back(fleet: Fleet) -> None:
    """The command runs as the operator while nothing serves; then the model serves again."""
    pid = fleet.main_pid("a")
    done = run(fleet, "sh", "-c", "id -un; id -Gn; pwd; systemctl is-active appliance-backend-a")
    out = done.stdout.split("\n")
    assert out[0] == OPERATOR
    assert "appliance-operators" in out[1].split()
    assert out[3] == "inactive"
    assert fleet.active() == fleet.committed() == ["a"]
    assert fleet.main_pid("a") != pid
    assert last(fleet)["message"].endswith("; a is serving again on :9001")


def test_streams_and_status_pass_through(fleet: Fleet) -> None:
    """Input, output and errors are the command's own, and so is the exit status."""
    done = run(fleet, "sh", "-c", "cat; echo oops >&2; exit 7", stdin="hello\n")
    assert (done.returncode, done.stdout) == (7, "hello\n")
    assert "oops\n" in done.stderr
    assert "the command ended with status 7 after " in done.stderr
    assert run(fleet, "sh", "-c", "kill -KILL $$").returncode == 137
    pid, before = fleet.main_pid("a"), last(fleet)["id"]
    assert run(fleet, "nosuch").returncode == 127
    assert (fleet.main_pid("a"), last(fleet)["id"]) == (pid, before)


def test_status_shows_it(fleet: Fleet) -> None:
    """While it runs status names command and user, and no argument; the verdict explains it."""
    with running(fleet, "exec sleep 301 # secret"):
        document = fleet.status()
        assert document["run"]["text"] == f"sh of user {OPERATOR}"
        assert document["run"]["state"] == "running"
        assert time.time() - document["run"]["since_unix_s"] < 30
        operation = document["operation"]
        assert (operation["kind"], operation["target"]) == ("run", ["sh"])
        assert operation["phase"] == "run"
        screen = fleet.box.run("appliance status", check=False).stdout
        assert f"run sh by {OPERATOR}: run, " in screen
        assert "secret" not in screen + json.dumps(document) + fleet.box.journal()
    settled(fleet)


def ctrl_c(_fleet: Fleet, stream: Stream) -> None:
    stream.signal(signal.SIGINT)


def kill_the_cli(_fleet: Fleet, stream: Stream) -> None:
    stream.signal(signal.SIGKILL)


def hang_up(_fleet: Fleet, stream: Stream) -> None:
    stream.signal(signal.SIGHUP)


def kill_the_launcher(fleet: Fleet, _stream: Stream) -> None:
    fleet.box.run("kill -KILL $(systemctl show -P MainPID appliance-run)")


def stop_the_unit(fleet: Fleet, _stream: Stream) -> None:
    fleet.box.run("systemctl stop appliance-run")


def cancel(fleet: Fleet, _stream: Stream) -> None:
    assert fleet.cli("cancel", user=OPERATOR).exit == 0


@pytest.mark.parametrize(
    ("end", "outcome", "message", "exit_"),
    [
        (ctrl_c, "done", "with signal 2 (SIGINT)", 130),
        (kill_the_cli, "done", "the caller closed the connection", None),
        (hang_up, "done", "with signal 1 (SIGHUP)", 129),
        (stop_the_unit, "done", "it was stopped", 143),
        (cancel, "rolled-back", "cancelled", 143),
        (kill_the_launcher, "rolled-back", "the command was killed by signal 9", 10),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_however_it_ends(
    fleet: Fleet,
    end: Callable[[Fleet, Stream], None],
    outcome: str,
    message: str,
    exit_: int | None,
) -> None:
    """No process of it survives, the model serves again, and it is told how it ended."""
    with running(fleet, "sleep 311 & sleep 312 & wait") as stream:
        end(fleet, stream)
        ended = settled(fleet)
        assert (ended["kind"], ended["outcome"]) == ("run", outcome), fleet.box.journal("-n40")
        assert message in ended["message"]
        fleet.box.wait_for("! pgrep -x sleep -a | grep -E ' 31[12]$'")
        if exit_ is not None:
            assert stream.wait() == exit_, stream.errors()


def test_what_it_leaves_behind_dies(fleet: Fleet) -> None:
    """A background process that ignores every polite signal is gone before the model is back."""
    script = "(trap '' TERM HUP INT; exec setsid sleep 321) & sleep 0.3; exit 3"
    assert run(fleet, "sh", "-c", script).returncode == 3
    assert fleet.box.run("pgrep -fx 'sleep 321'", check=False).stdout == ""
    assert fleet.active() == ["a"]
    assert last(fleet)["outcome"] == "done"


def test_a_killed_supervisor_goes_on_waiting(fleet: Fleet) -> None:
    """The supervisor may die in mid-run: the command goes on, and what follows it follows."""
    with running(fleet, "read line; echo $line") as stream:
        fleet.box.run("systemctl kill -s KILL appliance-supervisor")
        fleet.box.wait_for("systemctl -q is-active appliance-supervisor")
        fleet.box.wait_for('appliance status --json | grep -q \'"kind": "run"\'')
        assert fleet.active() == []
        assert stream.process.stdin is not None
        stream.process.stdin.write("still here\n")
        stream.process.stdin.flush()
        assert list(stream.lines()) == ["still here"]
        assert stream.wait() == 0
    assert "the command ended with status 0" in settled(fleet)["message"]


@pytest.mark.parametrize("how", ["reboot", "power cut"])
def test_a_boot_follows_the_commitment(fleet: Fleet, how: str) -> None:
    """A box that goes down under a command boots with what is committed."""
    with running(fleet):
        fleet.box.reboot() if how == "reboot" else fleet.box.power_cut()
    fleet.wait_serving("a", timeout_s=30)
    assert fleet.box.run("pgrep -x sleep", check=False).stdout == ""
    fleet.box.wait_for("systemctl -q is-active appliance-supervisor")
    document = fleet.status()
    assert (document["run"], document["operation"]) == (None, None)
    if how == "reboot":  # a power cut may lose the last rows of the history
        assert document["last_operation"]["outcome"] == "interrupted"


def test_a_rival_is_refused(fleet: Fleet) -> None:
    """A model that is started by hand meanwhile is refused, by the name of who has the claim."""
    with running(fleet) as stream:
        for name in ("b", "a"):
            fleet.box.run(f"systemctl start appliance-backend-{name}")
            assert fleet.active() == []
        reason = fleet.box.run("cat /run/appliance-gate/b.json").stdout
        assert "cpu is held by " in reason
        assert "appliance-run.service" in reason
        assert f"user {OPERATOR}" in reason
        assert stream.process.poll() is None
    settled(fleet)


@pytest.mark.parametrize("verb", [("switch", "b"), ("start", "b"), ("hold",), (*RUN[1:], "true")])
def test_nothing_else_is_begun(fleet: Fleet, verb: tuple[str, ...]) -> None:
    """A request for another operation is told what runs, with the status for that."""
    with running(fleet):
        done = fleet.box.run("appliance", *verb, user=OPERATOR, check=False)
        assert done.returncode == 75, done
        assert f"run sh by {OPERATOR} is running (run, " in done.stderr
    settled(fleet)


def test_nothing_has_to_make_room(fleet: Fleet) -> None:
    """A command runs also where nothing served, and nothing serves afterwards."""
    fleet.box.run("appliance stop")
    done = run(fleet, "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert fleet.active() == []


def test_a_stranger_is_refused(fleet: Fleet) -> None:
    """A stranger neither gets the claim nor reaches the launcher's socket."""
    pid = fleet.main_pid("a")
    done = fleet.box.run(*RUN, "true", user=STRANGER, check=False)
    assert done.returncode == 77
    assert fleet.main_pid("a") == pid
    # Nobody asked the supervisor: the launcher says so, and listens to nobody.
    fleet.box.run("systemctl start appliance-run", check=False)
    report = json.loads(fleet.box.run("cat /run/appliance-run/last.json").stdout)
    assert report["text"] == "the supervisor has asked for no command: appliance run"
    # A command of root's is admitted, and waited for.
    fleet.await_command()
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/appliance-run/socket')"
    for user in (STRANGER, "appliance", "appliance-gateway", "appliance-backend"):
        done = fleet.box.run("/usr/bin/python3", "-c", connect, user=user, check=False)
        assert "PermissionError" in done.stderr
    fleet.box.run("systemctl stop appliance-run")


THIEF = """
import json, os, socket, sys, time
request = {"argv": ["touch", "/home/stolen"], "env": {"PATH": "/usr/bin:/bin"}, "cwd": "/",
           "umask": 18, "gpus": [], "token": "guessed"}
print("ready", flush=True)
while True:
    one = socket.socket(socket.AF_UNIX)
    try:
        one.connect("/run/appliance-run/socket")
        socket.send_fds(one, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
        for line in one.makefile():
            print(line, end="", flush=True)
            if '"ready"' in line:
                one.sendall(b'{"go": true}\\n')
    except OSError:
        pass
    one.close()
"""


def test_an_operator_who_races_for_anothers_slot_gets_nothing(fleet: Fleet) -> None:
    """Another operator knocks all the time: the victim's command runs, the thief's never."""
    fleet.box.run("useradd -G appliance-operators eve")
    fleet.box.write("/opt/thief.py", THIEF)
    with fleet.box.stream("/usr/bin/python3", "/opt/thief.py", user="eve") as thief:
        assert next(iter(thief.lines())) == "ready"
        for number in range(3):
            done = run(fleet, "sh", "-c", f"echo mine {number}")
            assert (done.returncode, done.stdout) == (0, f"mine {number}\n"), done
    assert fleet.box.run("test -e /home/stolen", check=False).returncode == 1
    assert fleet.active() == ["a"]


def test_a_command_that_never_ran_is_no_success(fleet: Fleet) -> None:
    """A CLI that is kept from the launcher fails, though nothing else did."""
    place = "/nowhere/socket"
    done = fleet.box.run(
        "env", f"APPLIANCE_RUN_SOCKET={place}", *RUN, "true", user=OPERATOR, check=False
    )
    assert done.returncode == 10, done
    assert last(fleet)["outcome"] == "rolled-back"


def test_without_the_supervisor(fleet: Fleet) -> None:
    """The command says that the supervisor is down, and changes nothing."""
    fleet.box.run("systemctl stop appliance-supervisor.socket appliance-supervisor")
    done = run(fleet, "true")
    assert done.returncode == 69
    assert "supervisor not running" in done.stderr
    assert fleet.active() == ["a"]


def test_a_claim_that_cannot_be_had(fleet: Fleet) -> None:
    """GPUs that the box has not are refused before the model is stopped."""
    pid = fleet.main_pid("a")
    done = fleet.box.run("appliance run --gpus 7 -- true", user=OPERATOR, check=False)
    assert done.returncode == 1, done
    assert fleet.main_pid("a") == pid


def test_ctrl_c_while_it_waits(fleet: Fleet) -> None:
    """Before the command has begun Ctrl-C undoes it, and the model comes back."""
    fleet.profile("deaf", 9003, "--ignore-term", tables='[deadlines]\nstop = "3s"\n')
    fleet.apply()
    fleet.switch("deaf")
    with fleet.box.stream(*RUN, "touch", MARK, user=OPERATOR) as stream:
        fleet.box.wait_for("systemctl is-active appliance-backend-deaf | grep -q deactivating")
        stream.signal(signal.SIGINT)
        assert stream.wait() == 130
        assert "cancelled: what served before comes back" in stream.errors()
    fleet.wait_serving("deaf")
    with pytest.raises(RigError):
        fleet.box.run(f"test -e {MARK}")


@pytest.fixture
def gpus(shared_gpus: Gpus) -> Gpus:
    """The two GPUs of another box."""
    return shared_gpus


@pytest.fixture
def cards(shared_gpu_fleet: Fleet) -> Fleet:
    """A box with two profiles that each fill most of both pretend GPUs, a serving."""
    shared_gpu_fleet.people()
    return shared_gpu_fleet


def test_gpus_are_given_back_first(cards: Fleet, gpus: Gpus) -> None:
    """A command on the GPUs waits until what the model held is back, and says so."""
    gpus.release_after(1.5)
    script = "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"
    began = time.monotonic()
    done = cards.box.run(
        "appliance", "run", "--gpus", "0,1", "--", "sh", "-c", script, user=OPERATOR
    )
    assert time.monotonic() - began >= 1.5
    assert done.stdout == "0,1 PCI_BUS_ID\n"
    cards.wait_serving("a")


def test_what_others_hold_is_told_and_left(cards: Fleet, gpus: Gpus) -> None:
    """Memory of somebody else is a warning for the command's caller, and no reason to refuse."""
    cards.box.run("appliance stop")
    pid = cards.foreign_holder("notebook", "0:2")
    answer = cards.box.run("appliance", "run", "--json", "--", "true", user=OPERATOR)
    told = [json.loads(line) for line in answer.stderr.splitlines()]
    texts = [e["text"] for e in told if e.get("phase") == "preflight"]
    named = f"GPU 0 stays with python3 (pid {pid}, notebook.service, user {STRANGER})"
    assert any(named in text for text in texts), texts
    assert len(gpus.holds()) == 1


def test_memory_without_an_owner_is_waited_for(cards: Fleet, gpus: Gpus) -> None:
    """Memory that never comes back ends the wait with its bytes; the command is not begun."""
    gpus.release_after(None)
    with cards.box.stream("appliance", "run", "--", "touch", MARK, user=OPERATOR) as stream:
        cards.box.wait_for("appliance status | grep -q 'without an owner'", timeout_s=20)
        stream.signal(signal.SIGINT)
        assert stream.wait() == 130
    assert cards.box.run(f"test -e {MARK}", check=False).returncode == 1
    for hold in gpus.holds():
        gpus.forget(hold)
    gpus.release_after(0)
