"""Spread of sessions: which of them count, and the scale of the thresholds."""

import pytest

from appliance.speed.regression import thresholds
from appliance.speed.regression.sessions import SessionSpread


def session(
    spread: SessionSpread, level: float, *, readings: int = 200, healthy: bool = True
) -> None:
    for _ in range(readings):
        spread.follow(level)
    spread.end(healthy=healthy)


def test_scale_begins_at_one() -> None:
    """Without sessions, and with those of an ordinary box, thresholds are as they are."""
    spread = SessionSpread()
    assert spread.scale == 1.0
    for level in (0.005, -0.008, 0.001, -0.004):
        session(spread, level)
    assert spread.scale == 1.0


def test_wider_sessions_widen_the_thresholds() -> None:
    """Sessions that differ by 2 % widen the thresholds, at most twice."""
    spread = SessionSpread()
    for level in (0.02, -0.02) * 6:
        session(spread, level)
    assert spread.scale == pytest.approx(1.66, abs=0.02)
    for level in (0.06, -0.09) * 10:
        session(spread, level)
    assert spread.scale == thresholds.SESSION_SCALE_MOST
    assert len(spread.levels) == thresholds.SESSIONS_KEPT


@pytest.mark.parametrize(("readings", "healthy"), [(95, True), (200, False), (0, True)])
def test_short_or_bad_session_does_not_count(readings: int, *, healthy: bool) -> None:
    """A session of less than a day, or one that ended with a loss, does not count."""
    spread = SessionSpread()
    session(spread, 0.05, readings=readings, healthy=healthy)
    assert spread.levels == []
    assert spread.readings == 0
