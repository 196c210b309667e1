"""`baseline` and `show --baseline`: levels, and changes after a question."""

import io
import json
import sys
from dataclasses import asdict

import pytest

from appliance.model.words import Series
from appliance.speed.speeds import BaselineReport, PromptBaseline, SeriesBaseline
from appliance.wire.conversation import ErrorEvent, ResultEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import Keyboard, call
from tests.fakes.health_server import FakeHealthAgent, report, speeds

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
SHOWN = ResultEvent(details=asdict(REPORT))
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
    never = ResultEvent(details=asdict(BaselineReport(profile="genesis", series=REPORT.series[1:])))
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
