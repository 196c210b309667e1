"""Speed of real traffic beside the baseline and what is usual."""

import pytest

from appliance.model.measurements import TrafficSums
from appliance.speed.traffic_speed import TrafficSpeed

BASELINE = 40.0


def run(
    traffic: TrafficSpeed, tok_s: float, *, times: int = 1, cached: float = 0.0
) -> tuple[TrafficSpeed, list[bool]]:
    asked = []
    for _ in range(times):
        sums = TrafficSums(
            unix_s=0.0,
            output_tokens=600,
            decode_s=600 / tok_s,
            prompt_tokens=5000,
            cached_tokens=int(5000 * cached),
        )
        traffic, is_slow = traffic.after(sums, BASELINE)
        asked.append(is_slow)
    return traffic, asked


def test_traffic_that_becomes_slow_asks_for_a_probe() -> None:
    """Traffic at its usual speed asks for none; a fifth less does, until that is usual."""
    traffic, asked = run(TrafficSpeed(), 38.0, times=20)
    assert not any(asked)
    traffic, asked = run(traffic, 30.0, times=40)
    assert asked[0]
    assert not asked[-1]


def test_traffic_that_is_always_slow_asks_for_none() -> None:
    """Requests that share the engine are slower than a probe at all times."""
    assert not any(run(TrafficSpeed(), 15.0, times=20)[1])


def test_few_tokens_are_summed() -> None:
    """Short answers count together."""
    traffic, _ = run(TrafficSpeed(), 40.0, times=3)
    short = TrafficSums(unix_s=0.0, output_tokens=100, decode_s=10.0)
    asked = []
    for _ in range(6):
        traffic, is_slow = traffic.after(short, BASELINE)
        asked.append(is_slow)
    assert asked == [False, False, False, False, True, False]


@pytest.mark.parametrize("baseline", [None, 0.0])
def test_without_a_baseline_nothing_is_asked(baseline: float | None) -> None:
    """Where no baseline is known, sums are dropped."""
    sums = TrafficSums(unix_s=0.0, output_tokens=9000, decode_s=9000.0)
    traffic, is_slow = TrafficSpeed().after(sums, baseline)
    assert (traffic.output_tokens, traffic.usual, is_slow) == (0, None, False)
    none_yet = TrafficSums(unix_s=0.0, output_tokens=9000)
    assert TrafficSpeed().after(none_yet, BASELINE)[0].output_tokens == 9000


def test_prefix_cache_that_stops_hitting_is_seen() -> None:
    """A cache that held 70 % of the prompts and now 2 % is lost; one that held little never was."""
    traffic, _ = run(TrafficSpeed(), 40.0, times=10, cached=0.7)
    assert not traffic.cache_lost
    traffic, _ = run(traffic, 40.0, times=4, cached=0.02)
    assert traffic.cache_lost
    assert not run(TrafficSpeed(), 40.0, times=10, cached=0.05)[0].cache_lost
