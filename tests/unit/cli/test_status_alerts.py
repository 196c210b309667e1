"""Alerts in the verb `status`: on the screen, in its document, and as Markdown."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from appliance.model.speeds import SpeedReport
from appliance.wire.conversation import ResultEvent
from tests.fakes.alert_answers import alert_answer, alerts_answer, speeds_with_alerts
from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.health_server import FakeHealthAgent, report
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import answered_status, profile_row, status_document

NOW = time.time()
HERE = "`127.0.0.1:8022`"
AT = NOW - 5 * 3600 - 60


def supervisor(box: CliBox) -> FakeSupervisor:
    document = status_document(
        profile_row("genesis", "serving", mark="live", committed=True),
        profile_row("aeon", "failed", note="a | b\n<c>"),
        supervisor={"state": "up", "uptime_s": None},
        watches=[
            {"name": "nas", "mark": "live"},
            {"name": "old", "mark": "retired"},
            {"name": "ups", "mark": "standby"},
        ],
        verdict={"state": "degraded", "exit": 1, "why": ["aeon ended badly"]},
    )
    story: Story = [{"event": "result", "exit": 0, "status": document}]
    return FakeSupervisor(box.socket, {"status": story})


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("genesis", "gpu-all"), applied("aeon", "gpu-all"))
    return box


def agent(box: CliBox, **answer: object) -> FakeHealthAgent:
    """Return an agent with alerts on a profile and a watch."""
    alerts = [
        alert_answer(AT),
        alert_answer(AT, alert="A18", subject="watch:nas", fact="down: no route", sent_unix_s=None),
        alert_answer(AT, alert="A19", subject="profile:gone", fact="down"),
    ]
    found = alerts_answer(alerts, **answer)  # type: ignore[arg-type]
    speeds = speeds_with_alerts(found)
    one = {"genesis": {**_plain(report("genesis", NOW))}}
    return FakeHealthAgent(
        box.health_socket, {"speeds": [ResultEvent(details={**speeds.details, "profiles": one})]}
    )


def _plain(found: SpeedReport) -> Mapping[str, object]:
    document: Mapping[str, object] = msgspec.to_builtins(found)
    return document


async def test_alerts_stand_below_their_subject(box: CliBox) -> None:
    """Head, profile, then box and watches, and last whether anybody would be told."""
    with supervisor(box), agent(box, heartbeat_set=False):
        ended = await answered_status(box, key="alerts")
    assert (ended.status, ended.err) == (1, "")
    text = ended.out
    lines = [re.sub(r"\d\d:\d\d", "HH:MM", line) for line in text.splitlines()]
    assert lines[0] == "garage · supervisor 0.1.0 up · alerts 3"
    genesis = lines.index(
        "    alert   #A17 slow: 27.1 tok/s (was 41.0), since HH:MM (5 h), sent HH:MM"
    )
    assert lines[genesis - 1].startswith("    speed   41.2 tok/s")
    assert lines[-6:] == [
        "",
        "watched nas (people told) · ups (nobody told)",
        "alert   nas #A18 down: no route, since HH:MM (5 h), not sent",
        "alert   gone #A19 down, since HH:MM (5 h), sent HH:MM",
        "aeon ended badly",
        "nobody would notice if this box died: sudo appliance target heartbeat · outbox empty",
    ]


async def test_documents_have_alerts(box: CliBox) -> None:
    """The whole answer stands in the box's document, a profile's own alerts in its own."""
    with supervisor(box), agent(box):
        document = json.loads((await answered_status(box, "--json", key="alerts")).out)
        genesis = json.loads((await answered_status(box, "genesis", "--json", key="alerts")).out)
        screen = (await answered_status(box, "genesis", key="alerts")).out
    assert [alert["alert"] for alert in document["alerts"]["alerts"]] == ["A17", "A18", "A19"]
    assert document["alerts"]["delivery"]["heartbeat_s"] == 14.0
    assert [alert["alert"] for alert in genesis["alerts"]] == ["A17"]
    assert next(line for line in screen.splitlines() if "alert" in line).startswith(
        "    alert   #A17"
    )


def test_without_an_agent_nothing_is_said_of_alerts(box: CliBox) -> None:
    """The line on speeds tells that the agent does not answer; the document has null."""
    with supervisor(box):
        ended = box.run("status")
        document = json.loads(box.run("status", "--json").out)
        genesis = json.loads(box.run("status", "genesis", "--json").out)
        markdown = box.run("status", "--markdown").out
    assert "alert" not in ended.out
    assert (document["alerts"], genesis["alerts"]) == (None, None)
    assert markdown.endswith("## Alerts\n\nNot known: the health agent does not answer.\n")


async def test_markdown_is_a_document_with_its_time(box: CliBox) -> None:
    """Marks, states, speeds, watches and alerts as tables; the exit status is that of the screen."""
    silence = {
        "subject": {"kind": "watch", "name": "nas"},
        "until_unix_s": NOW + 60,
        "by": "ana",
        "reason": "new [disks](x)",
    }
    with supervisor(box), agent(box, silences=[silence]):
        ended = await answered_status(box, "--markdown", key="alerts")
    assert ended.status == 1
    lines = ended.out.splitlines()
    assert lines[0] == "# garage: degraded"
    assert re.match(r"As observed at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(", lines[2])
    assert "- serves after a boot: `genesis`" in lines
    assert "- aeon ended badly" in lines
    speed = "41.2 tok/s (baseline 41.0 ±1.2)"
    assert (
        f"| `genesis` | serving | yes | vllm | {HERE} | live (people told) | {speed} |  |" in lines
    )
    note = "a \\| b \\<c>"
    assert f"| `aeon` | failed |  | vllm | {HERE} | standby (nobody told) |  | {note} |" in lines
    assert "| `nas` | live (people told) |" in lines
    assert "| `old` | retired |" in lines
    assert any(line.startswith("| warning | nas #A18 down: no route, since") for line in lines)
    assert any(line.endswith("by ana: new \\[disks](x)") for line in lines)
    assert lines[-1] == "- heartbeat ok 14 s ago · outbox empty"


async def test_markdown_of_a_quiet_box(box: CliBox) -> None:
    """Tables without rows are a word."""
    quiet = speeds_with_alerts(alerts_answer())
    with supervisor(box), FakeHealthAgent(box.health_socket, {"speeds": [quiet]}):
        lines = (await answered_status(box, "--markdown", key="alerts")).out.splitlines()
    assert lines[lines.index("## Alerts") + 2] == "None."


def test_markdown_is_of_the_whole_box(box: CliBox) -> None:
    """With a name it is a wrong command line."""
    ended = box.run("status", "genesis", "--markdown")
    assert (ended.status, "whole box" in ended.err) == (2, True)
