"""Schedule of what the appliance itself asks of a model, probes or canaries: moments, pauses and a budget of time.

All of it spends from a budget that grows with the time, and waits while it is overdrawn. Times are
monotonic seconds of one boot; nothing of a schedule is stored, since a first request at once does no harm.
"""

from dataclasses import dataclass, replace
from typing import Final, Self
from zlib import crc32

_MOST_DOUBLED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Schedule of one profile between two turns: a probe, or a round of canaries."""

    name: str
    """Name of the profile."""
    started_s: float
    """Time at which the profile began to serve."""
    last_s: float | None = None
    """Time of the last turn that need not be repeated; None: none since the start."""
    not_before_s: float = 0.0
    """End of the pause after a turn that was interrupted or brought nothing."""
    failed: int = 0
    """Number of such turns in a row."""
    budget_s: float
    """Time that may be spent, as it was at `budget_at_s`; negative: overdrawn."""
    budget_at_s: float = 0.0

    def earliest_s(self, share: float) -> float:
        """Return the time from which neither the pause nor the budget, a `share` of all time, keeps a turn back."""
        affordable_s = self.budget_at_s - self.budget_s / share if self.budget_s < 0 else 0.0
        return max(self.not_before_s, affordable_s)

    def after_spending(self, began_s: float, now_s: float, *, share: float, most_s: float) -> Self:
        """Return the schedule after a turn: its time is taken from the budget, which is at most `most_s`."""
        grown_s = self.budget_s + (now_s - self.budget_at_s) * share
        return replace(self, budget_s=min(most_s, grown_s) - (now_s - began_s), budget_at_s=now_s)

    def slot_s(self, last_s: float, pace_s: float, text: str) -> float:
        """Return the moment, which depends on `text` alone, in the interval after that of `last_s`."""
        phase_s = crc32(text.encode()) / (1 << 32) * pace_s
        return ((last_s - phase_s) // pace_s + 1) * pace_s + phase_s

    def pause_s(self, first_s: float, longest_s: float) -> float:
        """Return the pause after a turn that failed: twice as long for each before it, up to the longest."""
        return min(first_s * (1 << min(self.failed, _MOST_DOUBLED)), longest_s)
