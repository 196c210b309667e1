"""Acceptance of the quality canaries, in short."""

import math

import pytest

from tests.bench.canaries import Delays, broken_delays, healthy_events


def test_healthy() -> None:
    """A fifth of a year with 2 % of broken answers and bad hours has no event."""
    events, requests = healthy_events("tools", 7, 0.02, 0.2)
    assert events == 0
    assert 6 * 24 * 73 < requests < 9 * 24 * 73


@pytest.mark.parametrize("profile", ["tools", "schema", "own"])
def test_broken(profile: str) -> None:
    """A share of 38 % is found within a day, held until the repair, and recovers."""
    delays = broken_delays(profile, 7, 0.38, 8)
    assert max(delays.found_h) <= 24
    assert delays.again == 0
    assert max(delays.recovered_h) <= 48


def test_figures() -> None:
    """Figures are of all episodes, with those that were not found."""
    delays = Delays(found_h=[2.0, 30.0, 3.0, math.inf], again=1, recovered_h=[1.0, 2.0, 3.0, 9.0])
    assert delays.figures() == {
        "found_24h_percent": 50.0,
        "delay_p50_h": 30.0,
        "delay_p99_h": math.inf,
        "held_percent": 75.0,
        "recovery_p95_h": 9.0,
    }
