"""Simple regression detectors that ours is compared with.

Both take the mean and deviation of the first 24 readings after an hour of soak as the baseline, and keep
it until the next accept. They recover by the mirror image of their alarm.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

SOAK_MIN = 60.0
BASELINE_READINGS = 24
Words = Sequence[tuple[str, float]]


class _Rival:
    """Baseline, and whether an alert stands."""

    wake: float | None = None

    def __init__(self) -> None:
        self.accept(0.0)

    def accept(self, t: float) -> None:
        self._accepted = t
        self._learning: list[float] = []
        self._alert = False
        self._begin()

    def restart(self, t: float) -> None:
        """Take no note: the baseline spans restarts."""

    def step(self, t: float, x: float | None) -> Words:
        if x is None or t - self._accepted < SOAK_MIN:
            return ()
        level = math.log(x)
        if len(self._learning) < BASELINE_READINGS:
            self._learning.append(level)
            return ()
        mean = statistics.median(self._learning)
        differences = [abs(b - a) for a, b in pairwise(self._learning)]
        noise = max(0.004, 1.05 * statistics.median(differences))
        if not self._turns(level - mean, noise):
            return ()
        self._alert = not self._alert
        self._begin()
        return [("ALERT" if self._alert else "RECOVERED", 1 - math.exp(level - mean))]

    def _begin(self) -> None:
        raise NotImplementedError

    def _turns(self, residual: float, noise: float) -> bool:
        """Tell whether the alert begins, or the standing one ends, with this reading."""
        raise NotImplementedError


class ThreeInARow(_Rival):
    """Three readings in a row below 93 % of the baseline."""

    def _begin(self) -> None:
        self._count = 0

    def _turns(self, residual: float, noise: float) -> bool:  # noqa: ARG002
        low = residual < math.log(0.93)
        self._count = self._count + 1 if low is not self._alert else 0
        return self._count == 3


class Cusum(_Rival):
    """Page's cumulative sum with a slack of half a deviation and a limit of five."""

    def _begin(self) -> None:
        self._sum = 0.0

    def _turns(self, residual: float, noise: float) -> bool:
        below = -residual / noise
        gain = below - 0.5 if not self._alert else 0.5 - below
        self._sum = max(0.0, self._sum + gain)
        return self._sum > 5
