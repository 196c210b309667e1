"""Speed in the verb `status`, beside what the supervisor says."""

import json
import time
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.health_server import FakeHealthAgent, report, speeds
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import (
    SPEED_NOT_KNOWN,
    answered_status,
    profile_row,
    status_document,
)

SPEED = "    speed   41.2 tok/s  baseline 41.0 ±1.2  ▇▇▇▇"


def supervisor(box: CliBox, state: str = "serving") -> FakeSupervisor:
    document = status_document(profile_row("genesis", state), profile_row("aeon"))
    story: Story = [{"event": "result", "exit": 0, "status": document}]
    return FakeSupervisor(box.socket, {"status": story})


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("genesis", "gpu-all"), applied("aeon", "gpu-all"))
    return box


async def test_speed_is_below_its_profile(box: CliBox) -> None:
    """Trouble of the agent is told at the end; exit status and stderr are as without it."""
    shown = report("genesis", time.time(), trouble="no timings")
    agent = {"speeds": [speeds(shown, trouble=["genesis: no timings", "disk full"])]}
    with supervisor(box), FakeHealthAgent(box.health_socket, agent):
        ended = await answered_status(box, key="speed")
        document = json.loads((await answered_status(box, "--json", key="speed")).out)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[3].startswith(SPEED)
    assert lines[4] == "    no timings"
    assert lines[-1] == "disk full"
    assert "genesis: no timings" not in lines
    assert document["speed"]["note"] is None
    assert document["speed"]["profiles"]["genesis"]["ttft_s"] == 0.41


async def test_one_profile_has_its_speed(box: CliBox) -> None:
    """`status NAME` has the same lines; its document has the report."""
    agent = {"speeds": [speeds(report("genesis", time.time()))]}
    with supervisor(box), FakeHealthAgent(box.health_socket, agent):
        lines = (await answered_status(box, "genesis", key="speed")).out.splitlines()
        document = json.loads((await answered_status(box, "genesis", "--json", key="speed")).out)
    assert lines[1].startswith(SPEED)
    assert document["speed"]["profile"] == "genesis"


def test_without_an_agent_one_line_says_so(box: CliBox) -> None:
    """The rest is the same; while nothing serves the line is left out."""
    with supervisor(box):
        ended = box.run("status")
        one = box.run("status", "genesis")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == SPEED_NOT_KNOWN
    assert one.out.splitlines()[-1] == SPEED_NOT_KNOWN
    box.socket.unlink()
    with supervisor(box, "stopped"):
        assert "speed" not in box.run("status").out


async def test_speed_is_told_without_the_supervisor(box: CliBox) -> None:
    """The agent answers on its own socket."""
    box.systemd_says(genesis="ActiveState=active SubState=running MainPID=42")
    agent = {"speeds": [speeds(report("genesis", time.time()))]}
    with FakeHealthAgent(box.health_socket, agent):
        ended = await answered_status(box, key="speed")
    assert SPEED in ended.out
