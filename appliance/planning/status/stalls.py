"""Stalled engines: requests in flight, but no byte comes back and no CPU is used.

An engine whose worker is frozen or deadlocked still answers its health path, so that systemd and the
poller see nothing. Two figures together show it, and neither alone: a long prefill and a deep queue send
no byte for minutes but use a CPU; an idle engine uses none but owes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STALLED_AFTER_S: Final = 90.0
"""Seconds without a byte and without CPU after which an engine is stalled. Work shows in the CPU,
so this has to be longer only than an engine may sleep over a request that it works on, and than a
machine may stand still."""
IDLE_SHARE: Final = 0.05
"""Share of one CPU, between two looks, below which an engine is idle: an API process may use it
while its engine is frozen. An engine that computes keeps a CPU busy, also to feed a GPU and to wait
for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a profile that serves."""

    at_s: float
    """Time of the look on the monotonic clock."""
    cpu_s: float | None
    """CPU seconds that the profile's processes have used so far; None: not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Result of the looks at one profile so far."""

    last: Look
    active_s: float
    """Time when the profile was last seen using a CPU, or first seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Stall: an engine that makes no progress."""

    in_flight: int
    """Number of its requests in flight."""
    quiet_s: float
    """Seconds in which no byte has come and no CPU was used."""


def seen(before: Activity | None, look: Look) -> Activity:
    """Add a look; a count of CPU time that went back belongs to another start."""
    if before is None or before.last.cpu_s is None or look.cpu_s is None:
        return Activity(last=look, active_s=look.at_s)
    used_s = look.cpu_s - before.last.cpu_s
    is_idle = 0 <= used_s < IDLE_SHARE * (look.at_s - before.last.at_s)
    return Activity(last=look, active_s=before.active_s if is_idle else look.at_s)


def stall(activity: Activity, figures: Mapping[str, object]) -> Stall | None:
    """Return the stall that the gateway's figures of a profile and its activity show; None: none."""
    in_flight, quiet_s = figures.get("in_flight"), figures.get("quiet_s")
    if not isinstance(in_flight, int) or not isinstance(quiet_s, int | float) or in_flight <= 0:
        return None
    idle_s = min(float(quiet_s), activity.last.at_s - activity.active_s)
    return Stall(in_flight=in_flight, quiet_s=idle_s) if idle_s >= STALLED_AFTER_S else None


def stall_words(found: Stall) -> str:
    """Return the stall as text: ``3 requests in flight, no byte and no CPU for 95 s``."""
    requests = "1 request" if found.in_flight == 1 else f"{found.in_flight} requests"
    return f"no progress: {requests} in flight, no byte and no CPU for {found.quiet_s:.0f} s"
