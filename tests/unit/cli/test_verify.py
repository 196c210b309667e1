"""Comparison of engines with profiles on the command line."""

import json
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.profiles import applied


def fact(topic: str, state: str, **more: object) -> dict[str, object]:
    return {
        "topic": topic,
        "subject": "",
        "state": state,
        "declared": "4096",
        "key": "ctx",
        "reported": None if state == "unknown" else "2048",
        "source": None if state == "unknown" else "/props n_ctx",
        "fails": True,
        **more,
    }


ROW = {
    "at_unix_s": 1.0,
    "facts": [
        fact("ctx", "differs"),
        fact("speculative", "differs", fails=False),
        fact("parallel", "agrees"),
        fact("patch", "unknown", subject="P4"),
        fact("a-new-topic", "agrees"),
    ],
    "faults": ["/slots is not answered"],
}


def told(*, exit_: int, message: str, **details: object) -> dict[str, Story]:
    result = {"event": "result", "outcome": "verified", "exit": exit_, "message": message}
    return {"verify": [{**result, **details}]}


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("genesis", "gpu-all", port=8022))
    return box


def test_every_fact_has_a_line(box: CliBox) -> None:
    """Both values and the source stand in a table; what differs says so, and the status is that of the answer."""
    story = told(
        exit_=1,
        message="genesis runs otherwise than declared",
        profiles=[{"name": "genesis", "verification": ROW}],
    )
    with FakeSupervisor(box.socket, story) as supervisor:
        ended = box.run("verify", "genesis")
    assert supervisor.requests[-1]["args"] == {"name": "genesis"}
    assert ended.status == 1
    assert ended.out.splitlines()[0] == "genesis"
    assert "context per request" in ended.out
    assert "2048, differs" in ended.out
    assert "patch P4" in ended.out
    assert "not reported" in ended.out
    assert "a-new-topic" in ended.out
    assert "  /slots is not answered" in ended.out
    assert ended.err == "genesis runs otherwise than declared\n"


def test_the_document_is_the_answer(box: CliBox) -> None:
    """With --json the rows are printed as they came."""
    story = told(exit_=0, message="fine", profiles=[{"name": "genesis", "verification": ROW}])
    with FakeSupervisor(box.socket, story):
        ended = box.run("verify", "--json")
    assert ended.status == 0
    assert json.loads(ended.out) == {"profiles": [{"name": "genesis", "verification": ROW}]}


def test_a_profile_without_facts_says_so(box: CliBox) -> None:
    """Where a profile declares nothing there is no table."""
    empty = {"at_unix_s": 1.0, "facts": [], "faults": []}
    story = told(exit_=0, message="fine", profiles=[{"name": "genesis", "verification": empty}])
    with FakeSupervisor(box.socket, story):
        ended = box.run("verify")
    assert ended.out == "genesis\n  nothing to compare\nfine\n"


def test_nothing_that_serves_is_status_3(box: CliBox) -> None:
    """Where nothing serves there is a sentence alone."""
    with FakeSupervisor(box.socket, told(exit_=3, message="nothing serves")):
        ended = box.run("verify")
    assert (ended.status, ended.out, ended.err) == (3, "", "nothing serves\n")


def test_without_a_supervisor_nobody_compares(box: CliBox) -> None:
    """The command says that the supervisor is not running."""
    for words in (["genesis"], []):
        ended = box.run("verify", *words)
        assert ended.status == 69
        assert "supervisor" in ended.err
    assert box.run("verify", "genisis").status == 4
