"""Figures for statistics: operations that ended since the supervisor's start, and the gateway's counters."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from appliance.model.operations import Finished, Kind, Outcome
from appliance.supervisor.traffic_figures import TrafficFigures

DURATION_BOUNDS_S: Final = (
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
"""Upper bounds of the durations of phases: a switch of the smallest model takes 0.1 s for all of them, and
the load of a large one from a slow disk half an hour."""


class OperationTally:
    """Counts of operations by kind and outcome, and durations of the phases of switches."""

    def __init__(self) -> None:
        self._outcomes = {kind: dict.fromkeys(Outcome, 0) for kind in Kind}
        self._phases: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def add(self, finished: Finished) -> None:
        """Count an operation that has ended."""
        kind = finished.operation.kind
        self._outcomes[kind][finished.outcome] += 1
        if kind is Kind.SWITCH:
            for phase, ms in finished.phases_ms.items():
                self._add_phase(phase, ms / 1000)

    def document(self) -> Mapping[str, object]:
        """Return the tally for JSON; the last count of a phase is that of longer ones than any bound."""
        return {
            "outcomes": {
                kind.value: {outcome.value: count for outcome, count in counts.items()}
                for kind, counts in self._outcomes.items()
            },
            "bounds_s": DURATION_BOUNDS_S,
            "switch_phases": {
                phase: {"counts": list(counts), "sum_s": round(self._sums_s[phase], 6)}
                for phase, counts in self._phases.items()
            },
        }

    def _add_phase(self, phase: str, seconds: float) -> None:
        counts = self._phases.setdefault(phase, [0] * (len(DURATION_BOUNDS_S) + 1))
        counts[bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        self._sums_s[phase] = self._sums_s.get(phase, 0.0) + seconds


async def counters_document(traffic: TrafficFigures, tally: OperationTally) -> Mapping[str, object]:
    """Return the gateway's counters and the tally for JSON."""
    return {"gateway": await traffic.counters(), "operations": tally.document()}
