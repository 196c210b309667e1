"""Record of states: what an observation adds."""

from collections.abc import Mapping

import pytest

from appliance.status.state_record import GAP_S, state_changes

LAST = {"aeon": "serving", "mini": "stopped", "old": "unknown"}


@pytest.mark.parametrize(
    ("seen", "after_s", "added"),
    [
        ({"aeon": "serving", "mini": "stopped"}, 20.0, []),
        ({"aeon": "degraded", "mini": "stopped"}, 20.0, [(120.0, "aeon", "degraded")]),
        ({"aeon": "serving"}, 20.0, [(120.0, "mini", "unknown")]),
        (
            {"aeon": "serving", "mini": "loading", "new": "stopped"},
            20.0,
            [(120.0, "mini", "loading"), (120.0, "new", "stopped")],
        ),
        (
            {"aeon": "serving", "mini": "failed"},
            GAP_S + 1,
            [
                (100.0, "aeon", "unknown"),
                (100.0, "mini", "unknown"),
                (101.0 + GAP_S, "aeon", "serving"),
                (101.0 + GAP_S, "mini", "failed"),
            ],
        ),
        ({"aeon": "serving", "mini": "stopped"}, -5000.0, []),
    ],
    ids=["the same", "another", "gone", "new", "after a gap", "clock set back"],
)
def test_what_is_added(
    seen: Mapping[str, str], after_s: float, added: list[tuple[float, str, str]]
) -> None:
    """Changes alone are added, and a gap is told as one."""
    found = state_changes(LAST, seen, until=100.0, now=100.0 + after_s)
    assert [(one.unix_s, one.profile, one.state) for one in found] == added


def test_the_first_observation_is_the_beginning() -> None:
    """Before it there is nothing."""
    found = state_changes({}, {"aeon": "serving"}, until=None, now=5.0)
    assert [(one.unix_s, one.state) for one in found] == [(5.0, "serving")]
