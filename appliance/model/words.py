"""Words of profiles and measurements that requests carry, apart from the types that cost time to import."""

from enum import StrEnum


class Mark(StrEnum):
    """Mark of a profile: who is told about it. The supervisor stores it; a profile gives the first value."""

    LIVE = "live"
    STANDBY = "standby"
    RETIRED = "retired"


class Series(StrEnum):
    """Rates that have a baseline, both at concurrency 1."""

    DECODE = "decode"
    """Decode steps a second: tokens a second over tokens a step."""
    PREFILL = "prefill"
    """Prompt tokens a second that the prefix cache did not hold."""
