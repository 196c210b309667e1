"""Engines that end by themselves in a way that systemd calls clean: crashes like all others."""

import pytest

from appliance.model.journal_events import JournalEvent
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.status.summary import crashes
from appliance.switch.outcomes import end_text, start_failure_text

STATUS_0 = ObservedUnit(active=ActiveState.ACTIVATING, sub="auto-restart")
SIGTERM = ObservedUnit(active=ActiveState.ACTIVATING, sub="auto-restart", exit_status=15)
BEFORE_READY = ObservedUnit(
    active=ActiveState.ACTIVATING, sub="auto-restart-queued", result="protocol"
)
STATUS_3 = ObservedUnit(
    active=ActiveState.ACTIVATING, sub="auto-restart", result="exit-code", exit_status=3
)
GATE = ObservedUnit(active=ActiveState.ACTIVATING, sub="auto-restart", result="exit-code")
STOPPED = ObservedUnit(since_unix_s=1.0)
STOPPED_BY_SIGTERM = ObservedUnit(since_unix_s=1.0, exit_status=15)
UP = ObservedUnit(active=ActiveState.ACTIVE, sub="running", main_pid=1)


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (STATUS_0, "ended by itself with status 0"),
        (SIGTERM, "ended by itself with signal 15"),
        (BEFORE_READY, "ended by itself with status 0"),
        (STATUS_3, None),
        (GATE, None),
        (STOPPED, None),
        (STOPPED_BY_SIGTERM, None),
        (UP, None),
    ],
)
def test_a_clean_end_that_nobody_asked_for_is_a_crash(
    unit: ObservedUnit, words: str | None
) -> None:
    """A unit that waits for its restart was not stopped: its end is told, and not as a stop."""
    assert unit.ended_cleanly is (words is not None)
    assert unit.engine_ended is (words is not None or unit is STATUS_3)
    if words is not None:
        assert end_text(unit) == words
        assert start_failure_text(unit, "an old refusal") == f"the engine {words}"


def test_a_crash_is_told_once() -> None:
    """The journal names how an engine ended, when it has; a gate that failed is no engine."""
    up = Observed(units={"aeon": UP, "genesis": UP, "mini": UP})
    down = Observed(units={"aeon": STATUS_0, "genesis": STOPPED, "mini": GATE})
    said = "aeon crashed (ended by itself with status 0): systemd starts it again"
    assert [(news.profile, news.event, news.sentence) for news in crashes(up, down)] == [
        ("aeon", JournalEvent.PROFILE_CRASHED, said)
    ]
    assert crashes(down, down) == ()
