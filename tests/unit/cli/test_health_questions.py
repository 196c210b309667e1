"""Commands about measurements, answered by the health agent's own server and store."""

import asyncio
import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.health_questions import SpeedQuestion
from appliance.model.measurements import EventKind, MeasurementEvent
from appliance.model.record import Record
from appliance.model.status import SpeedSection
from appliance.model.words import Series
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.wire.conversation import ErrorEvent, ResultEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.control_server import FakeSupervisor, Hang, HangUp
from tests.fakes.health_server import FakeHealthAgent, report, speeds
from tests.fakes.health_thread import HealthThread, health_thread
from tests.fakes.probe_rows import probe
from tests.fakes.profiles import applied

HOUR_S = 3600.0
PROBES = 8
LOSS = MeasurementEvent(
    unix_s=time.time() - HOUR_S,
    profile="genesis",
    kind=EventKind.REGRESSION,
    series=Series.DECODE,
    text="slow: 27.1 tok/s (was 41.0)",
)


async def fill(database: Path) -> None:
    store = MeasurementStore(database)
    await store.open()
    for number in range(PROBES):
        await store.add(probe=probe(time.time() - (PROBES - number) * 900))
    await store.add(events=[LOSS])
    await store.close()


@pytest.fixture
def agent(here: CliBox) -> Iterator[HealthThread]:
    database = here.root / "measurements.sqlite"
    asyncio.run(fill(database))
    catalogue = {"genesis": applied("genesis")}
    with health_thread(here.health_socket, database, catalogue) as thread:
        yield thread


@pytest.mark.usefixtures("agent")
def test_commands_read_what_the_agent_answers() -> None:
    """History, raw probes, events and baselines come through the real socket as they are shown."""
    history = call("history", "--since", "12h")
    assert history.out.startswith("genesis · decode, steps/s · baseline 27.0 steps/s\n")
    assert "▼ genesis decode: slow: 27.1 tok/s (was 41.0)" in history.out
    rows = list(csv.DictReader(io.StringIO(call("history", "genesis", "--csv").out)))
    assert [row["series"] for row in rows] == ["decode"] * PROBES + ["prefill"] * PROBES
    assert {row["median"] for row in rows} == {"50.0", "2000.0"}
    assert len(call("history", "genesis", "--raw", "--json").out.splitlines()) == PROBES
    (event,) = call("events", "--json").out.splitlines()
    assert json.loads(event)["text"] == LOSS.text
    assert call("baseline", "show").out == "genesis\ndecode   27.0 steps/s\n"
    assert call("history", "genesi").err == 'no profile "genesi". Did you mean "genesis"?\n'


def test_commands_change_what_the_agent_has(agent: HealthThread) -> None:
    """A probe is told as it goes on, an accept reaches the monitor with the user's name."""
    probed = call("probe")
    assert (probed.status, probed.err.count("ended")) == (0, 1)
    assert probed.out == "genesis  decode 54.0 tok/s\n"
    assert call("baseline", "accept", "--yes").out == "the baseline of genesis is accepted\n"
    ((change, by),) = agent.speeds["genesis"].changes
    assert change == "accept"
    assert by
    answer = SpeedQuestion(str(agent.path), within_s=60.0).answer()
    assert answer.profiles["genesis"]["last_outcome"] == "valid"


LONG_S = 60.0
NOT_KNOWN = SpeedSection(note="speed not known: systemctl status appliance-health")


def test_the_answer_is_read_later(tmp_path: Path) -> None:
    """The request is on its way while the supervisor is asked."""
    path = tmp_path / "health.sock"
    with FakeHealthAgent(path, {"speeds": [speeds(report("a", 9.0), trouble=["full"])]}) as agent:
        answer = SpeedQuestion(str(path), within_s=LONG_S).answer()
        assert [request["verb"] for request in agent.requests] == ["speeds"]
    assert (answer.note, answer.trouble) == (None, ["full"])
    assert answer.profiles["a"]["ttft_s"] == 0.41


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
    assert answer == SpeedSection(trouble=[], profiles={"a": {}})


def test_a_refusal_in_place_of_the_greeting_is_told(tmp_path: Path) -> None:
    """An agent of another protocol says what to restart."""
    path = tmp_path / "health.sock"
    refusal = {"event": "error", "exit": 2, "message": "they share no protocol"}
    with FakeSupervisor(path, {}, greeting=refusal):
        answer = SpeedQuestion(str(path), within_s=LONG_S).answer()
    assert answer.note == "speed not known: they share no protocol"
