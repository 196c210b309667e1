"""`window`: planned windows are added, listed and removed."""

import json
from collections.abc import Mapping

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.wire.conversation import ErrorEvent, ResultEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.health_server import FakeHealthAgent

WINDOW = {"name": "backup", "days": [], "begin": "02:00", "minutes": 90, "subjects": []}


@pytest.fixture(autouse=True)
def box(here: CliBox) -> CliBox:
    """Return the box of each command, whether a test names it or not."""
    return here


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (
            "add backup --days Mon,tue --from 02:00 --for 90m --profiles a,nas --reason disks",
            {
                "action": "add",
                "name": "backup",
                "begin": "02:00",
                "minutes": 90,
                "days": ["mon", "tue"],
                "subjects": ["a", "nas"],
                "reason": "disks",
                "by": "",
            },
        ),
        (
            "add w --from 23:30 --for 1h",
            {
                "action": "add",
                "name": "w",
                "begin": "23:30",
                "minutes": 60,
                "days": [],
                "subjects": [],
                "reason": "",
                "by": "",
            },
        ),
        ("rm backup", {"action": "rm", "name": "backup", "by": ""}),
    ],
)
def test_a_change_is_sent(box: CliBox, words: str, args: Mapping[str, object]) -> None:
    """The agent's sentence is the output."""
    story = [ResultEvent(message="done so")]
    with FakeHealthAgent(box.health_socket, {"window": story}) as agent:
        ended = call("window", *words.split())
        document = json.loads(call("window", *words.split(), "--json").out)
    assert (ended.status, ended.out) == (0, "done so\n")
    assert agent.requests[0]["args"] == args
    assert document == {"message": "done so"}


def test_windows_are_listed(box: CliBox) -> None:
    """Each has its days, its hours and whom it is about; without one the command to add one is told."""
    with FakeHealthAgent(
        box.health_socket, {"window": [ResultEvent(details={"windows": [WINDOW]})]}
    ):
        assert call("window", "ls").out == "backup  every day  02:00 for 90 min  everything\n"
        assert json.loads(call("window", "ls", "--json").out) == {"windows": [WINDOW]}
    box.health_socket.unlink()
    with FakeHealthAgent(box.health_socket, {"window": [ResultEvent(details={"windows": []})]}):
        assert call("window", "ls").out.startswith("no window: appliance window add")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("add", "window add wants a NAME"),
        ("rm", "window rm wants a NAME"),
        ("ls backup", "window ls takes no NAME"),
        ("ls --reason x", "window ls takes no options"),
        ("rm backup --for 1h", "window rm takes no options"),
        ("add backup --from 02:00", "window add wants --from and --for"),
        ("add backup --for 1h", "window add wants --from and --for"),
    ],
)
def test_wrong_command_lines_of_windows(words: str, text: str) -> None:
    """An argument that is missing or too much is told before anybody is asked."""
    ended = call("window", *words.split())
    assert (ended.status, ended.err) == (2, f"{text}: appliance window --help\n")


def test_days_are_checked_by_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong day is told with the right form."""
    with pytest.raises(SystemExit):
        build_parser(["window"]).parse_args(["window", "add", "w", "--days", "monday"])
    assert '"monday" are no days; write mon,tue' in capsys.readouterr().err


def test_failures(box: CliBox) -> None:
    """A refusal, and an agent that does not run, end the command."""
    refusal = ErrorEvent("bad-request", "a window lasts between 1 minute and 12 hours")
    with FakeHealthAgent(box.health_socket, {"window": [refusal]}):
        ended = call("window", "add", "w", "--from", "02:00", "--for", "13h")
    assert (ended.status, ended.err) == (2, "a window lasts between 1 minute and 12 hours\n")
    box.health_socket.unlink()
    assert call("window", "ls").status == 69
