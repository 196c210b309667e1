"""Detector of a lost pass rate of canaries: a CUSUM of faults, with dwell and recovery.

Rules:

- A group of canaries begins with the promise that they pass: a share of `PROMISED` faults is
  healthy. Accepting another level makes that the baseline.
- Each fault adds to a score, each pass takes from it: the logarithm of how much likelier the run is
  at a level that is worse by `WORSE` than at the baseline (Page 1954).
- At `LIMIT` the group is lost, if the faults go back further than the dwell: one bad moment makes
  one bad round, and no event.
- A lost group recovers by a score of its own, in the other direction.
- While either score is up, further rounds are wanted (`wants_more`).

=========  =============================================  ==========
State      Run                                            Next state
=========  =============================================  ==========
healthy    fault, score at the limit, dwell over          lost
lost       pass, recovery at its limit                    healthy
=========  =============================================  ==========
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PROMISED: Final = 0.02
"""Share of faults that is healthy: engines lose one or two answers in a hundred to sampling."""
WORSE: Final = 0.28
"""Difference of level that the scores are made for; from 12 % of faults on a score grows."""
WORST: Final = 0.9
LIMIT: Final = 20.0
"""Simulated (`make bench-canaries`): no event in 10 years of 2 % faults, 38 % found in a day."""
RECOVERED: Final = 9.0
"""27 passes in a row: at 38 % of faults these come once in 400,000 runs."""
DWELL_S: Final = 2 * 3600.0
"""Age of the oldest fault that counts, before a group is lost."""
_KEPT_RUNS: Final = 96
MOST_BASELINE: Final = 0.6
_MORE_FROM: Final = 1.3
"""Score from which further rounds are wanted: one fault, until four runs after it have passed."""
_ACCEPTED_RUNS: Final = 48
_FEWEST_ACCEPTED: Final = 6


class QualityChange(StrEnum):
    LOST = "lost"
    RECOVERED = "recovered"


@dataclass(slots=True, kw_only=True)
class PassRate:
    """State of one group of canaries."""

    group: str
    baseline: float = PROMISED
    """Share of faults that is accepted."""
    score: float = 0.0
    since_unix_s: float | None = None
    """Oldest fault that counts in the score; None: it is 0."""
    lost_unix_s: float | None = None
    """Time since which the group is lost: its first fault then; None: it is healthy."""
    recovery: float = 0.0
    runs: str = ""
    """Last runs, oldest first: 1 for a pass, 0 for a fault."""
    proven: tuple[str, ...] = ()
    """Canaries of the group that have passed once."""
    fault: str = ""
    """Last fault, as a phrase."""

    @property
    def pass_share(self) -> float | None:
        """Share of the last runs that passed; None: none has been judged."""
        return self.runs.count("1") / len(self.runs) if self.runs else None

    @property
    def wants_more(self) -> bool:
        return (self.recovery if self.lost_unix_s is not None else self.score) >= _MORE_FROM

    def step(
        self, unix_s: float, *, passed: bool, fault: str = "", dwell_s: float = DWELL_S
    ) -> QualityChange | None:
        """Count a run; returns the change of state that follows from it, if any."""
        self.runs = (self.runs + ("1" if passed else "0"))[-_KEPT_RUNS:]
        if not passed:
            self.fault = fault
        if self.lost_unix_s is not None:
            return self._await_recovery(passed=passed)
        if passed:
            self.score = max(0.0, self.score + _pass_step(self.baseline))
            if not self.score:
                self.since_unix_s = None
            return None
        self.score = min(LIMIT, self.score + _fault_step(self.baseline))
        # A clock that was set back makes the oldest fault no younger than this one.
        since = unix_s if self.since_unix_s is None else min(self.since_unix_s, unix_s)
        self.since_unix_s = since
        if self.score < LIMIT or unix_s - since < dwell_s:
            return None
        self.score, self.since_unix_s, self.recovery, self.lost_unix_s = 0.0, None, 0.0, since
        return QualityChange.LOST

    def _await_recovery(self, *, passed: bool) -> QualityChange | None:
        step = _pass_step(self.baseline) if passed else _fault_step(self.baseline)
        self.recovery = max(0.0, self.recovery - step)
        if self.recovery < RECOVERED:
            return None
        self.lost_unix_s, self.recovery = None, 0.0
        return QualityChange.RECOVERED

    def accept(self) -> float | None:
        """Make the present share of faults the baseline; returns it, None: too few runs, or no change."""
        runs = self.runs[-_ACCEPTED_RUNS:]
        if len(runs) < _FEWEST_ACCEPTED:
            return None
        faults = min(MOST_BASELINE, max(PROMISED, runs.count("0") / len(runs)))
        if self.lost_unix_s is None and faults == self.baseline:
            return None
        self.baseline, self.score, self.recovery = faults, 0.0, 0.0
        self.since_unix_s = self.lost_unix_s = None
        return faults


def _fault_step(baseline: float) -> float:
    return math.log(_worse(baseline) / baseline)


def _pass_step(baseline: float) -> float:
    return math.log((1 - _worse(baseline)) / (1 - baseline))


def _worse(baseline: float) -> float:
    return min(WORST, baseline + WORSE)
