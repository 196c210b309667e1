"""Detector of a lost pass rate of canaries: a CUSUM of faults, bounded in each hour, with recovery.

Rules:

- A group of canaries begins with the promise that they pass: a share of `PROMISED` faults is
  healthy. Accepting another level makes that the baseline.
- Each fault adds to a score, each pass takes from it: the logarithm of how much likelier the run is
  at a level that is worse by `WORSE` than at the baseline (Page 1954).
- At `LIMIT` the group is lost. In one hour the score grows by `HOUR_MOST` at most, so that a bad
  moment, however many answers it breaks, is no loss: faults must come in three hours.
- A lost group recovers by a score of its own, in the other direction.
- While either score is up, further rounds are wanted (`wants_more`).

=========  =============================================  ==========
State      Run                                            Next state
=========  =============================================  ==========
healthy    fault, score at the limit                      lost
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
RECOVERED: Final = 16.0
"""48 passes in a row, which a level of 20 % of faults has once in 45,000 runs."""
HOUR_S: Final = 3600.0
HOUR_MOST: Final = 8.0
"""Growth of a score in an hour: three faults. Simulated with a bad hour each month and 2 % of faults
else: no event, and one in ten years of a profile without this bound, with a dwell of two hours."""
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
    hour_unix_s: float = 0.0
    """Beginning of the hour with the last fault, which is the first fault in it."""
    hour_score: float = 0.0
    """Score at that time."""
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
        self, unix_s: float, *, passed: bool, fault: str = "", hour_s: float = HOUR_S
    ) -> QualityChange | None:
        """Count a run; returns the change of state that follows from it, if any.

        Args:
            unix_s: Time of the run.
            passed: Whether it passed.
            fault: Phrase about a run that did not.
            hour_s: Length of an hour, which is shorter in a trial.
        """
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
        if not 0 <= unix_s - self.hour_unix_s < hour_s:
            self.hour_unix_s, self.hour_score = unix_s, self.score
        most = min(LIMIT, self.hour_score + HOUR_MOST)
        self.score = max(self.score, min(most, self.score + _fault_step(self.baseline)))
        since = unix_s if self.since_unix_s is None else self.since_unix_s
        self.since_unix_s = since
        if self.score < LIMIT:
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
