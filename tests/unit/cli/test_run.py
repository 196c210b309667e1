"""`appliance run`, with a supervisor that recites and the real launcher."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.progress_lines import heading
from appliance.wire import run_ticket
from appliance.wire.control_events import AcceptedEvent
from tests.fakes.cli_box import CliBox, Ended
from tests.fakes.control_server import FakeSupervisor, Story, WaitFor
from tests.programs import program, started

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="not root: that commands run as their callers is not shown"
)
ACCEPTED = {
    "event": "accepted",
    "operation": 12,
    "kind": "run",
    "target": ["sh"],
    "evicts": ["aeon"],
    "joined": False,
    "usual_ms": None,
}
TICKET = {"event": "ticket", "token": "secret of this operation"}
RELEASE = {"event": "phase", "phase": "release", "state": "started", "text": "", "ms": 0}
BACK = {**RELEASE, "state": "done", "rolling_back": True}
DONE = {"event": "result", "exit": 0, "outcome": "done", "message": "aeon is serving again"}
FAILED = {"event": "result", "exit": 11, "outcome": "failed", "message": "aeon did not start"}


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    """Files of a box with nothing on it."""
    box = CliBox(tmp_path)
    box.install()
    return box


@contextmanager
def launcher(box: CliBox) -> Iterator[None]:
    """The launcher, as its unit would run it."""
    admitted = run_ticket.encoded(operation=12, uid=os.geteuid(), gpus=(), token=TICKET["token"])
    (box.root / "ticket.json").write_text(admitted)
    (box.root / "ticket.json").chmod(0o644)
    folders = ("--directory", box.root / "run", "--lease-dir", box.root / "leases")
    who = ("--group", "root", "--owner", "root", "--ticket", box.root / "ticket.json")
    with started(program("run", *folders, *who, "--deadline-s", 0.2)):
        yield


def run(box: CliBox, story: Story, *argv: str) -> tuple[Ended, Sequence[Mapping[str, object]]]:
    """Run the verb against a supervisor that tells `story`."""
    place = {"APPLIANCE_RUN_SOCKET": str(box.root / "run" / "socket")}
    with FakeSupervisor(box.socket, {"run": story}) as supervisor, launcher(box):
        ended = box.run("run", *argv, **place)
    return ended, supervisor.requests


def story(box: CliBox, closing: Mapping[str, object]) -> Story:
    """Return the story of a run whose command runs until it leaves a file."""
    return [ACCEPTED, TICKET, RELEASE, WaitFor(box.root / "ended"), BACK, closing]


@needs_root
@pytest.mark.parametrize(
    ("script", "closing", "status"),
    [
        ("", DONE, 0),
        ("exit 7", DONE, 7),
        ("kill -TERM $$", DONE, 143),
        ("", FAILED, 11),
        ("exit 7", FAILED, 7),
    ],
)
def test_the_status_is_the_commands(
    box: CliBox, script: str, closing: Mapping[str, object], status: int
) -> None:
    """A failed way back shows only where the command itself did not fail."""
    command = f"echo mine; touch {box.root}/ended; {script}"
    ended, requests = run(box, story(box, closing), "--gpus", "none", "--", "sh", "-c", command)
    assert (ended.status, ended.out) == (status, "mine\n"), ended.err
    assert ended.err.splitlines()[0] == "run sh in place of aeon (which comes back after it)"
    assert ended.err.splitlines()[-1] == closing["message"]
    assert requests[0]["args"] == {"command": "sh", "gpus": [], "dry_run": False, "drain_s": None}


@needs_root
def test_events_go_to_stderr(box: CliBox) -> None:
    """With --json, too, standard output is the command's alone."""
    command = ("sh", "-c", f"touch {box.root}/ended")
    ended, _ = run(box, story(box, DONE), "--json", "--gpus", "none", "--", *command)
    events = [json.loads(line)["event"] for line in ended.err.splitlines()]
    assert events == ["accepted", "phase", "phase", "result"]
    assert TICKET["token"] not in ended.err
    assert ended.out == ""


@needs_root
def test_a_claim_that_is_held(box: CliBox) -> None:
    """The launcher's refusal goes to the supervisor, whose word is the last one."""
    (box.root / "leases").mkdir()
    refused = {**DONE, "exit": 10, "message": "cpu is held by python3"}
    report = WaitFor(box.root / "run" / "last.json")
    with (box.root / "leases" / "cpu").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told: Story = [ACCEPTED, TICKET, RELEASE, report, refused]
        ended, _ = run(box, told, "--gpus", "none", "--", "true")
    assert (ended.status, ended.err.splitlines()[-1]) == (10, "cpu is held by python3")


@needs_root
@pytest.mark.parametrize(
    ("closing", "status"),
    [
        ({"event": "error", "exit": 75, "message": "run sh is running"}, 75),
        ({**DONE, "exit": 1, "outcome": "refused", "message": "there is no GPU 7"}, 1),
    ],
)
def test_it_never_came_to_that(box: CliBox, closing: Mapping[str, object], status: int) -> None:
    """A refusal before any change is printed once."""
    ended, _ = run(box, [closing], "--", "true")
    assert (ended.status, ended.out) == (status, "")
    assert ended.err == f"{closing['message']}\n"


@needs_root
def test_a_command_that_was_never_run_fails(box: CliBox) -> None:
    """Also when the operation itself ended well: no success is told of what did not happen."""
    ended, _ = run(box, [ACCEPTED, TICKET, DONE], "--gpus", "none", "--", "touch", f"{box.root}/x")
    assert (ended.status, (box.root / "x").exists()) == (10, False)
    assert ended.err.splitlines()[-1] == "the command was not run"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ((), "no command: appliance run -- COMMAND"),
        (("--gpus", "none", "--"), "no command: appliance run -- COMMAND"),
        (("--gpus", "x", "--", "true"), '"x" names no GPUs; write all, none or 0,1'),
        (("--gpus", "", "--", "true"), '"" names no GPUs; write all, none or 0,1'),
    ],
)
def test_usage(box: CliBox, argv: Sequence[str], problem: str) -> None:
    """A command line that makes no sense ends with 2, before anybody is asked."""
    ended = box.run("run", *argv)
    assert ended.status == 2
    assert problem in ended.err


@pytest.mark.parametrize(
    ("word", "status", "told"),
    [
        ("nosuch", 127, "nosuch: no such program in PATH; nothing was stopped"),
        ("./nosuch", 127, "./nosuch: no such program; nothing was stopped"),
        ("plain", 126, "plain: not executable for this user; nothing was stopped"),
        ("folder", 126, "folder: not executable for this user; nothing was stopped"),
    ],
)
def test_a_program_that_is_not_there_stops_nothing(
    box: CliBox, word: str, status: int, told: str
) -> None:
    """The program is looked for first, in the caller's PATH: the supervisor is not asked."""
    programs = box.root / "programs"
    (programs / "folder").mkdir(parents=True)
    (programs / "plain").write_text("#!/bin/sh\n")
    with FakeSupervisor(box.socket, {"run": [DONE]}) as supervisor:
        ended = box.run("run", "--gpus", "none", "--", word, PATH=str(programs))
        assert (ended.status, ended.out, ended.err) == (status, "", f"{told}\n")
        assert supervisor.requests == []
        (programs / "plain").chmod(0o755)
        box.run("run", "--gpus", "none", "--", "plain", PATH=f"/nowhere:{programs}")
        asked = {"command": "plain", "gpus": [], "dry_run": False, "drain_s": None}
        assert [request["args"] for request in supervisor.requests] == [asked]


def test_without_a_supervisor(box: CliBox) -> None:
    """No supervisor means that no process can make room, or restore the models."""
    ended = box.run("run", "--", "true")
    assert ended.status == 69
    assert "supervisor not running" in ended.err


@pytest.mark.parametrize(
    ("argv", "gpus", "command"),
    [
        (["--gpus", "none", "--", "a", "--x", "--", "b"], [], ["a", "--x", "--", "b"]),
        (["--gpus=1,0,1", "--now", "--", "a"], [0, 1], ["a"]),
        (["--", "--gpus"], "all", ["--gpus"]),
        (["a", "--gpus", "none"], "all", ["a", "--gpus", "none"]),
    ],
)
def test_the_command_begins_where_ours_ends(
    argv: Sequence[str], gpus: object, command: Sequence[str]
) -> None:
    """Words after -- are the command's, options too; so are words after its first word."""
    parsed = build_parser(["run"]).parse_args(["run", *argv])
    words = parsed.command
    assert parsed.gpus == gpus
    assert (words[1:] if words[:1] == ["--"] else words) == command


@pytest.mark.parametrize(
    ("evicts", "line"),
    [
        ([], "run sh"),
        (["aeon"], "run sh in place of aeon (which comes back after it)"),
        (["left", "right"], "run sh in place of left and right (which come back when it ends)"),
    ],
)
def test_heading(evicts: Sequence[str], line: str) -> None:
    """The heading names the profiles that stop, and says that they come back."""
    assert heading(AcceptedEvent(12, "run", ("sh",), tuple(evicts))) == line
