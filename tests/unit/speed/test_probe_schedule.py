"""Schedule of the probes of one profile."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from appliance.model.measurements import (
    EventKind,
    ProbeKind,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_schedule import (
    DueProbe,
    ProbeConditions,
    ProbeSchedule,
    after_probe,
    after_silence,
    after_start,
    next_probe,
    prompts,
)

SERVING = ProbeConditions(serving=True)
VALID = (ProbeOutcome.VALID, ProbeOutcome.VALID)
HOUR_S = 3600.0
WARM = ProbeSchedule(name="alpha", started_s=1000.0, warm_ups=2, budget_at_s=1000.0)


def due(
    schedule: ProbeSchedule,
    *,
    wake_s: float | None = None,
    triggered_s: float | None = None,
    series: Series | None = None,
) -> DueProbe:
    found = next_probe(
        schedule, SERVING, wake_s=wake_s, wake_series=series, triggered_s=triggered_s
    )
    assert found is not None
    return found


def probed(
    schedule: ProbeSchedule, *outcomes: ProbeOutcome, at_s: float, takes_s: float = 4.0
) -> ProbeSchedule:
    kind = due(schedule).kind
    return after_probe(schedule, kind, outcomes or VALID, began_s=at_s, now_s=at_s + takes_s)


@pytest.mark.parametrize(
    "conditions",
    [
        ProbeConditions(serving=False),
        ProbeConditions(serving=True, operation=True),
        ProbeConditions(serving=True, held=True),
        ProbeConditions(serving=True, bench=True),
    ],
)
def test_no_probe_is_due_while_the_box_is_busy_otherwise(conditions: ProbeConditions) -> None:
    """An operation, a hold and a bench keep even a confirming probe away."""
    assert next_probe(WARM, conditions, wake_s=0.0) is None


def test_two_warm_ups_follow_a_start() -> None:
    """The first two probes after a start are discarded, then one is due at once."""
    schedule = ProbeSchedule(name="alpha", started_s=1000.0)
    for at_s in (1000.0, 1010.0):
        assert due(schedule, wake_s=5.0).kind is ProbeKind.WARM_UP
        assert due(schedule).at_s == 1000.0
        assert prompts(schedule, due(schedule), long_prompt="prefill") == ("lru-cache",)
        schedule = probed(schedule, at_s=at_s)
    assert due(schedule) == DueProbe(at_s=1000.0, kind=ProbeKind.SCHEDULED)
    assert (schedule.rotation, schedule.last_s, schedule.valid_s) == (0, None, None)


def test_a_failed_warm_up_is_none_less() -> None:
    """An engine that fails its warm-ups is probed nevertheless; a busy one is warmed up later."""
    schedule = ProbeSchedule(name="alpha", started_s=1000.0)
    assert probed(schedule, ProbeOutcome.FAILED, at_s=1000.0).warm_ups == 1
    busy = probed(schedule, ProbeOutcome.BUSY, at_s=1000.0)
    assert (busy.warm_ups, due(busy).at_s) == (0, 1034.0)


def test_a_probe_is_due_once_in_each_interval() -> None:
    """Each profile has its own moment in the interval, whenever its last probe was."""
    phases = set()
    for name in ("alpha", "beta", "gamma"):
        schedule, times = replace(WARM, name=name, last_s=5000.0), []
        for _ in range(4):
            times.append(due(schedule).at_s)
            schedule = probed(schedule, at_s=times[-1] + 7)
        assert times == pytest.approx([times[0] + 900.0 * n for n in range(4)])
        assert 5000.0 < times[0] <= 5900.0
        phases.add(times[0] % 900.0)
    assert len(phases) == 3


def test_the_detector_wakes_the_prober() -> None:
    """A confirming probe goes before a scheduled one, for the series that wants it."""
    schedule = replace(WARM, last_s=5000.0)
    slot_s = due(schedule).at_s
    found = due(schedule, wake_s=5100.0, series=Series.DECODE)
    assert found == DueProbe(at_s=5100.0, kind=ProbeKind.CONFIRMING, series=Series.DECODE)
    assert due(schedule, wake_s=slot_s + 1).kind is ProbeKind.SCHEDULED


def test_slow_traffic_triggers_a_probe_at_most_three_times_in_an_interval() -> None:
    """Passive rates that stay slow do not keep the prober at work."""
    assert due(WARM, triggered_s=900.0) == DueProbe(at_s=1000.0, kind=ProbeKind.SCHEDULED)
    schedule = replace(WARM, last_s=5240.0)
    for triggered_s, at_s in ((5010.0, 5540.0), (5600.0, 5600.0)):
        found = due(schedule, triggered_s=triggered_s)
        assert found == DueProbe(at_s=at_s, kind=ProbeKind.TRIGGERED)


@pytest.mark.parametrize(
    ("kind", "series", "rotation", "names"),
    [
        (ProbeKind.SCHEDULED, None, 0, ("lru-cache", "prefill-512")),
        (ProbeKind.ON_DEMAND, None, 1, ("prefill-512", "merge-sort")),
        (ProbeKind.TRIGGERED, None, 7, ("prefill-512", "cron-parser")),
        (ProbeKind.CONFIRMING, Series.DECODE, 4, ("rate-limiter",)),
        (ProbeKind.CONFIRMING, Series.PREFILL, 4, ("prefill-512",)),
    ],
)
def test_a_probe_asks_in_turn(
    kind: ProbeKind, series: Series | None, rotation: int, names: tuple[str, ...]
) -> None:
    """Tasks rotate, and either series is first in every other probe."""
    probe = DueProbe(at_s=0.0, kind=kind, series=series)
    assert prompts(replace(WARM, rotation=rotation), probe, long_prompt="prefill-512") == names


@pytest.mark.parametrize(
    "outcome",
    [ProbeOutcome.YIELDED, ProbeOutcome.BUSY, ProbeOutcome.CLOCK, ProbeOutcome.CROWDED],
)
def test_a_yielded_probe_is_repeated_ever_later(outcome: ProbeOutcome) -> None:
    """The same task is asked again after 30 s, then after twice the pause, up to the interval."""
    schedule, pauses, at_s = replace(WARM, last_s=5000.0), [], 6000.0
    for _ in range(14):
        schedule = probed(schedule, outcome, at_s=at_s, takes_s=0.0)
        pauses.append(due(schedule).at_s - at_s)
        at_s += pauses[-1]
    assert pauses[:7] == [30, 60, 120, 240, 480, 900, 900]
    assert pauses[-1] == 900
    assert (schedule.rotation, schedule.last_s) == (0, 5000.0)
    schedule = probed(schedule, at_s=at_s)
    assert (schedule.rotation, schedule.failed) == (1, 0)
    assert due(schedule, wake_s=0.0).at_s == 0.0


def test_a_failed_probe_is_not_repeated() -> None:
    """After a failure the next interval comes, and the detector's wish waits for a pause."""
    failed = probed(replace(WARM, last_s=5000.0), ProbeOutcome.FAILED, at_s=6000.0)
    assert failed.rotation == 1
    assert due(failed).kind is ProbeKind.SCHEDULED
    assert due(failed, wake_s=6001.0) == DueProbe(at_s=6034.0, kind=ProbeKind.CONFIRMING)


def test_one_valid_request_makes_a_probe_valid() -> None:
    """A probe that yielded after its first request is not repeated."""
    outcomes = (ProbeOutcome.VALID, ProbeOutcome.YIELDED)
    schedule = probed(WARM, *outcomes, at_s=6000.0)
    assert (schedule.rotation, schedule.last_s, schedule.valid_s) == (1, 6004.0, 6004.0)


def test_an_overdrawn_budget_delays_probes() -> None:
    """A probe that took 226 s, 10 more than the reserve, is followed by none for 2000 s."""
    schedule = probed(WARM, at_s=6000.0, takes_s=226.0)
    assert due(schedule, wake_s=6300.0).at_s == pytest.approx(6226.0 + 10.0 / 0.005)


def _day_of_confirming(takes_s: float) -> Iterator[tuple[float, float]]:
    """Begin and end of each probe of ten days in which the detector always wants one."""
    schedule = WARM
    while (at_s := due(schedule, wake_s=schedule.budget_at_s).at_s) < 10 * 24 * HOUR_S:
        schedule = probed(schedule, at_s=at_s, takes_s=takes_s)
        yield at_s, takes_s


@pytest.mark.parametrize("takes_s", [0.9, 4.5, 40.0])
def test_probing_takes_less_than_half_a_per_cent(takes_s: float) -> None:
    """However many probes are wanted, and however slow the model is, the reserve is all beyond it."""
    spent_s = sum(takes for _, takes in _day_of_confirming(takes_s))
    assert 0.004 * 10 * 24 * HOUR_S < spent_s < 0.005 * 10 * 24 * HOUR_S + 216.0 + takes_s


def test_a_long_silence_is_told_once() -> None:
    """Six hours of serving without a valid probe are an event, and so is its end."""
    begun_s = WARM.started_s
    schedule, event = after_silence(WARM, begun_s + 6 * HOUR_S - 1)
    assert (schedule, event) == (WARM, None)
    schedule, event = after_silence(schedule, begun_s + 6 * HOUR_S)
    assert event is EventKind.NO_VALID_PROBE
    schedule, event = after_silence(schedule, begun_s + 20 * HOUR_S)
    assert event is None
    schedule = probed(schedule, at_s=begun_s + 21 * HOUR_S)
    schedule, event = after_silence(schedule, begun_s + 21 * HOUR_S + 9)
    assert event is EventKind.VALID_PROBE_AGAIN
    assert after_silence(schedule, begun_s + 22 * HOUR_S) == (schedule, None)


def test_silence_goes_on_after_a_restart() -> None:
    """Serving time without a valid probe adds up over starts; time without serving does not."""
    schedule = after_start(
        replace(WARM, valid_s=1000.0 + HOUR_S, failed=3, not_before_s=9e9, last_s=5.0),
        stopped_s=1000.0 + 5 * HOUR_S,
        started_s=1000.0 + 50 * HOUR_S,
    )
    assert (schedule.warm_ups, due(schedule).at_s) == (0, schedule.started_s)
    assert after_silence(schedule, schedule.started_s + 1.9 * HOUR_S)[1] is None
    assert after_silence(schedule, schedule.started_s + 2 * HOUR_S)[1] is EventKind.NO_VALID_PROBE


def test_a_crowded_box_is_no_silence() -> None:
    """Silence counts from the last probe that others kept away; one that was told lasts until a valid probe."""
    crowded = probed(WARM, ProbeOutcome.CROWDED, at_s=1000.0 + 5 * HOUR_S, takes_s=0.0)
    assert after_silence(crowded, 1000.0 + 10.9 * HOUR_S)[1] is None
    silent, event = after_silence(crowded, 1000.0 + 11 * HOUR_S)
    assert event is EventKind.NO_VALID_PROBE
    still = probed(silent, ProbeOutcome.CROWDED, at_s=1000.0 + 12 * HOUR_S)
    assert after_silence(still, 1000.0 + 12.1 * HOUR_S)[1] is None
    busy = probed(WARM, ProbeOutcome.BUSY, at_s=1000.0 + 5 * HOUR_S)
    assert after_silence(busy, 1000.0 + 6 * HOUR_S)[1] is EventKind.NO_VALID_PROBE
