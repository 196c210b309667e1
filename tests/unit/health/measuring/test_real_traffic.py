"""Real traffic between two views of the box."""

from appliance.health.agent import RealTraffic
from appliance.model.measurements import TrafficSums


def sums(
    output_tokens: int, decode_s: float = 0.0, prompt_tokens: int = 0, cached_tokens: int = 0
) -> TrafficSums:
    return TrafficSums(
        unix_s=100.0,
        output_tokens=output_tokens,
        decode_s=decode_s,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
    )


def test_traffic_is_what_counters_grow_by() -> None:
    """The first counters are of the past; later ones tell of profiles that had traffic."""
    traffic = RealTraffic()
    assert traffic.news({"a": sums(1000, 10.0), "b": sums(5)}) == {}
    assert traffic.news({"a": sums(1400, 20.0, 50, 40), "b": sums(5)}) == {
        "a": sums(400, 10.0, 50, 40)
    }
    assert traffic.news({"a": sums(1400, 20.0, 50, 40), "b": sums(5)}) == {}


def test_traffic_of_prompts_alone_counts() -> None:
    """A request whose answer was not counted still tells of the prefix cache."""
    traffic = RealTraffic()
    traffic.news({"a": sums(0)})
    assert traffic.news({"a": sums(0, prompt_tokens=9)}) == {"a": sums(0, prompt_tokens=9)}


def test_counters_that_fall_are_of_a_gateway_that_has_started_since() -> None:
    """Counters of a gateway that has started anew count from zero, all of them together."""
    traffic = RealTraffic()
    traffic.news({"a": sums(1000, 10.0, 90, 9)})
    assert traffic.news({"a": sums(1100, 4.0, 95, 10)}) == {"a": sums(1100, 4.0, 95, 10)}


def test_a_gateway_that_does_not_answer_loses_nothing() -> None:
    """Traffic in a time without counters is told afterwards, and none is told twice."""
    traffic = RealTraffic()
    traffic.news({"a": sums(1000)})
    assert traffic.news({}) == {}
    assert traffic.news({"a": sums(1200)}) == {"a": sums(200)}


def test_a_profile_that_comes_later_counts_from_zero() -> None:
    """A profile without counters at first had no traffic until then."""
    traffic = RealTraffic()
    traffic.news({"a": sums(7)})
    assert traffic.news({"b": sums(3)}) == {"b": sums(3)}
    assert traffic.news({"a": sums(8), "b": sums(3)}) == {"a": sums(1)}
