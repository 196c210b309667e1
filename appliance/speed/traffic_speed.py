"""Speed of real traffic, which may only cause an earlier probe and never reports a loss itself.

Real requests are slower than probes wherever several share the engine, or contexts are long. So
traffic is compared with the baseline, and with its own usual distance from it.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from appliance.model.measurements import TrafficCounts, TrafficSums
from appliance.speed.causes import is_cache_lost

_DECODED_TOKENS: Final = 500
_PROMPT_TOKENS: Final = 4000
"""Tokens of real requests that are compared as one: a few answers, and a long conversation or two."""
_TRIGGER: Final = 0.07
"""Log rate below the baseline, and below what is usual, from which a probe is wanted; a probe
begins to doubt at 5 %, and traffic varies more."""
_USUAL_GAIN: Final = 0.1
_CACHE_GAIN: Final = 0.05
_CACHE_NOW_GAIN: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSpeed(TrafficCounts):
    """Counts of real traffic that are not compared yet, and what is usual."""

    usual: float | None = None
    """Log rate of real traffic about the baseline; None: not known yet."""
    cached_usual: float | None = None
    """Share of prompt tokens that the prefix cache holds; None: not known yet."""
    cached_now: float | None = None
    """The same lately."""

    @property
    def cache_lost(self) -> bool:
        """Whether the prefix cache holds much less than it used to."""
        return is_cache_lost(self.cached_usual, self.cached_now)

    def after(self, sums: TrafficSums, baseline: float | None) -> "tuple[TrafficSpeed, bool]":
        """Return the traffic with further sums, and whether it asks for a probe.

        Args:
            sums: Sums of requests that ended since the last call.
            baseline: Tokens a second that a probe is expected to decode; None: not known, or a loss is
                known already.
        """
        traffic = _with_cache(self.plus(sums))
        if traffic.output_tokens < _DECODED_TOKENS or traffic.decode_s <= 0:
            return traffic, False
        rate = traffic.output_tokens / traffic.decode_s
        traffic = replace(traffic, output_tokens=0, decode_s=0.0)
        if baseline is None or baseline <= 0:
            return traffic, False
        level = math.log(rate / baseline)
        usual = min(0.0, level if traffic.usual is None else traffic.usual)
        followed = replace(traffic, usual=round(usual + _USUAL_GAIN * (level - usual), 5))
        is_slow = level < -_TRIGGER and traffic.usual is not None and level < usual - _TRIGGER
        return followed, is_slow


def _with_cache(traffic: TrafficSpeed) -> TrafficSpeed:
    """Return the traffic with the share that the cache held, once there are enough tokens."""
    if traffic.prompt_tokens < _PROMPT_TOKENS:
        return traffic
    share = min(1.0, traffic.cached_tokens / traffic.prompt_tokens)
    usual = share if traffic.cached_usual is None else traffic.cached_usual
    now = share if traffic.cached_now is None else traffic.cached_now
    return replace(
        traffic,
        prompt_tokens=0,
        cached_tokens=0,
        cached_usual=round(usual + _CACHE_GAIN * (share - usual), 5),
        cached_now=round(now + _CACHE_NOW_GAIN * (share - now), 5),
    )
