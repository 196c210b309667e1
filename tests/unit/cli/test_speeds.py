"""`baseline` and `show --baseline`: levels, and changes after a question."""

import io
import json
import sys
from pathlib import Path

import msgspec
import pytest

from appliance.model.speeds import BaselineReport, PromptBaseline, SeriesBaseline
from appliance.model.words import Series
from appliance.presentation.speed_history import baseline_in
from appliance.speed.probe_sizes import ProbeStep
from appliance.wire.conversation import ErrorEvent, ResultEvent
from appliance.wire.health_socket import ProbedEvent, ProbeProgressEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import Keyboard, call
from tests.fakes.health_server import FakeHealthAgent, HealthStory, report, speeds

REPORT = BaselineReport(
    profile="genesis",
    series=(
        SeriesBaseline(
            series=Series.DECODE,
            phase="regressed",
            baseline=80.3,
            band=1.2,
            accepted_unix_s=1_793_577_600.0,
            present=17.9,
            change=-0.777,
            prompts=(PromptBaseline(prompt="refactor", rate=79.9),),
        ),
        SeriesBaseline(series=Series.PREFILL, phase="learning"),
    ),
)
SHOWN = ResultEvent(details=msgspec.to_builtins(REPORT))
DONE = ResultEvent(outcome="done", message="the baseline of genesis is accepted")
CHANGE = "decode   80.3 → 17.9 steps/s, −78 %\n"  # noqa: RUF001


@pytest.fixture(autouse=True)
def box(here: CliBox, monkeypatch: pytest.MonkeyPatch) -> CliBox:
    """Return a box for commands without a terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return here


def person(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a person at a terminal type a text."""
    monkeypatch.setattr(sys, "stdin", Keyboard(text))


@pytest.mark.parametrize("words", [("baseline", "show", "genesis"), ("show", "genesis")])
def test_levels_are_shown(box: CliBox, words: tuple[str, ...]) -> None:
    """Each series has its level, band and date, an accept's consequence, and its prompts."""
    more = ("--baseline",) if words[0] == "show" else ()
    with FakeHealthAgent(box.health_socket, {"baseline": [SHOWN]}):
        lines = call(*words, *more).out.splitlines()
        document = json.loads(call(*words, *more, "--json").out)
    assert lines[-4:] == [
        "decode   80.3 ±1.2 steps/s, accepted Mon 02 Nov 00:00",
        "         accept would make it 80.3 → 17.9 steps/s, −78 %",  # noqa: RUF001
        "           refactor                79.9",
        "prefill  no baseline yet: it is being learned",
    ]
    assert document["series"][0]["present"] == 17.9


@pytest.mark.parametrize(("typed", "accepted"), [("y\n", True), ("n\n", False), ("", False)])
def test_an_accept_says_what_it_would_accept(
    box: CliBox, monkeypatch: pytest.MonkeyPatch, typed: str, *, accepted: bool
) -> None:
    """At a terminal the person is asked; anything but yes leaves the baseline as it is."""
    person(typed, monkeypatch)
    with FakeHealthAgent(box.health_socket, {"baseline": [SHOWN], "accept": [DONE]}) as agent:
        ended = call("baseline", "accept", "genesis")
    assert ended.err.startswith(CHANGE)
    assert "keep? [y/N] " in ended.err
    assert ("accept" in [request["verb"] for request in agent.requests]) == accepted
    assert ended.status == (0 if accepted else 1)
    if accepted:
        assert ended.out == "the baseline of genesis is accepted\n"
    else:
        assert ended.err.endswith("the baseline of genesis is unchanged\n")


def test_a_reset_is_asked_for_too(box: CliBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question shows the level that would be forgotten."""
    person("yes\n", monkeypatch)
    reset = ResultEvent(outcome="done", message="the baseline of genesis is reset")
    with FakeHealthAgent(box.health_socket, {"baseline": [SHOWN], "reset": [reset]}) as agent:
        ended = call("baseline", "reset", "genesis")
    assert ended.err.startswith("decode   80.3 ±1.2 steps/s, accepted Mon 02 Nov 00:00 → none")
    assert ended.out == "the baseline of genesis is reset\n"
    assert agent.requests[-1]["args"] == {"name": "genesis", "by": ""}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nobody_is_asked_without_a_terminal(box: CliBox, more: tuple[str, ...]) -> None:
    """A script says --yes, which asks nothing."""
    with FakeHealthAgent(box.health_socket, {"accept": [DONE]}) as agent:
        ended = call("baseline", "accept", "genesis", *more)
        assert agent.requests == []
        assert (ended.status, ended.err) == (
            2,
            (
                "baseline accept asks on a terminal; without one: "
                "appliance baseline accept genesis --yes\n"
            ),
        )
        ended = call("baseline", "accept", "genesis", "--yes", *more)
    assert ended.status == 0
    assert "the baseline of genesis is accepted" in ended.out


def test_an_accept_without_a_level_yet(box: CliBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that was never measured has nothing to compare."""
    never = ResultEvent(
        details=msgspec.to_builtins(BaselineReport(profile="genesis", series=REPORT.series[1:]))
    )
    person("y\n", monkeypatch)
    with FakeHealthAgent(box.health_socket, {"baseline": [never], "accept": [DONE]}):
        ended = call("baseline", "accept", "genesis")
    assert ended.err.startswith("prefill  nothing to compare: the next probes make the baseline\n")


@pytest.mark.parametrize(
    "words", [("baseline", "show", "genesis"), ("show", "genesis", "--baseline")]
)
def test_without_an_agent(words: tuple[str, ...]) -> None:
    """The error names the command that starts it."""
    ended = call(*words)
    assert (ended.status, ended.err) == (
        69,
        "health agent not running: sudo systemctl start appliance-health\n",
    )


def test_a_profile_that_is_not_measured(box: CliBox) -> None:
    """The agent's refusal is the command's error."""
    refusal = ErrorEvent("bad-request", "genesis is not measured: it generates no text")
    with FakeHealthAgent(box.health_socket, {"baseline": [refusal]}):
        ended = call("baseline", "show", "genesis")
    assert (ended.status, ended.err) == (2, "genesis is not measured: it generates no text\n")


def test_a_change_wants_a_name_among_several(box: CliBox) -> None:
    """A reset of the wrong profile would cost its history of comparison."""
    several = speeds(report("genesis", 9.0), report("aeon", 8.0))
    agent = {"speeds": [several], "baseline": [SHOWN], "reset": [DONE]}
    with FakeHealthAgent(box.health_socket, agent):
        ended = call("baseline", "reset", "--yes")
        shown = call("baseline", "show")
    assert (ended.status, ended.err) == (
        2,
        "aeon and genesis are measured: name one of them\n",
    )
    assert shown.out.startswith("genesis\ndecode")


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


def test_a_probe_without_an_agent() -> None:
    """The error names the command that starts it."""
    ended = call("probe")
    assert (ended.status, ended.err) == (
        69,
        "health agent not running: sudo systemctl start appliance-health\n",
    )


@pytest.mark.parametrize("document", [None, 3, {}, {"profile": "aeon", "series": [{"phase": "x"}]}])
def test_baselines_of_another_form_are_none(document: object) -> None:
    """An answer of another release, or of none, shows no baseline."""
    assert baseline_in(document) is None
