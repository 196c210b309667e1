"""Verbs with several profiles: one command about a set, with the worst exit status of them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.wire.conversation import ResultEvent
from appliance.wire.health_socket import ProbedEvent
from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.health_server import FakeHealthAgent
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import profile_row, status_document

BOX = status_document(
    profile_row("genesis", "serving"), profile_row("aeon", "stopped"), profile_row("mini", "failed")
)


def result(**more: object) -> Story:
    return [{"event": "result", "exit": 0, "message": "done", **more}]


def asked(server: FakeSupervisor, field: str) -> list[object]:
    """Return a field of the arguments of every request."""
    found = []
    for request in server.requests:
        args = request["args"]
        assert isinstance(args, Mapping)
        found.append(args[field])
    return found


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("genesis", "gpu-0"), applied("aeon", "gpu-1", port=9001))
    return box


def test_a_status_of_several(box: CliBox) -> None:
    """Each is shown once, in the order of the command line; as JSON in a list."""
    with FakeSupervisor(box.socket, {"status": result(status=BOX)}):
        shown = box.run("status", "genesis", "aeon", "genesis")
        told = box.run("status", "aeon", "genesis", "--json")
        alone = box.run("status", "aeon", "--json")
        assert box.run("status", "genesis", "nobody").status == 4
    rows = [line.split()[1] for line in shown.out.splitlines() if line[:1] in "●○"]
    assert rows == ["genesis", "aeon"]
    assert shown.status == told.status == alone.status == 3
    assert [row["name"] for row in json.loads(told.out)] == ["aeon", "genesis"]
    assert json.loads(told.out)[0] == json.loads(alone.out)


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ("genesis", 0, "genesis is serving"),
        ("genesis aeon --timeout 1ms", 124, "aeon is stopped after"),
        ("genesis aeon mini", 1, "mini failed"),
        ("aeon mini --for idle", 0, "aeon is stopped; mini is stopped"),
    ],
)
def test_a_wait_for_several(box: CliBox, words: str, status: int, sentence: str) -> None:
    """The wait ends when the last of them is there, and at once when one never will be."""
    with FakeSupervisor(box.socket, {"status": result(status=BOX)}):
        ended = box.run("wait", *words.split())
    assert (ended.status, sentence in ended.out + ended.err) == (status, True)


def test_verify_and_mark_ask_for_each(box: CliBox) -> None:
    """The requests name one profile each, as every supervisor knows them."""
    stories = {"verify": result(exit=1, profiles=[]), "mark": result(outcome="done")}
    with FakeSupervisor(box.socket, stories) as supervisor:
        assert box.run("verify", "genesis", "aeon").status == 1
        assert box.run("mark", "genesis", "aeon", "standby").status == 0
    assert asked(supervisor, "name") == ["genesis", "aeon", "genesis", "aeon"]


def test_a_probe_of_several_is_valid_when_each_is(box: CliBox) -> None:
    """Profiles are measured one after the other."""
    turns = {"probe": [[ProbedEvent("x", end), ResultEvent()] for end in ("valid", "busy")]}
    with FakeHealthAgent(box.health_socket, {}, turns=turns) as agent:
        assert box.run("probe", "genesis", "aeon").status == 1
    assert asked(agent, "name") == ["genesis", "aeon"]
