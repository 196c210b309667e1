"""Question of `status` to the health agent: answered, refused, and given up."""

from pathlib import Path

import pytest

from appliance.cli.speed_question import SpeedQuestion
from appliance.model.record import Record
from appliance.wire.conversation import ErrorEvent, ResultEvent
from tests.fakes.control_server import FakeSupervisor, Hang, HangUp
from tests.fakes.health_server import FakeHealthAgent, report, speeds

LONG_S = 60.0
NOT_KNOWN = {
    "note": "speed not known: systemctl status appliance-health",
    "trouble": [],
    "profiles": {},
}


def test_the_answer_is_read_later(tmp_path: Path) -> None:
    """The request is on its way while the supervisor is asked."""
    path = tmp_path / "health.sock"
    with FakeHealthAgent(path, {"speeds": [speeds(report("a", 9.0), trouble=["full"])]}) as agent:
        answer = SpeedQuestion(str(path), within_s=LONG_S).answer()
        assert [request["verb"] for request in agent.requests] == ["speeds"]
    assert (answer["note"], answer["trouble"]) == (None, ["full"])
    assert answer["profiles"]["a"]["ttft_s"] == 0.41


@pytest.mark.parametrize(
    "story",
    [(HangUp(),), (ErrorEvent("failed", "the agent starts"),)],
    ids=["hangs up", "refuses"],
)
def test_an_agent_without_an_answer_is_named(
    tmp_path: Path, story: tuple[Record | HangUp, ...]
) -> None:
    """The note is the command that shows what it does."""
    path = tmp_path / "health.sock"
    with FakeHealthAgent(path, {"speeds": story}):
        assert SpeedQuestion(str(path), within_s=LONG_S).answer() == NOT_KNOWN


def test_nobody_listens(tmp_path: Path) -> None:
    """A missing socket, and one that a process has left, are the same."""
    assert SpeedQuestion(str(tmp_path / "health.sock")).answer() == NOT_KNOWN
    path = tmp_path / "old.sock"
    with FakeHealthAgent(path, {}):
        pass
    assert SpeedQuestion(str(path)).answer() == NOT_KNOWN


def test_a_silent_agent_is_not_waited_for(tmp_path: Path) -> None:
    """Systemd keeps the socket open for an agent that hangs; a status then ends without speeds."""
    path = tmp_path / "health.sock"
    with FakeHealthAgent(path, {}, silent=True):
        question = SpeedQuestion(str(path))
        assert question._left_s() <= 0.15
        assert question.answer() == NOT_KNOWN
    path.unlink()
    with FakeHealthAgent(path, {"speeds": [Hang()]}):
        assert SpeedQuestion(str(path)).answer() == NOT_KNOWN


def test_an_answer_of_another_release_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    """Values of other types are none."""
    path = tmp_path / "health.sock"
    odd = ResultEvent(details={"profiles": {"a": 7}, "trouble": None})
    with FakeHealthAgent(path, {"speeds": [odd]}):
        answer = SpeedQuestion(str(path), within_s=LONG_S).answer()
    assert answer == {"note": None, "trouble": [], "profiles": {"a": {}}}


def test_a_refusal_in_place_of_the_greeting_is_told(tmp_path: Path) -> None:
    """An agent of another protocol says what to restart."""
    path = tmp_path / "health.sock"
    refusal = {"event": "error", "exit": 2, "message": "they share no protocol"}
    with FakeSupervisor(path, {}, greeting=refusal):
        answer = SpeedQuestion(str(path), within_s=LONG_S).answer()
    assert answer["note"] == "speed not known: they share no protocol"
