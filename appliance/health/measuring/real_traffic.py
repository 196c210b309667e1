"""Real traffic between two views of the box, from the gateway's counters since its start."""

from collections.abc import Mapping
from dataclasses import replace

from appliance.model.measurements import TrafficSums


class RealTraffic:
    """Differences of the gateway's counters.

    The first counters give none: their traffic may be of days. Counters that have fallen are of a
    gateway that has started since, and count from zero.
    """

    def __init__(self) -> None:
        self._last: dict[str, TrafficSums] | None = None

    def news(self, counters: Mapping[str, TrafficSums]) -> Mapping[str, TrafficSums]:
        """Return the traffic since the last call, of profiles that had any.

        Args:
            counters: Counters by profile; empty: the gateway did not answer, and a later call tells
                of this traffic too.
        """
        if not counters:
            return {}
        last, self._last = self._last, {**(self._last or {}), **counters}
        if last is None:
            return {}
        grown = {name: _grown(last.get(name), now) for name, now in counters.items()}
        return {name: sums for name, sums in grown.items() if _has_any(sums)}


def _grown(before: TrafficSums | None, now: TrafficSums) -> TrafficSums:
    if before is None or not _is_later(before, now):
        return now
    return replace(
        now,
        output_tokens=now.output_tokens - before.output_tokens,
        decode_s=now.decode_s - before.decode_s,
        prompt_tokens=now.prompt_tokens - before.prompt_tokens,
        cached_tokens=now.cached_tokens - before.cached_tokens,
    )


def _is_later(before: TrafficSums, now: TrafficSums) -> bool:
    """Tell whether no counter has fallen."""
    return (
        now.output_tokens >= before.output_tokens
        and now.decode_s >= before.decode_s
        and now.prompt_tokens >= before.prompt_tokens
        and now.cached_tokens >= before.cached_tokens
    )


def _has_any(sums: TrafficSums) -> bool:
    return sums.output_tokens > 0 or sums.prompt_tokens > 0
