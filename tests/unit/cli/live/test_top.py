"""`appliance top` and `status --watch` on a real terminal: keys, size, suspension, every end."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.wire.conversation import HelloEvent
from appliance.wire.json_values import object_in
from tests.fakes.cli_box import CliBox
from tests.fakes.command_terminal import OnTerminal, on_terminal
from tests.fakes.control_server import FakeSupervisor, Hang, Story, WaitFor
from tests.fakes.health_server import FakeHealthAgent, report, speeds
from tests.fakes.live_views import GENESIS, SWITCHING, document
from tests.fakes.screen_emulator import shown_lines
from tests.fakes.supervisor_documents import profile_row

LEAVE = r"\x1b\[\?1049l"
ACCEPTED = {
    "event": "accepted",
    "operation": 12,
    "kind": "switch",
    "target": ["aeon"],
    "evicts": ["genesis"],
    "joined": True,
    "usual_ms": 48_000.0,
}
PREFLIGHT = {
    "event": "phase",
    "phase": "preflight",
    "state": "done",
    "text": "needs 18.6 GiB",
    "ms": 200.0,
    "rolling_back": False,
}
LOADING = {**PREFLIGHT, "phase": "load", "state": "progress", "text": "11.2 of 18.1 GiB"}
PLAN = {
    "event": "result",
    "exit": 0,
    "outcome": "rehearsed",
    "message": "the preflight finds no obstacle",
    "plan": {"stop": ["genesis"], "start": ["aeon"], "committed_after": ["aeon"]},
    "findings": [{"level": "ok", "text": "needs 18.6 GiB"}],
}
GPUS = {
    "event": "result",
    "exit": 0,
    "gpus": [{"index": 0, "evidence": {"temperature_c": 71, "power_w": 320.0}}],
    "health": [{"index": 0, "uuid": "GPU-0", "busy_share": 0.87}],
}


def told(**more: object) -> Mapping[str, object]:
    return {"event": "status", "status": document(GENESIS, profile_row("aeon"), **more)}


def stories(*watch: object, **more: Story) -> dict[str, Story]:
    return {"watch": [*watch, Hang()], "gpus": [GPUS], **more}  # type: ignore[list-item]  # steps


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install()
    return box


@contextmanager
def top(
    box: CliBox, supervised: dict[str, Story], *arguments: str, **more: object
) -> Iterator[OnTerminal]:
    """`appliance top`, or another command, with a supervisor and a health agent."""
    agent: dict[str, list[object]] = {
        "speeds": [speeds(report("genesis", time.time()))],
        "events": [HelloEvent(), Hang()],
    }
    with (
        FakeSupervisor(box.socket, supervised),
        FakeHealthAgent(box.health_socket, agent),  # type: ignore[arg-type]  # steps
        on_terminal(box, *(arguments or ("top",)), **more) as it,  # type: ignore[arg-type]
    ):
        yield it


def switches(supervisor: FakeSupervisor) -> list[tuple[object, object]]:
    """Return the profile of each request for a switch, and whether it was a rehearsal."""
    asked = [object_in(r, "args") for r in supervisor.requests if r["verb"] == "switch"]
    return [(args["name"], args["dry_run"]) for args in asked]


def until_shown(it: OnTerminal, there: Callable[[str], object]) -> str:
    """Return the screen once a condition on it holds."""
    deadline = time.monotonic() + 10
    while not there(screen := "\n".join(shown_lines(it.seen))):
        assert time.monotonic() < deadline, screen
        it.read(0.1)
    return screen


def test_the_screen_shows_the_box_and_leaves_no_trace(box: CliBox) -> None:
    """Profile, speed, GPU and phases come together; q gives the terminal back as it was."""
    supervised = stories(told(operation=SWITCHING), attach=[ACCEPTED, PREFLIGHT, LOADING, Hang()])
    with top(box, supervised, columns=80) as it:
        screen = until_shown(
            it, lambda text: "71 °C" in text and "11.2 of" in text and "41.2" in text
        )
        assert not it.echoes()
        it.press(b"q")
        assert it.status() == 0
        it.until(LEAVE)
        assert it.echoes()
    assert re.search(r"✓ preflight +needs 18\.6 GiB +0\.2 s", screen)
    assert re.search(r"◐ loading +11\.2 of 18\.1 GiB", screen)
    assert re.search(r">● genesis serving +committed +2\+1 +41\.2 +41\.0 ±1\.2", screen)
    assert "python3(4121) 9.0" in screen
    assert it.seen.startswith("\x1b[?1049h\x1b[?25l\x1b[?7l")


def test_another_size_is_another_layout(box: CliBox) -> None:
    """SIGWINCH paints everything anew, for the width of now."""
    with top(box, stories(told()), columns=120) as it:
        until_shown(it, lambda text: "WHERE" in text)
        it.resize(40, 24)
        screen = until_shown(it, lambda text: "PROFILE" in text and "WHERE" not in text)
        assert max(map(len, screen.splitlines())) <= 40
        it.press(b"q")
        assert it.status() == 0


def test_ctrl_z_stops_and_fg_goes_on(box: CliBox) -> None:
    """A stopped screen has given the terminal back; once it goes on it paints again."""
    with top(box, stories(told()), columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        it.press(b"\x1a")
        it.until(LEAVE)
        _, status = os.waitpid(it.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert it.echoes()
        it.seen = ""
        it.process.send_signal(signal.SIGCONT)
        it.until(r"\x1b\[\?1049h")
        until_shown(it, lambda text: "genesis" in text)
        assert not it.echoes()
        it.press(b"q")
        assert it.status() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_restored(box: CliBox, number: int) -> None:
    """The status is that of a program that the signal has ended."""
    with top(box, stories(told()), columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        it.process.send_signal(number)
        assert it.status() == 128 + number
        it.until(LEAVE)
        assert it.echoes()


def test_an_error_restores_the_terminal_and_is_told_after_it(box: CliBox) -> None:
    """The sentence about a wrong name stands on the usual screen, not on the one that is gone."""
    with top(box, stories(told()), "status", "gone", "--watch", columns=80) as it:
        it.until(LEAVE + r'.*no profile "gone"')
        assert it.status() == 4
        assert it.echoes()


def test_ctrl_c_ends_it_without_a_word(box: CliBox) -> None:
    """Ctrl-C is no error, and leaves no traceback."""
    with top(box, stories(told()), columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        it.press(b"\x03")
        assert it.status() == 130
        it.until(LEAVE)
        assert "Traceback" not in it.seen


def test_a_supervisor_that_restarts_is_found_again(box: CliBox) -> None:
    """Meanwhile the screen keeps what it knew, and says since when it is old."""
    first = FakeSupervisor(
        box.socket, {"watch": [told(), WaitFor(box.root / "gone")], "gpus": [GPUS]}
    )
    with first, on_terminal(box, "top", columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        (box.root / "gone").touch()
        first.__exit__(None, None, None)
        box.socket.unlink()
        screen = until_shown(it, lambda text: "disconnected 1 s" in text)
        assert "supervisor not running: sudo systemctl start appliance-supervisor" in " ".join(
            screen.split()
        )
        assert ">● genesis" in screen
        with FakeSupervisor(box.socket, stories(told(host="barn"))):
            screen = until_shown(it, lambda text: "barn" in text)
            assert "disconnected" not in screen
            it.press(b"q")
            assert it.status() == 0


def test_a_supervisor_of_an_earlier_release_is_asked_again_and_again(box: CliBox) -> None:
    """One that knows no watch is asked for its status instead."""
    unknown = {"event": "error", "exit": 2, "message": "unknown verb", "error": "bad-request"}
    status = {"event": "result", "exit": 0, "status": told()["status"]}
    supervisor = FakeSupervisor(
        box.socket, {"watch": [unknown], "status": [status], "gpus": [GPUS]}
    )
    with supervisor, on_terminal(box, "top", columns=80) as it:
        screen = until_shown(it, lambda text: "genesis" in text)
        assert "disconnected" not in screen
        until_shown(it, lambda _: sum(r["verb"] == "status" for r in supervisor.requests) > 1)
        it.press(b"q")
        assert it.status() == 0
    assert sum(request["verb"] == "watch" for request in supervisor.requests) == 1


def test_s_asks_before_it_switches(box: CliBox) -> None:
    """The plan is shown, n changes nothing, and y sends the request for the selected profile."""
    supervised = {
        **stories(told()),
        "switch": [PLAN],
    }
    supervisor = FakeSupervisor(box.socket, supervised)
    with supervisor, on_terminal(box, "top", columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        it.press(b"\x1b[B")
        until_shown(it, lambda text: ">○ aeon" in text)
        it.press(b"s")
        screen = until_shown(it, lambda text: "no obstacle" in text)
        assert "switch to aeon?" in screen
        assert "would stop   genesis" in screen
        it.press(b"n")
        until_shown(it, lambda text: "PROFILE" in text)
        it.press(b"s")
        until_shown(it, lambda text: "no obstacle" in text)
        it.press(b"y")
        until_shown(it, lambda _: len(switches(supervisor)) > 2)
        it.press(b"q")
        assert it.status() == 0
    assert switches(supervisor) == [("aeon", True), ("aeon", True), ("aeon", False)]


def test_a_refusal_is_told_below(box: CliBox) -> None:
    """An operation that runs already is the supervisor's answer, and stands in the last line."""
    busy = {"event": "error", "exit": 75, "message": "switch to b is running", "error": "busy"}
    with top(box, {**stories(told()), "switch": [busy]}, columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        it.press(b"s")
        until_shown(it, lambda text: "switch to b is running" in text)
        it.press(b"q")
        assert it.status() == 0


def test_the_log_is_shown_and_its_reader_ends(box: CliBox) -> None:
    """Journalctl's lines are made harmless; the reader goes when its page does."""
    pid_file = box.root / "pid"
    box.program(
        "journalctl",
        f"echo $$ > {pid_file}; printf 'loaded \\033[2Jall\\nsecond line\\n'; exec sleep 60",
    )
    with top(box, stories(told()), columns=80) as it:
        until_shown(it, lambda text: "genesis" in text)
        it.press(b"l")
        screen = until_shown(it, lambda text: "second line" in text)
        assert "log of genesis" in screen
        assert "loaded all" in screen
        it.press(b"l")
        until_shown(it, lambda text: "PROFILE" in text)
        assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()
        it.press(b"q")
        assert it.status() == 0


def test_p_freezes_the_screen(box: CliBox) -> None:
    """News that come while it is frozen are shown when it goes on."""
    later = box.root / "later"
    with top(box, stories(told(), WaitFor(later), told(host="barn")), columns=80) as it:
        until_shown(it, lambda text: "garage" in text)
        it.press(b"p")
        until_shown(it, lambda text: "paused" in text)
        later.touch()
        deadline = time.monotonic() + 0.6
        while time.monotonic() < deadline:  # real time: nothing may happen in it
            it.read(0.1)
        assert "barn" not in it.seen
        it.press(b"p")
        until_shown(it, lambda text: "barn" in text)
        it.press(b"q")
        assert it.status() == 0


@pytest.mark.parametrize(
    ("environment", "escapes", "ascii_only"),
    [({"NO_COLOR": "1"}, False, False), ({"LC_ALL": "C"}, True, True), ({}, True, False)],
)
def test_colour_and_characters_follow_the_environment(
    box: CliBox, environment: Mapping[str, str], *, escapes: bool, ascii_only: bool
) -> None:
    """NO_COLOR means no colour; the C locale means ASCII."""
    with top(box, stories(told()), columns=80, environment=environment) as it:
        screen = until_shown(it, lambda text: "genesis" in text)
        it.press(b"q")
        assert it.status() == 0
    assert bool(re.search(r"\x1b\[3\d?m", it.seen)) is escapes
    assert screen.isascii() is ascii_only


def test_top_needs_a_terminal(box: CliBox) -> None:
    """Into a pipe the command that can do it is named; --json prints documents."""
    ended = box.run("top")
    assert (ended.status, ended.err) == (2, "top needs a terminal: appliance status --watch\n")


def test_a_slow_terminal_gets_no_queue_of_frames(box: CliBox) -> None:
    """Of hundreds of documents, one who reads late gets the last, and no more than a few frames."""
    documents = [told(host=f"host-{number}") for number in range(400)]
    done = box.root / "done"
    with top(box, stories(*documents, WaitFor(done), told(host="last")), columns=80) as it:
        until_shown(it, lambda text: "host-399" in text)
        written = len(it.seen)
        done.touch()
        until_shown(it, lambda text: "last" in text)
        it.press(b"q")
        assert it.status() == 0
    assert written < 60_000


# --- status --watch ----------------------------------------------------------------------


def watched(box: CliBox, supervised: dict[str, Story], *arguments: str, most: int) -> list[str]:
    """Lines of a watch into a pipe, until there are so many."""
    with (
        FakeSupervisor(box.socket, supervised),
        subprocess.Popen(
            box.command("status", "--watch", *arguments),
            env=box.environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            (box.root / "told").touch()
            lines += [process.stdout.readline() for _ in range(most - 1)]
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            return [*lines, *process.stdout.readlines()]
        finally:
            process.kill()


def older(event: Mapping[str, object]) -> Mapping[str, object]:
    """Return a document some seconds later, in which nothing has happened."""
    status = json.loads(json.dumps(event["status"]))
    status["supervisor"]["uptime_s"] += 7.0
    status["profiles"][0]["uptime_s"] += 7.0
    status["memory"]["ram_available_bytes"] -= 4096
    return {"event": "status", "status": status}


def test_into_a_pipe_a_document_follows_each_change(box: CliBox) -> None:
    """Ages alone are no change; each line is one document."""
    first, second = told(), told(host="barn")
    # Of documents that come at the same moment the last one is told.
    seen = WaitFor(box.root / "told")
    story = stories(first, older(first), seen, older(older(first)), second, older(second))
    lines = watched(box, story, "--json", most=2)
    assert [json.loads(line)["host"] for line in lines] == ["garage", "barn"]


def test_into_a_pipe_screens_follow_each_other(box: CliBox) -> None:
    """Text is appended without any escape sequence."""
    text = "".join(watched(box, stories(told(), told(host="barn")), "genesis", most=1))
    assert "genesis" in text
    assert "\x1b" not in text


def test_a_watch_on_a_terminal_paints_changes(box: CliBox) -> None:
    """The screen is that of `status`, wrapped, and q ends it."""
    changed = box.root / "changed"
    supervised = stories(told(), WaitFor(changed), told(host="barn"))
    with top(box, supervised, "status", "--watch", columns=40) as it:
        screen = until_shown(it, lambda text: "41.2 tok/s" in text)
        assert max(map(len, screen.splitlines())) <= 40
        changed.touch()
        until_shown(it, lambda text: "barn" in text)
        it.press(b"q")
        assert it.status() == 0


def imported(box: CliBox, *arguments: str) -> set[str]:
    """Modules that a command has imported by its end."""
    command = box.command(*arguments)
    done = subprocess.run(
        [command[0], "-X", "importtime", *command[1:]],
        env=box.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = done.stderr.splitlines()
    return {x.rpartition("|")[2].strip() for x in lines if x.startswith("import time:")}


def test_a_single_status_imports_nothing_of_the_live_screens(box: CliBox) -> None:
    """Only who watches pays for it; and a watch starts without what only an absent supervisor needs."""
    live = {"appliance.cli.live", "select", "signal", "termios", "unicodedata"}
    status = {"event": "result", "exit": 0, "status": told()["status"]}
    with FakeSupervisor(box.socket, {"status": [status]}):
        found = imported(box, "status")
    assert "appliance.cli.verbs.status" in found
    assert not found & live
    assert "appliance.cli.offline_status" not in imported(box, "top")
