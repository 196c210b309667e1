"""Store of the alert book that has no file."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.alerts.book import AlertBook, Evaluation
from appliance.model.alerts import Notice, Severity, Transition


@dataclass
class FakeAlertLedger:
    """The protocol `AlertLedger`."""

    stored: AlertBook = field(default_factory=AlertBook)
    stored_memory: str | None = None
    transitions: list[Transition] = field(default_factory=list)
    notices: list[tuple[str, Notice]] = field(default_factory=list)
    """Notices that were queued, each with its target."""
    lowest: Mapping[str, Severity] = field(default_factory=dict)
    """Least severities of the last commit."""
    cancelled: list[str] = field(default_factory=list)
    fault: Exception | None = None
    """Error of the next commits; None: they succeed."""
    commits: int = 0

    async def book(self) -> AlertBook:
        return self.stored

    async def memory(self) -> str | None:
        return self.stored_memory

    async def commit(
        self,
        evaluation: Evaluation,
        *,
        targets: Sequence[str],
        memory: str | None = None,
        min_severity: Mapping[str, Severity] = {},
        now_unix_s: float,
    ) -> Sequence[Transition]:
        del now_unix_s
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        self.commits += 1
        self.stored = evaluation.book
        self.stored_memory = self.stored_memory if memory is None else memory
        self.lowest = min_severity
        first = len(self.transitions) + 1
        numbered = [one.replaced(id=first + n) for n, one in enumerate(evaluation.transitions)]
        self.transitions += numbered
        self.cancelled += evaluation.cancelled
        self.notices += [(name, notice) for notice in evaluation.notices for name in targets]
        return numbered
