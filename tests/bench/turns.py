"""Runs of several contestants in turns, and what is made of them."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.bench.load import Burst

Run = TypeVar("Run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns(Generic[Run]):
    """Each contestant's runs, turn by turn."""

    runs: Mapping[str, Sequence[Run]]

    def median(self, name: str, figure: Callable[[Run], float]) -> float:
        """Return the median of a contestant over its turns."""
        return statistics.median(figure(run) for run in self.runs[name])

    def difference(self, name: str, other: str, figure: Callable[[Run], float]) -> float:
        """Return how much more one contestant has than the other: the median over turns."""
        pairs = zip(self.runs[name], self.runs[other], strict=True)
        return statistics.median(figure(one) - figure(two) for one, two in pairs)

    def ratio(self, name: str, other: str, figure: Callable[[Run], float]) -> float:
        """Return how many times as much one contestant has as the other: the median over turns."""
        pairs = zip(self.runs[name], self.runs[other], strict=True)
        return statistics.median(figure(one) / figure(two) for one, two in pairs)

    def requests(self: "Turns[Burst]", name: str) -> int:
        """Return the number of requests that a contestant has served."""
        return sum(run.requests for run in self.runs[name])

    def failed(self: "Turns[Burst]") -> int:
        """Return how many requests failed, of all contestants."""
        return sum(run.failed for runs in self.runs.values() for run in runs)


def take_turns(count: int, contestants: Mapping[str, Callable[[], Run]]) -> Turns[Run]:
    """One run of each, again and again, so that what disturbs disturbs all of them alike."""
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for _ in range(count):
        for name, run in contestants.items():
            runs[name].append(run())
    return Turns(runs=runs)
