"""How a start that failed is told."""

import pytest

from appliance.domain.observed import ActiveState, ObservedUnit
from appliance.planning.endings import why_down


@pytest.mark.parametrize(
    ("result", "status", "refusal", "said"),
    [
        ("signal", 9, "", "the engine was killed by signal 9"),
        ("exit-code", 3, "held by ana", "the engine exited with status 3"),
        ("exit-code", 0, "held by ana", "held by ana"),
        ("signal", 0, "", "the gate ended without a word"),
        ("exit-code", 0, "", "the gate ended without a word"),
        ("success", 0, "", "it was stopped by hand"),
        ("watchdog", 0, "", "watchdog"),
    ],
)
def test_a_start_that_failed_says_what_ended_it(
    result: str, status: int, refusal: str, said: str
) -> None:
    """The engine is blamed only for what it did itself; the gate's word comes before systemd's."""
    unit = ObservedUnit(active=ActiveState.FAILED, result=result, exit_status=status)
    assert why_down(unit, refusal) == said
