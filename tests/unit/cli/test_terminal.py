"""The command on a real terminal: live progress, colour, width, Ctrl-C."""

import re
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox
from tests.fakes.command_terminal import on_terminal
from tests.fakes.control_server import FakeSupervisor, Hang, Story

ACCEPTED = {
    "event": "accepted",
    "operation": 12,
    "kind": "switch",
    "target": ["genesis"],
    "evicts": ["aeon"],
    "joined": True,
    "usual_ms": None,
}
DONE = {"event": "result", "exit": 0, "outcome": "done", "message": "genesis is serving"}
LOADING = {
    "event": "phase",
    "phase": "load",
    "state": "progress",
    "text": "loading 11.2 of 18.1 GiB, which takes a while on this disk",
    "ms": 900,
    "rolling_back": False,
}
LOADED = {**LOADING, "state": "done", "text": "ready", "ms": 19_700}


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install()
    return box


def test_the_running_phase_is_redrawn_and_then_stands(box: CliBox) -> None:
    """On a terminal a phase turns in place until it ends, then its line stays."""
    story: Story = [ACCEPTED, LOADING, LOADED, DONE]
    with FakeSupervisor(box.socket, {"switch": story}), on_terminal(box, "switch", "genesis") as it:
        seen = it.until("genesis is serving\r\n")
        assert it.status() == 0
    heading, rest = seen.split("\r\n", 1)
    assert heading == "aeon → genesis   (already running, joined; Ctrl-C detaches)"
    assert re.search(r"\r\x1b\[2K ⠋ loading +loading 11.2 of 18.1 GiB", rest)
    last = rest.rsplit("\r\x1b[2K", 1)[1]
    assert re.match(r" \x1b\[32m✓\x1b\[0m loading +ready +19\.7 s\r\n", last)


def test_the_spinner_turns_without_events(box: CliBox) -> None:
    """A silent load still looks alive, and its seconds count."""
    with (
        FakeSupervisor(box.socket, {"switch": [ACCEPTED, LOADING, Hang()]}),
        on_terminal(box, "switch", "genesis") as it,
    ):
        seen = it.until("⠼")
        assert "⠋" in seen
        assert re.search(r"0\.9 s", seen)
        it.until(r"1\.[1-9] s")


def test_a_joined_phase_shows_its_whole_time(box: CliBox) -> None:
    """The second operator at a load that has lasted 12 s sees 12 s."""
    started = {**LOADING, "state": "started", "ms": 12_000}
    with (
        FakeSupervisor(box.socket, {"switch": [ACCEPTED, started, Hang()]}),
        on_terminal(box, "switch", "genesis") as it,
    ):
        it.until(r"12\.\d s|\b1[2-9] s")


def test_a_live_line_never_wraps(box: CliBox) -> None:
    """On a narrow terminal the live line is cut, for a wrapped one could not be redrawn."""
    with (
        FakeSupervisor(box.socket, {"switch": [ACCEPTED, LOADING, Hang()]}),
        on_terminal(box, "switch", "genesis", columns=40) as it,
    ):
        seen = it.until("⠼")
    frames = seen.split("\r\x1b[2K")[1:-1]
    assert frames
    assert {len(frame) for frame in frames} == {39}


def test_ctrl_c_detaches(box: CliBox) -> None:
    """Ctrl-C ends the command, not the operation, and says how to go on."""
    with (
        FakeSupervisor(box.socket, {"switch": [ACCEPTED, LOADING, Hang()]}),
        on_terminal(box, "switch", "genesis") as it,
    ):
        it.until("loading 11.2")
        it.press(b"\x03")
        seen = it.until("appliance cancel ends it")
        assert it.status() == 130
    assert "detached; switch to genesis continues: appliance wait follows it" in seen
    assert "Traceback" not in seen


@pytest.mark.slow
def test_watch_redraws_until_ctrl_c(box: CliBox) -> None:
    """`status --watch` paints the screen anew and ends on Ctrl-C without a word."""
    status: dict[str, object] = {
        "host": "garage",
        "version": "0.1.0",
        "supervisor": {"state": "up", "uptime_s": 1.0},
        "committed": [],
        "hold": None,
        "operation": None,
        "last_operation": None,
        "memory": None,
        "profiles": [],
        "verdict": {"state": "nothing", "exit": 3, "why": ["nothing is applied"]},
    }
    stories: dict[str, Story] = {"watch": [{"event": "status", "status": status}, Hang()]}
    with FakeSupervisor(box.socket, stories), on_terminal(box, "status", "--watch") as it:
        it.until(r"nothing is applied")
        it.press(b"\x03")
        assert it.status() == 130
        assert "Traceback" not in it.seen


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(box: CliBox, environment: dict[str, str]) -> None:
    """NO_COLOR and a dumb terminal get no escape sequence for colour."""
    with (
        FakeSupervisor(box.socket, {"switch": [ACCEPTED, LOADED, DONE]}),
        on_terminal(box, "switch", "genesis", environment=environment) as it,
    ):
        seen = it.until("genesis is serving\r\n")
    assert "\x1b[3" not in seen
