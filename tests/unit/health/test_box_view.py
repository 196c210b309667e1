"""View of the box, from the supervisor's status document."""

from typing import Any

import pytest

from appliance.health.box_view import NOT_CONNECTED, view_of
from appliance.model.measurements import TrafficSums
from appliance.model.status import EndedOperationRow, OperationRow, StatusDocument
from appliance.wire.typed_json import JsonValueError
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import as_status

NOW_S = 1_760_000_000.0
CATALOGUE = {"a": applied("a")}


def document(**more: Any) -> StatusDocument:
    """A status document with what the health agent reads in it, and a little else."""
    rows = [
        {"name": "a", "state": "serving", "mark": "live", "since_unix_s": 5.0, "main_pid": 77},
        {"name": "b", "state": "loading", "mark": None, "since_unix_s": None, "main_pid": None},
    ]
    box = {"host": "box", "profiles": rows, "hold": None, "run": None, "operation": None}
    return as_status({**box, **more})


def test_a_document_says_who_serves() -> None:
    """A profile serves by its state; one that this process does not know has no applied form."""
    view = view_of(document(), CATALOGUE, NOW_S)
    assert (view.connected, view.running, view.hold) == (True, None, False)
    a, b = view.profiles["a"], view.profiles["b"]
    assert (a.serving, a.started_unix_s, a.main_pid, a.mark) == (True, 5.0, 77, "live")
    assert a.applied is CATALOGUE["a"]
    assert (b.serving, b.applied, b.held) == (False, None, False)


@pytest.mark.parametrize(
    ("more", "operation", "hold"),
    [
        ({"operation": {"kind": "switch"}}, True, False),
        ({"hold": {"until_unix_s": None, "kept": True}}, False, True),
        ({"run": {"state": "running"}}, False, True),
    ],
)
def test_a_document_says_what_goes_on(
    more: dict[str, Any],
    operation: bool,  # noqa: FBT001 - a column of the table
    hold: bool,  # noqa: FBT001
) -> None:
    """Operation and hold are of the box; a command in place of models counts as a hold."""
    view = view_of(document(**more), CATALOGUE, NOW_S)
    assert (view.running is not None, view.hold) == (operation, hold)
    assert {profile.held for profile in view.profiles.values()} == {hold}


def test_real_traffic_is_told_while_the_gateway_answers() -> None:
    """Sums since the gateway's start, with those that an older gateway does not keep as zero."""
    rows = [
        {
            "name": "a",
            "decoded_tokens": 90,
            "decode_s": 2,
            "prompt_tokens": 50,
            "cached_tokens": 40,
        },
        {"name": "b", "requests": 3},
    ]
    up = document(gateway={"state": "up", "profiles": rows})
    assert view_of(up, CATALOGUE, NOW_S).traffic == {
        "a": TrafficSums(
            unix_s=NOW_S, output_tokens=90, decode_s=2.0, prompt_tokens=50, cached_tokens=40
        ),
        "b": TrafficSums(unix_s=NOW_S),
    }
    down = document(gateway={"state": "down", "profiles": rows})
    assert view_of(down, CATALOGUE, NOW_S).traffic == {}


@pytest.mark.parametrize(
    "damaged",
    [None, [], {"profiles": [{"state": "serving"}]}, {"hold": True}, {"gateway": 7}],
)
def test_a_document_of_other_types_is_refused(damaged: Any) -> None:
    """A document that cannot be read is none, not half of one."""
    with pytest.raises(JsonValueError):
        as_status(damaged)


def test_a_view_without_a_supervisor_knows_nobody() -> None:
    """While the supervisor does not answer nothing is known to serve."""
    assert NOT_CONNECTED.profiles == {}
    assert not NOT_CONNECTED.connected


def test_a_document_says_what_is_committed_and_owed() -> None:
    """Committed names, need of memory, requests in flight and marks of watches are taken over."""
    rows = [
        {
            "name": "a",
            "state": "serving",
            "note": "slow",
            "memory": {"need": {"vram": {"bytes": 7}}},
        },
        {"name": "b", "state": "stopped"},
    ]
    gateway = {"state": "up", "profiles": [{"name": "a", "in_flight": 2, "quiet_s": 4.5}]}
    watches = [{"name": "nas", "mark": "retired"}]
    told = document(profiles=rows, committed=["a"], gateway=gateway, watches=watches)
    view = view_of(told, CATALOGUE, NOW_S, 77.0)
    assert (view.committed, view.read_s) == (frozenset({"a"}), 77.0)
    assert view.watch_marks == {"nas": "retired"}
    a, b = view.profiles["a"], view.profiles["b"]
    assert (a.state, a.note, a.needs_bytes, a.in_flight, a.quiet_s) == (
        "serving",
        "slow",
        7,
        2,
        4.5,
    )
    assert (b.state, b.note, b.needs_bytes, b.in_flight, b.quiet_s) == ("stopped", "", *[None] * 3)


def test_a_document_says_how_operations_go() -> None:
    """The operation that runs has its phase and deadline, the last one whether it failed."""
    running = {
        "id": 7,
        "kind": "switch",
        "target": ["a"],
        "profiles": ["a", "b"],
        "phase": "stop",
        "phase_s": 3.5,
        "deadline_s": 90,
        "text": "b: SIGTERM",
    }
    last = {
        "id": 6,
        "kind": "stop",
        "target": [],
        "outcome": "failed",
        "failed": True,
        "finished_unix_s": 5.0,
        "message": "no",
    }
    view = view_of(document(operation=running, last_operation=last), CATALOGUE, NOW_S)
    assert view.running == OperationRow(
        id=7,
        kind="switch",
        target=["a"],
        profiles=["a", "b"],
        phase="stop",
        phase_s=3.5,
        deadline_s=90.0,
        text="b: SIGTERM",
    )
    assert view.running.started == ["a"]
    assert view.ended == EndedOperationRow(
        id=6,
        kind="stop",
        outcome="failed",
        failed=True,
        finished_unix_s=5.0,
        message="no",
    )
    stopping = view_of(document(operation={**running, "kind": "stop"}), CATALOGUE, NOW_S)
    assert stopping.running is not None
    assert stopping.running.started == ()
