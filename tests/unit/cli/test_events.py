"""`events`: the last ones, those of one profile, and those to come."""

import json
import subprocess

import pytest

from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.wire.conversation import ErrorEvent, ResultEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.control_server import Hang, HangUp
from tests.fakes.health_server import FakeHealthAgent, HealthStory

AT = 1_794_888_600.0
LOSS = MeasuredEvent(7, AT, "genesis", "regression", "decode", text="slow: 27.1 tok/s (was 41.0)")
BOX = MeasuredEvent(8, AT + 60, "", "store-recovered")
FIRED = AlertEvent(
    3,
    AT + 90,
    "fired",
    "A17",
    "profile:genesis",
    "slow",
    1,
    "warning",
    fact="slow: 27.1 tok/s (was 41.0)",
)
ACKED = FIRED.replaced(id=4, unix_s=AT + 100, kind="acked", by="ana", fact="", reason="seen")
AGAIN = MeasuredEvent(9, AT + 120, "genesis", "recovered", "decode", text="as fast as before")


@pytest.fixture(autouse=True)
def box(here: CliBox) -> CliBox:
    """Return the box of each command, whether a test names it or not."""
    return here


def test_the_last_events_are_told(box: CliBox) -> None:
    """Time, profile, series and sentence; an event without a sentence has its kind."""
    with FakeHealthAgent(box.health_socket, {"events": [LOSS, BOX, AGAIN, ResultEvent()]}) as agent:
        ended = call("events")
        call("events", "genesis", "-n", "5000")
    assert ended.status == 0
    assert ended.out.splitlines() == [
        "Tue 17 Nov 04:10  ▼ genesis decode: slow: 27.1 tok/s (was 41.0)",
        "Tue 17 Nov 04:11  · store recovered",
        "Tue 17 Nov 04:12  ▲ genesis decode: as fast as before",
    ]
    assert [request["args"] for request in agent.requests] == [
        {"after": 0, "name": None, "most": 20, "follow": False, "alerts_after": 0},
        {"after": 0, "name": "genesis", "most": 1000, "follow": False, "alerts_after": 0},
    ]


def test_no_event_is_told(box: CliBox) -> None:
    """An empty answer has a line on stderr, so that nobody takes it for a fault."""
    with FakeHealthAgent(box.health_socket, {"events": [ResultEvent()]}):
        ended = call("events")
    assert (ended.status, ended.out, ended.err) == (
        0,
        "",
        "nothing has happened: no alert, and no event was measured\n",
    )


def test_alerts_stand_between_measured_events(box: CliBox) -> None:
    """Transitions of an alert are told in the order in which the agent tells them."""
    story = [LOSS, FIRED, ACKED, AGAIN, ResultEvent()]
    with FakeHealthAgent(box.health_socket, {"events": story}):
        ended = call("events")
    assert ended.out.splitlines()[1:3] == [
        "Tue 17 Nov 04:11  ▼ #A17 genesis fired: slow: 27.1 tok/s (was 41.0)",
        "Tue 17 Nov 04:11  · #A17 genesis acked by ana (seen)",
    ]


def test_events_for_programs(box: CliBox) -> None:
    """--json prints a document a line."""
    with FakeHealthAgent(box.health_socket, {"events": [LOSS, ResultEvent()]}):
        document = json.loads(call("events", "--json").out)
    assert (document["id"], document["kind"], document["event"]) == (7, "regression", "measured")


def test_a_follower_outlives_the_agent(box: CliBox) -> None:
    """After an agent's end the new one is asked for what came after the last event."""
    turns: dict[str, list[HealthStory]] = {
        "events": [[LOSS, FIRED, HangUp()], [AGAIN, Hang()]],
    }
    with (
        FakeHealthAgent(box.health_socket, {}, turns=turns) as agent,
        subprocess.Popen(
            box.command("events", "-f", "--json"),
            env={**box.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as command,
    ):
        assert command.stdout is not None
        numbers = [json.loads(command.stdout.readline())["id"] for _ in range(3)]
        command.terminate()
    assert numbers == [7, 3, 9]
    asked = [request["args"] for request in agent.requests]
    assert [(args["after"], args["alerts_after"]) for args in asked] == [(0, 0), (7, 3)]  # type: ignore[index]


@pytest.mark.parametrize("more", [(), ("-f",)])
def test_refusals(box: CliBox, more: tuple[str, ...]) -> None:
    """An unknown profile, and an agent that is down from the beginning, end the command."""
    refusal = ErrorEvent("unknown-profile", 'no profile "nobody": appliance list --all')
    with FakeHealthAgent(box.health_socket, {"events": [refusal]}):
        ended = call("events", "nobody", *more)
    assert (ended.status, ended.err) == (4, 'no profile "nobody": appliance list --all\n')
    assert call("events", *more).status == 69


def test_an_answer_that_breaks_off_is_an_error(box: CliBox) -> None:
    """Without --follow the list is either complete or the status tells that it is not."""
    with FakeHealthAgent(box.health_socket, {"events": [LOSS, HangUp()]}):
        ended = call("events")
    assert ended.out.count("\n") == 1
    assert ended.status == 69
