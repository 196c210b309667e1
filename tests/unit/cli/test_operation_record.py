"""Record of operations on the command line, and the profile that ``switch -`` means."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.cli.verbs.operate import previous_set
from appliance.model.status import OperationsSection
from appliance.wire.typed_json import from_json
from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import profile_row, status_document


def row(
    number: int, kind: str, target: str, outcome: str = "done", **more: object
) -> dict[str, object]:
    return {
        "id": number,
        "kind": kind,
        "target": target.split(),
        "profiles": target.split(),
        "outcome": outcome,
        "failed": False,
        "message": f"{target} is serving on :8022",
        "requested_by": "ana (uid 1000, pid 4121)",
        "began_unix_s": 1.7e9,
        "finished_unix_s": 1.7e9 + 48,
        "age_s": 60.0,
        "ms": 48_000.0,
        "cause": None,
        "phases_ms": {"preflight": 2.0, "load": 40_000.0, "roll-back stop": 1500.0},
        **more,
    }


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("genesis", "gpu-all", port=8022))
    return box


FAILED = row(
    3,
    "switch",
    "aeon",
    "rolled-back",
    profiles=["aeon", "genesis"],
    message="aeon did not start: out of memory",
    requested_by="key laptop as appliance-gateway (uid 990, pid 812)",
)
ROWS = [FAILED, row(2, "restart", "mini"), row(1, "switch", "genesis")]


def told(*rows: Mapping[str, object]) -> dict[str, Story]:
    return {"operations": [{"event": "result", "exit": 0, "operations": list(rows)}]}


def test_who_did_what_when_and_how_it_ended(box: CliBox) -> None:
    """One line an operation; below it what went wrong, and the phases that took time."""
    with FakeSupervisor(box.socket, told(*ROWS)) as supervisor:
        ended = box.run("operations", "-n", "2")
    lines = ended.out.splitlines()
    assert lines[0].startswith("3  ")
    assert lines[0].endswith("  key laptop: switch to aeon: rolled-back in 48.0 s")
    assert lines[1:3] == [
        "    aeon did not start: out of memory",
        "    loading 40.0 s · back: stopping 1.5 s",
    ]
    assert lines[3].endswith("  ana: restart mini: done in 48.0 s")
    assert len(lines) == 5
    assert supervisor.requests[-1]["args"] == {"most": 2}


def test_the_operations_of_one_profile(box: CliBox) -> None:
    """Operations that stopped it count; of a profile that is gone the record is still there."""
    with FakeSupervisor(box.socket, told(*ROWS)):
        found = json.loads(box.run("operations", "genesis", "--json").out)
        assert [one["id"] for one in found["operations"]] == [3, 1]
        missing = box.run("operations", "nosuch")
    assert (missing.status, 'no profile "nosuch"' in missing.err) == (4, True)


def test_an_empty_record(box: CliBox) -> None:
    """Standard output is empty where no operation is on record."""
    with FakeSupervisor(box.socket, told()):
        ended = box.run("operations")
    assert (ended.status, ended.out, ended.err) == (0, "", "no operation is on record\n")


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([], ""),
        ([row(1, "switch", "a")], ""),
        ([row(2, "switch", "b"), row(1, "switch", "a")], "a"),
        ([row(2, "switch", "b", profiles=["a", "b"])], "a"),
        ([row(3, "switch", "a"), row(2, "switch", "b"), row(1, "switch", "a")], "b"),
        # Neither a switch that failed nor another operation moves the box.
        ([row(3, "switch", "c", "failed"), row(2, "switch", "b"), row(1, "switch", "a")], "a"),
        ([row(3, "stop", "c"), row(2, "switch", "b"), row(1, "switch", "a")], "a"),
        # Sets: what a switch stopped comes back together, and leads to the same place again.
        ([row(2, "switch", "c", profiles=["a", "b", "c"])], "a b"),
        ([row(2, "switch", "b"), row(1, "switch", "b", profiles=["a", "b", "c"])], "a c"),
        (
            [
                row(3, "switch", "b a", profiles=["a", "b", "c"]),
                row(2, "switch", "c", profiles=["a", "b", "c"]),
            ],
            "c",
        ),
        ([row(2, "switch", "a b"), row(1, "switch", "b a")], ""),
    ],
)
def test_the_profiles_before(rows: list[dict[str, object]], names: str) -> None:
    """Like ``cd -``: two switches back and forth lead to the same place."""
    record = from_json(OperationsSection, {"operations": rows})
    assert list(previous_set(record.operations)) == names.split()


def test_switching_back(box: CliBox) -> None:
    """The name comes from the record; without one the command says so and asks for nothing."""
    done: Story = [{"event": "result", "exit": 0, "message": "done"}]
    stories = {**told(row(2, "switch", "b"), row(1, "switch", "a")), "switch": done}
    with FakeSupervisor(box.socket, stories) as supervisor:
        assert box.run("switch", "-").status == 0
        (_asked, switched) = supervisor.requests
        assert switched["args"] == {
            "name": "a",
            "dry_run": False,
            "rollback": True,
            "drain_s": None,
            "names": [],
        }
    box.socket.unlink()
    both = told(row(2, "switch", "c", profiles=["a", "b", "c"]))
    with FakeSupervisor(box.socket, {**both, "switch": done}) as supervisor:
        assert box.run("switch", "-").status == 0
        args = supervisor.requests[1]["args"]
        assert isinstance(args, dict)
        assert (args["name"], args["names"]) == (None, ["a", "b"])
        assert box.run("switch", "-", "b").status == 2
    box.socket.unlink()
    with FakeSupervisor(box.socket, told()) as supervisor:
        ended = box.run("switch", "-")
        assert [request["verb"] for request in supervisor.requests] == ["operations"]
    assert ended.status == 4
    assert ended.err == "no switch from another profile is on record: appliance operations\n"


def test_an_answer_of_another_type_is_an_error_with_its_field(box: CliBox) -> None:
    """A daemon that is damaged, or of another release, ends the command without a traceback."""
    wrong = {"event": "result", "exit": 0, "operations": [{**row(1, "switch", "a"), "profiles": 5}]}
    with FakeSupervisor(box.socket, {"operations": [wrong]}):
        ended = box.run("switch", "-")
    assert ended.status == 69
    assert ended.err.startswith(
        "the supervisor's operations cannot be read: operations[0].profiles"
    )


def test_no_words_are_a_status(box: CliBox) -> None:
    """``appliance`` alone shows the box."""
    document = status_document(profile_row("genesis", "serving"))
    with FakeSupervisor(
        box.socket, {"status": [{"event": "result", "exit": 0, "status": document}]}
    ):
        assert box.run().out == box.run("status").out
