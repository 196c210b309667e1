"""`probe`: progress of each prompt, and the outcome of each profile."""

import json
from pathlib import Path

import pytest

from appliance.speed.probe_sizes import ProbeStep
from appliance.wire.conversation import ErrorEvent, ResultEvent
from appliance.wire.health_socket import ProbedEvent, ProbeProgressEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.health_server import FakeHealthAgent, HealthStory

PROGRESS = (
    ProbeProgressEvent("genesis", "refactor", ProbeStep.READING.value, "piece 1 of 2"),
    ProbeProgressEvent("genesis", "refactor", ProbeStep.WRITING.value),
    ProbeProgressEvent("genesis", "refactor", ProbeStep.ENDED.value, "", 41.24),
)
MEASURED = ProbedEvent("genesis", "valid", "", 41.24, 1850.0, 0.412, 0.005)
REFACTOR = "genesis  refactor              ended     41.2 tok/s\n"


@pytest.fixture(autouse=True)
def socket(here: CliBox) -> Path:
    """Return the agent's socket."""
    return here.health_socket


def probe(socket: Path, *story: object, words: str = "genesis") -> tuple[int, str, str]:
    told: HealthStory = story  # type: ignore[assignment]  # events
    with FakeHealthAgent(socket, {"probe": told}):
        ended = call("probe", *words.split())
    return ended.status, ended.out, ended.err


def test_a_probe_is_told_while_it_runs(socket: Path) -> None:
    """A prompt has a line on stderr when it has ended, the figures are on stdout."""
    status, out, err = probe(socket, *PROGRESS, MEASURED, ResultEvent())
    assert (status, err) == (0, REFACTOR)
    assert out == (
        "genesis  decode 41.2 tok/s  prefill 1850 tok/s  TTFT 0.41 s  +0.5 % of the baseline\n"
    )


def test_a_terminal_sees_each_step(socket: Path) -> None:
    """The line of a prompt is redrawn, and nothing of it is left behind."""
    with FakeHealthAgent(socket, {"probe": [*PROGRESS, MEASURED, ResultEvent()]}):
        ended = call("probe", interactive=True)
    drawn = ended.err.split("\r\x1b[2K")
    assert [line.split()[2] for line in drawn if line.strip()] == ["reading", "writing", "ended"]
    assert drawn[-1] == REFACTOR


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ProbedEvent("a", "busy", "requests are in flight"), "a  busy: requests are in flight"),
        (ProbedEvent("a", "ended-early"), "a  ended early"),
        (ProbedEvent("a", ""), "a  not probed"),
        (ProbedEvent("a", "valid", "", 9.5), "a  decode 9.50 tok/s"),
    ],
)
def test_outcomes(socket: Path, event: ProbedEvent, line: str) -> None:
    """A probe that did not measure says why, and the status is 1."""
    status, out, _ = probe(socket, event, ResultEvent())
    assert out == f"{line}\n"
    assert status == (0 if event.outcome == "valid" else 1)


def test_no_probe_at_all_is_a_failure(socket: Path) -> None:
    """A refusal is the command's error, after an incomplete line is removed."""
    assert probe(socket, ResultEvent())[0] == 1
    socket.unlink()
    refusal = ErrorEvent("failed", "no measured profile serves: appliance status")
    with FakeHealthAgent(socket, {"probe": [PROGRESS[0], refusal]}):
        ended = call("probe", interactive=True)
    assert ended.status == 1
    assert ended.err.endswith("\r\x1b[2Kno measured profile serves: appliance status\n")


def test_events_for_programs(socket: Path) -> None:
    """--json prints each event as it comes."""
    status, out, err = probe(socket, PROGRESS[2], MEASURED, ResultEvent(), words="genesis --json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["progress", "probed", "result"]
    assert (status, err) == (0, "")


def test_without_an_agent() -> None:
    """The error names the command that starts it."""
    ended = call("probe")
    assert (ended.status, ended.err) == (
        69,
        "health agent not running: sudo systemctl start appliance-health\n",
    )
