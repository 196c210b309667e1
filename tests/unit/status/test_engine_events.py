"""Events of engines: a life of a box as documents, and the events that each adds."""

from collections.abc import Mapping, Sequence

import pytest

from appliance.model.measurements import MeasurementEvent
from appliance.model.status import StatusDocument
from appliance.status.engine_events import EngineHistory
from tests.fakes.supervisor_documents import as_status

SWITCH = {
    "id": 7,
    "kind": "switch",
    "target": ["b"],
    "profiles": ["a", "b"],
    "requested_by": "ana (uid 1000, pid 7)",
}
RESTART = {**SWITCH, "kind": "restart", "target": ["a"], "profiles": ["a"]}
REPAIR = {**RESTART, "kind": "repair", "requested_by": "supervisor"}
UP = ("serving", 10, "")
AGAIN = ("serving", 11, "")
STOPPING = ("stopping", 10, "")
STOPPED = ("stopped", None, "")
LOADING = ("loading", 11, "after a crash; restarted once so far")
KILLED = ("restarting", None, "was killed by signal 9")
GAVE_UP = ("failed", None, "failed too often")
Row = tuple[str, int | None, str]


def document(
    a: Row, *, running: Mapping[str, object] | None = None, ended: Mapping[str, object] | None
) -> StatusDocument:
    row = dict(zip(("state", "main_pid", "note"), a, strict=True))
    rows = [{"name": "a", **row}]
    return as_status({"profiles": rows, "operation": running, "last_operation": ended})


@pytest.mark.parametrize(
    ("rows", "operation", "expected"),
    [
        ((UP, UP), None, []),
        ((UP, KILLED), None, ["engine-ended its engine was killed by signal 9"]),
        (
            (UP, STOPPING, KILLED, LOADING, AGAIN),
            None,
            [
                "engine-ended its engine was killed by signal 9",
                "engine-serves serves again after its engine ended",
            ],
        ),
        ((UP, LOADING), None, ["engine-ended its engine ended by itself"]),
        (
            (UP, AGAIN),
            None,
            [
                "engine-ended its engine ended by itself",
                "engine-serves serves again after its engine ended",
            ],
        ),
        ((UP, GAVE_UP), None, ["engine-ended its engine failed too often"]),
        (
            (UP, KILLED, GAVE_UP, AGAIN),
            REPAIR,
            [
                "engine-ended its engine was killed by signal 9",
                "engine-serves serves again after its engine ended, for repair a by supervisor",
            ],
        ),
        ((UP, STOPPING, STOPPED), None, ["engine-stopped stopped by hand"]),
        ((UP, STOPPING, STOPPED), SWITCH, ["engine-stopped stopped for switch b by ana"]),
        (
            (UP, STOPPING, LOADING, AGAIN),
            RESTART,
            [
                "engine-stopped stopped for restart a by ana",
                "engine-serves serves, for restart a by ana",
            ],
        ),
        ((STOPPED, LOADING, AGAIN), None, ["engine-serves serves"]),
    ],
)
@pytest.mark.parametrize("is_over", [False, True])
def test_ends_and_restarts_are_events(
    rows: Sequence[Row],
    operation: Mapping[str, object] | None,
    expected: Sequence[str],
    *,
    is_over: bool,
) -> None:
    """Each end of an engine is told once with its cause, or with who asked, and each new process."""
    history = EngineHistory()
    first, *others, last = rows
    assert not history.take(document(first, ended=None), unix_s=1.0)
    found: list[MeasurementEvent] = []
    for row in others:
        found += history.take(document(row, running=operation, ended=None), unix_s=2.0)
    # An operation may be over before the document that shows what it did.
    running, ended = (None, operation) if is_over else (operation, None)
    found += history.take(document(last, running=running, ended=ended), unix_s=3.0)
    assert [f"{event.kind} {event.text}" for event in found] == expected
    assert {event.profile for event in found} <= {"a"}


def test_an_operation_of_before_asks_for_nothing_later() -> None:
    """A crash after a switch is no part of it."""
    history = EngineHistory()
    history.take(document(UP, ended=SWITCH), unix_s=1.0)
    (event,) = history.take(document(STOPPED, ended=SWITCH), unix_s=2.0)
    assert event.text == "stopped by hand"


def test_a_document_without_profiles_adds_nothing() -> None:
    """A supervisor that knows no profile is no error."""
    assert not EngineHistory().take(StatusDocument(), unix_s=1.0)
