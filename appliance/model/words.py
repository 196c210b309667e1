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


class ProbeOutcome(StrEnum):
    """Outcome of a probe; only valid ones count."""

    VALID = "valid"
    YIELDED = "yielded"
    """A real request arrived, and the probe was dropped for it."""
    BUSY = "busy"
    """The gateway admitted none: requests, a hold or an operation."""
    CACHED = "cached"
    """The prefix cache held part of the prompt."""
    UNMEASURED = "unmeasured"
    """The response has neither timings nor usage."""
    ENDED_EARLY = "ended-early"
    """Fewer tokens than were asked for."""
    TOO_LONG = "too-long"
    """The response did not end within its bounds of time and size."""
    FAILED = "failed"
    """The engine answered with an error, or not at all."""
    CLOCK = "clock"
    """The box was suspended, or its clock set, during the probe."""
    CROWDED = "crowded"
    """Other programs use the CPU that the engine computes on, and made its steps long."""
