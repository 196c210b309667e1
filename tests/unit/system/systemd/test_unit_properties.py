"""Properties of failed units: whether systemd gave up, and whether somebody stopped the unit."""

from collections.abc import Mapping
from typing import Any

import pytest

from appliance.system.systemd.unit_properties import was_stopped

RAN = {
    "Restart": "always",
    "RestartUSec": 5_000_000,
    "InactiveExitTimestampMonotonic": 10_000_000,
    "ActiveExitTimestampMonotonic": 20_000_000,
    "ExecMainExitTimestampMonotonic": 25_000_000,
    "InactiveEnterTimestampMonotonic": 25_100_000,
}
"""Unit that was stopped after it served: the stop took 5 s."""
CRASHED = {**RAN, "Restart": "no", "ActiveExitTimestampMonotonic": 25_000_001}


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({**RAN, "Result": "timeout", "ExecMainStatus": 9}, True),
        ({**RAN, "Result": "exit-code", "ExecMainStatus": 1}, True),
        ({**RAN, "Result": "oom-kill", "ExecMainStatus": 9}, True),
        ({"Restart": "always", "Result": "signal"}, True),  # while its gate waited
        ({**RAN, "Result": "exit-code", "ExecMainStatus": 78}, False),
        ({**RAN, "Result": "exit-code", "ExecMainStatus": 79}, False),
        ({**RAN, "Result": "start-limit-hit"}, False),
        ({**RAN, "Result": "resources"}, False),
        ({**RAN, "Result": "signal", "InactiveEnterTimestampMonotonic": 31_000_000}, False),
        ({**CRASHED, "Result": "signal", "ExecMainStatus": 9}, False),
        ({**RAN, "Restart": "no", "Result": "timeout", "ExecMainStatus": 9}, True),
        ({"Restart": "no", "Result": "exit-code", "ExecMainStatus": 3}, False),
    ],
)
def test_a_unit_that_nothing_restarts_was_stopped(
    details: Mapping[str, Any],
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """A profile may ask for no restarts: then the order of times tells a stop from a crash."""
    assert was_stopped(details) is expected
