"""Acceptance of the regression detector: its worlds, its judge and the adapter of ours."""

import math

from tests.bench.detector import ForRunner
from tests.bench.detector_acceptance import TARGETS, Losses, Record, drive, failed, judge
from tests.bench.detector_rivals import Cusum, ThreeInARow
from tests.bench.probe_world import DAY_MIN, Climate, Loss, ProbeWorld

LOSS = Loss(begin_min=2.5 * DAY_MIN, end_min=3.5 * DAY_MIN, drop=0.3, at_restart=True)
CALM = Climate(session_sd=0.0, cv=0.005, accept_days=None, restart_days=1000)


def test_world_is_the_same_for_its_name() -> None:
    """Two worlds of a name have the same probes, whatever is measured in between."""
    first, other = (ProbeWorld("same", 3, CALM) for _ in range(2))
    assert first.schedule == other.schedule
    assert first.schedule != ProbeWorld("another", 3, CALM).schedule


def test_loss_is_in_the_world_while_it_lasts() -> None:
    """Probes read the drop from its beginning to its end."""
    with_loss, without = (ProbeWorld("loss", 4, CALM, loss) for loss in (LOSS, None))
    assert with_loss.events == [(LOSS.begin_min, "restart"), (LOSS.end_min, "restart")]
    assert without.events == []


def test_detectors_find_a_large_loss() -> None:
    """Ours reports a loss of 30 % once, with its recovery; both rivals are on alert during it."""
    world = ProbeWorld("loss", 4, CALM, LOSS)
    told, _, _ = drive(ForRunner(), world)
    assert [word.alert for word in told] == [True, False]
    assert LOSS.begin_min < told[0].minute < LOSS.begin_min + 60
    assert LOSS.end_min < told[1].minute < LOSS.end_min + 60
    for rival in (ThreeInARow(), Cusum()):
        words, _, _ = drive(rival, world)
        assert [word.alert for word in words if word.minute < LOSS.end_min][-1:] == [True]


def test_judge_counts_episodes() -> None:
    """A record has every episode that was not already on alert, and records can be added."""
    record = judge(ForRunner, "unit", years=0, episodes=1, climate=CALM)
    assert [losses.episodes for losses in record.losses.values()] == [1, 1, 1, 1]
    record.add(
        Record(years=1, false=1, scheduled=100, losses=dict.fromkeys(record.losses, Losses()))
    )
    figures = record.figures()
    assert figures["alerts_per_year"] == 1
    assert [miss.split()[0] for miss in failed(figures)] == ["alerts_per_year"]


def test_missed_target_is_named() -> None:
    """A figure that is not a number, or on the wrong side of its limit, misses its target."""
    good = {name: limit for name, (_, limit) in TARGETS.items()}
    assert failed(good) == []
    assert failed({**good, "held_percent": 96.9}) == ["held_percent 96.9, not >= 97"]
    assert failed({**good, "recovery_p95_min": math.nan}) == ["recovery_p95_min nan, not <= 75"]
