"""Comparison of status documents: what counts as news in a watch."""

import copy
from typing import Any

import pytest

from appliance.status.document_changes import without_ages
from tests.fakes.live_views import measured
from tests.fakes.supervisor_documents import as_status


def later(document: dict[str, Any]) -> dict[str, Any]:
    """Return the same box some seconds later."""
    found = copy.deepcopy(document)
    found["supervisor"]["uptime_s"] += 9.0
    found["profiles"][0]["uptime_s"] += 9.0
    found["memory"]["ram_available_bytes"] -= 8192
    found["memory"]["sampled_age_s"] = 9.0
    found["alerts"]["delivery"]["heartbeat_s"] += 9.0
    return found


def test_time_alone_is_no_change() -> None:
    """Ages, uptimes and free memory of the host differ between any two documents."""
    assert without_ages(as_status(later(measured()))) == without_ages(as_status(measured()))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("verdict", "state", "degraded"),
        ("gateway", "state", "down"),
        ("supervisor", "state", "down"),
        ("alerts", "left_off", 1),
    ],
)
def test_anything_else_is_one(section: str, key: str, value: object) -> None:
    """States, figures of requests and alerts are what a watch is for."""
    changed = later(measured())
    changed[section] = {**changed[section], key: value}
    assert without_ages(as_status(changed)) != without_ages(as_status(measured()))


def test_a_request_in_flight_is_one() -> None:
    """A figure deep in a list counts too."""
    changed = later(measured())
    changed["gateway"]["profiles"] = [{**changed["gateway"]["profiles"][0], "in_flight": 7}]
    assert without_ages(as_status(changed)) != without_ages(as_status(measured()))
