"""Bars of states: what operations on record tell of a profile's last days."""

from typing import Any

import pytest

from appliance.model.status import ProfileRow, RecordedOperation
from appliance.web.page.charts import MOST_CHANGES, MOST_PARTS, state_bars
from appliance.wire.typed_json import from_json
from tests.fakes.supervisor_documents import as_status
from tests.pins import status_documents
from tests.pins.status_box import STATES

NOW = 1_800_000_000.0
HOUR_S = 3600.0
STATUS, _ = status_documents.observe(STATES["serving"])


def row(name: str, state: str, since_h: float | None = None) -> ProfileRow:
    """A profile that has been in a state for some hours."""
    [found] = [one for one in STATUS["profiles"] if one["name"] == name]
    since = None if since_h is None else NOW - since_h * HOUR_S
    return as_status({"profiles": [{**found, "state": state, "since_unix_s": since}]}).profiles[0]


def operation(kind: str, target: str, ended_h: float, **more: object) -> RecordedOperation:
    """An operation that took an hour and ended some hours ago."""
    ended = NOW - ended_h * HOUR_S
    found = {"kind": kind, "target": [target], "profiles": [target], "outcome": "done"}
    times = {"finished_unix_s": ended, "began_unix_s": ended - HOUR_S}
    return from_json(RecordedOperation, {**found, **times, **more})


def told(
    rows: list[Any], *operations: RecordedOperation, record: dict[str, object] | None = None
) -> list[list[tuple[str, int]]]:
    """Each bar as states and whole hours."""
    return [
        [(part.state, round(part.width * 1.68)) for part in bar.parts]
        for bar in state_bars(rows, operations, record, now=NOW)
    ]


def record(*changes: tuple[float, str], until_h: float = 0.0) -> dict[str, object]:
    """The record of aeon, in hours before now."""
    rows = [[NOW - hours * HOUR_S, state] for hours, state in changes]
    return {"profiles": {"aeon": rows}, "until_unix_s": NOW - until_h * HOUR_S}


def test_the_record_tells_what_operations_do_not() -> None:
    """Crashes, restarts and slowness have their time; before the record, operations tell."""
    found = record(
        (50, "serving"), (20, "restarting"), (19, "loading"), (17, "serving"), (5, "degraded")
    )
    assert told([row("aeon", "serving", 17)], operation("start", "aeon", 100), record=found) == [
        [
            ("unknown", 67),
            ("changing", 1),
            ("serving", 80),
            ("restarting", 1),
            ("loading", 2),
            ("serving", 12),
            ("degraded", 5),
        ]
    ]


def test_a_gap_in_the_record_is_not_known() -> None:
    """While the health agent is away nobody knows; words that are no state are unknown too."""
    found = record((100, "serving"), (60, "<script>"), (50, "serving"), until_h=10)
    assert told([row("aeon", "serving", 100)], record=found) == [
        [("unknown", 68), ("serving", 40), ("unknown", 10), ("serving", 40), ("unknown", 10)]
    ]


def test_a_bar_is_told_in_words() -> None:
    """Shares of each state, and the last changes, for readers without colour; heights differ too."""
    [bar] = state_bars([row("aeon", "failed")], (), record((84, "serving"), (1, "failed")), now=NOW)
    assert bar.summary == "serving 49 %, failed under 1 %, unknown 50 % of the last 7 days"
    assert [text.split()[0] for text in bar.changes] == ["failed", "serving", "unknown"]
    assert len({part.height for part in bar.parts if part.state != "unknown"}) == 2


@pytest.mark.parametrize(
    "odd", [{"aeon": 7}, {"aeon": [[1], "x", [None, "serving"], [float("nan"), "serving"]]}, {}]
)
def test_an_odd_record_is_none(odd: dict[str, object]) -> None:
    """Rows of another form are passed over."""
    assert told([row("aeon", "stopped")], record={"profiles": odd, "until_unix_s": "x"}) == []


def test_a_profile_that_never_ran_has_no_bar() -> None:
    """A bar that says stopped from end to end would say nothing."""
    assert told([row("aeon", "stopped")], record=record((50, "stopped"))) == []


def test_a_switch_raises_one_and_takes_down_another() -> None:
    """Both change while it runs; what lies before the first operation is not known."""
    switch = operation("switch", "genesis", 10, profiles=["aeon", "genesis"])
    rows = [row("aeon", "stopped"), row("genesis", "serving", 10)]
    assert told(rows, operation("start", "aeon", 100), switch) == [
        [("unknown", 67), ("changing", 1), ("serving", 89), ("changing", 1), ("stopped", 10)],
        [("unknown", 157), ("changing", 1), ("serving", 10)],
    ]


def test_what_is_not_so_now_is_not_known() -> None:
    """A profile that was raised and serves no more has crashed, or was stopped by hand."""
    assert told([row("aeon", "failed")], operation("start", "aeon", 5)) == [
        [("unknown", 162), ("changing", 1), ("unknown", 5)]
    ]
    restarted = told([row("aeon", "serving", 2)], operation("start", "aeon", 5))
    assert restarted == [[("unknown", 162), ("changing", 1), ("serving", 5)]]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("failed", "failed"), ("interrupted", "unknown"), ("superseded", "unknown")],
)
def test_an_operation_that_did_not_end_well(outcome: str, state: str) -> None:
    """One that failed leaves the profile failed; after one that was cut nothing is known."""
    operations = operation("start", "aeon", 20), operation("restart", "aeon", 5, outcome=outcome)
    assert told([row("aeon", "failed")], *operations)[0][-2:] == [("changing", 1), (state, 5)]


@pytest.mark.parametrize("outcome", ["rolled-back", "refused"])
def test_an_operation_that_changed_nothing_in_the_end(outcome: str) -> None:
    """The profile serves before and after it."""
    operations = (
        operation("start", "aeon", 20),
        operation("switch", "genesis", 5, profiles=["aeon", "genesis"], outcome=outcome),
    )
    assert {state for state, _ in told([row("aeon", "serving", 4)], *operations)[0][2:]} == {
        "serving"
    }


def test_bars_are_bounded() -> None:
    """Profiles of which nothing is on record have none; a thousand operations make a bounded number of parts."""
    assert told([row("aeon", "stopped")]) == []
    many = [operation("restart", "aeon", 1 + n / 100) for n in range(1000)]
    [bar] = state_bars([row("aeon", "serving", 1)], many, None, now=NOW)
    assert len(bar.parts) <= MOST_PARTS
    assert len(bar.changes) <= MOST_CHANGES
    assert bar.parts[-1].begin + bar.parts[-1].width == pytest.approx(100, abs=0.5)
    odd = [RecordedOperation(), RecordedOperation(finished_unix_s=1e300, target=["aeon"])]
    assert state_bars([row("aeon", "stopped")], odd, None, now=NOW) == ()
