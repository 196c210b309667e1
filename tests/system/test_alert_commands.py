"""Commands about alerts on a booted box: marks of watches, silences, stops, windows, and the status."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.system.fleet import OPERATOR, STRANGER, Fleet
from tests.system.rig import Box, Image

SETTINGS = """
[[watch]]
name = "nas"
unit = "nas.service"
mark = "standby"
"""


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box on which a serves and is marked live, and a unit is watched that there is not."""
    with Box(image) as box:
        fleet = Fleet(box)
        fleet.people()
        fleet.profile("a", 9001)
        box.write("/etc/appliance/appliance.toml", SETTINGS)
        fleet.apply()
        box.run("systemctl restart appliance-supervisor appliance-health")
        fleet.switch("a")
        box.run("appliance mark a live")
        # The agent knows the mark within seconds, and looks at the box soon after its start.
        box.wait_for("appliance status --json | grep -q '\"delivery\"'", timeout_s=30)
        yield fleet


def alerts(fleet: Fleet) -> Mapping[str, Any]:
    """Return the document of `appliance alerts`, as an operator gets it."""
    done = fleet.box.run("appliance", "alerts", "--json", user=OPERATOR)
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def test_a_watch_is_marked_by_the_command_alone(fleet: Fleet) -> None:
    """The settings give the first mark; the one that was set is still there after a restart."""
    assert fleet.status()["watches"] == [{"name": "nas", "mark": "standby"}]
    fleet.box.run("appliance", "mark", "nas", "retired", user=OPERATOR)
    fleet.box.run("systemctl restart appliance-supervisor")
    assert fleet.status()["watches"] == [{"name": "nas", "mark": "retired"}]
    done = fleet.box.run("appliance", "mark", "nass", "live", user=OPERATOR, check=False)
    assert (done.returncode, 'Did you mean "nas"' in done.stderr) == (4, True)


def test_a_stop_is_silent_until_the_next_start(fleet: Fleet) -> None:
    """The command says so, the list has the silence, and a start ends it."""
    stopped = fleet.box.run("appliance", "stop", "a", user=OPERATOR)
    assert "nobody is told of a for 2 h, or until the next start" in stopped.stdout
    fleet.box.wait_for("appliance alerts | grep -q 'a is silent until'", timeout_s=20)
    fleet.box.run("appliance", "start", "a", user=OPERATOR)
    fleet.box.wait_for("! appliance alerts | grep -q 'a is silent'", timeout_s=20)


def test_silences_and_windows_outlive_the_agent(fleet: Fleet) -> None:
    """Both are on the disk when the command returns, with the user of the connection."""
    box = fleet.box
    box.run("appliance", "alerts", "silence", "nas", "--for", "1h", user=OPERATOR)
    window = ("backup", "--from", "02:00", "--for", "90m", "--profiles", "nas,a")
    box.run("appliance", "window", "add", *window, user=OPERATOR)
    box.run("systemctl kill -s KILL appliance-health")
    box.wait_for("appliance alerts | grep -q 'nas is silent until'", timeout_s=30)
    found = alerts(fleet)
    (silence,) = found["silences"]
    assert silence["by"] == OPERATOR
    assert "backup  every day  02:00 for 90 min  nas, a" in box.run("appliance window ls").stdout
    box.run("appliance", "alerts", "unsilence", "nas", user=OPERATOR)
    box.run("appliance", "window", "rm", "backup", user=OPERATOR)
    assert alerts(fleet)["silences"] == []


def test_the_state_is_a_document_for_people(fleet: Fleet) -> None:
    """The status nags while nobody is told, in both of its forms."""
    nag = "nobody is told of alerts: sudo appliance target add NAME · outbox empty"
    lines = fleet.box.run("appliance", "status", user=OPERATOR).stdout.splitlines()
    assert "alerts 0" in lines[0]
    assert lines[-1] == nag
    markdown = fleet.box.run("appliance", "status", "--markdown", user=OPERATOR).stdout
    row = next(line for line in markdown.splitlines() if line.startswith("| `a` |"))
    assert row.startswith("| `a` | serving |")
    assert " live (" in row
    assert markdown.splitlines()[-1] == f"- {nag}"
    done = fleet.box.run("appliance", "alerts", "test", user=OPERATOR, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "nobody would be told: sudo appliance target add NAME\n",
    )


def test_others_are_told_nothing(fleet: Fleet) -> None:
    """A user who is no operator reads no alert, and silences none."""
    for words in (("alerts",), ("alerts", "silence", "a"), ("window", "ls"), ("events",)):
        done = fleet.box.run("appliance", *words, user=STRANGER, check=False)
        assert (done.returncode, "permission denied" in done.stderr) == (77, True)
