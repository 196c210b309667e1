"""Spread of healthy sessions: how far from the baseline this box comes back after a restart."""

import math
from dataclasses import dataclass, field

from appliance.speed.regression import thresholds
from appliance.speed.regression.benign import bounded


@dataclass(slots=True, kw_only=True)
class SessionSpread:
    """Levels of past sessions about the baseline, and that of the current one.

    The spread is a property of the box: it is kept when a new level is accepted.
    """

    readings: int = 0
    level: float = 0.0
    """Mean of the current session's healthy readings, of the last day at most."""
    levels: list[float] = field(default_factory=list)
    """Levels of past sessions that lasted a day, the latest last."""

    def follow(self, deviation: float) -> None:
        """Add a healthy reading's deviation from the baseline."""
        self.readings = min(self.readings + 1, thresholds.SESSION_READINGS)
        self.level += (bounded(deviation, 0.06) - self.level) / self.readings

    def end(self, *, healthy: bool) -> None:
        """End the session; it counts if it was healthy and lasted a day."""
        if healthy and self.readings == thresholds.SESSION_READINGS:
            self.levels = [*self.levels, round(self.level, 5)][-thresholds.SESSIONS_KEPT :]
        self.readings, self.level = 0, 0.0

    @property
    def scale(self) -> float:
        """Factor by which the thresholds of a loss are widened; 1 to `SESSION_SCALE_MOST`."""
        squares = sum(level**2 for level in self.levels)
        prior = thresholds.SESSION_PRIOR * thresholds.SESSION_RMS**2
        rms = math.sqrt((prior + squares) / (thresholds.SESSION_PRIOR + len(self.levels)))
        ratio = rms / (thresholds.SESSION_RMS * thresholds.SESSION_MARGIN)
        return min(thresholds.SESSION_SCALE_MOST, max(1.0, ratio))
