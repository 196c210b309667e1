"""Stalled engines: requests in flight, but no byte comes back and no CPU is used.

An engine whose worker is frozen or deadlocked still answers its health path, so that systemd and the
poller see nothing. Two figures together show it, and neither alone: a long prefill and a deep queue send
no byte for minutes but use a CPU; an idle engine uses none but owes nothing.

The status and the watchdog's rule (`alerts.engine_rules`) share the threshold; the rule knows
the GPUs besides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STALLED_AFTER_S: Final = 30.0
"""Seconds without a byte and without CPU after which an engine is stalled. Work shows in the CPU, so
this has to be longer only than an engine sleeps over a request that it works on: one launch on a GPU
lasts some seconds, a fetch of an image at most ten. And it has to be so short that a person is told
90 s after the freeze: up to 10 s pass until a look finds no CPU used, 10 s until the status tells it,
10 s until the watchdog looks, 10 s until its second look, 10 s for the grouping of alerts."""
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

    @property
    def idle_s(self) -> float | None:
        """Return the seconds in which no CPU was used; None: it is not counted."""
        return None if self.last.cpu_s is None else self.last.at_s - self.active_s


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
    if not isinstance(in_flight, int) or not isinstance(quiet_s, int | float):
        return None
    return stall_of(in_flight, float(quiet_s), activity.idle_s)


def stall_of(in_flight: int, quiet_s: float, idle_s: float | None) -> Stall | None:
    """Return the stall that these figures show; None: none, or they do not tell.

    Args:
        in_flight: Requests at the engine.
        quiet_s: Seconds in which it has owed bytes and sent none.
        idle_s: Seconds in which it has used no CPU; None: not counted.
    """
    stalled_s = min(quiet_s, idle_s or 0.0)
    if in_flight <= 0 or stalled_s < STALLED_AFTER_S:
        return None
    return Stall(in_flight=in_flight, quiet_s=stalled_s)


def requests_text(in_flight: int) -> str:
    return "1 request" if in_flight == 1 else f"{in_flight} requests"


def stall_words(found: Stall) -> str:
    """Return the stall as text: ``3 requests in flight, no byte and no CPU for 95 s``."""
    requests = requests_text(found.in_flight)
    return f"no progress: {requests} in flight, no byte and no CPU for {found.quiet_s:.0f} s"
