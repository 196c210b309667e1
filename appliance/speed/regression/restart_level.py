"""Level of a session beside that of the session before: a restart that comes back a few per cent off.

One model decodes at 80.3, 83 or 85.8 tok/s on the same box, from start to start. Less than a
regression, and more than noise: it is told once, whether up or down.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from appliance.status.history import median

LEVEL_READINGS_AFTER: Final = 8
LEVEL_READINGS_BEFORE: Final = 12
_FEWEST_BEFORE: Final = 6
"""Readings whose medians are compared. With a noise of 1 % their difference is known to 0.6 %."""
LEAST_CHANGE: Final = 0.026
"""Change that is told: sessions differ by 0.9 % usually; those of the example lie 3.4 % apart."""
_NOISES: Final = 3.0
_OF_MEDIANS: Final = 1.25 * math.sqrt(1 / LEVEL_READINGS_AFTER + 1 / LEVEL_READINGS_BEFORE)
"""Deviation of the difference of two such medians, in deviations of a single reading."""
SETTLED_AFTER_MIN: Final = 60.0
"""Readings this soon after a start do not count: a cold card decodes 4 % faster for up to an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLevel:
    """Levels of the last sessions, as natural logarithms about the baseline."""

    began_min: float | None = None
    """Start of the current session; None: it is not known."""
    before: tuple[float, ...] = ()
    """Last readings of the session before."""
    now: tuple[float, ...] = ()
    """Last readings of this one."""
    compared: bool = True
    """Whether this session has been compared with the one before, or cannot be."""

    def restarted(self, unix_min: float) -> "RestartLevel":
        """Return the levels at a start; a session that was too short to compare with is left out."""
        before = self.now if len(self.now) >= _FEWEST_BEFORE else self.before
        return RestartLevel(
            began_min=unix_min, before=before, compared=len(before) < _FEWEST_BEFORE
        )

    def after(
        self, unix_min: float, level: float, noise: float
    ) -> "tuple[RestartLevel, float | None]":
        """Return the levels after a good reading, and the change that is to be told; None: none is.

        Args:
            unix_min: Its time.
            level: Its level.
            noise: Deviation of single readings.
        """
        if self.began_min is not None and 0 <= unix_min - self.began_min < SETTLED_AFTER_MIN:
            return self, None
        now = (*self.now, round(level, 5))[-LEVEL_READINGS_BEFORE:]
        if self.compared or len(now) < LEVEL_READINGS_AFTER:
            return replace(self, now=now), None
        change = median(now) - median(self.before)
        is_off = abs(change) >= max(LEAST_CHANGE, _NOISES * _OF_MEDIANS * noise)
        return replace(self, now=now, compared=True), math.expm1(change) if is_off else None
