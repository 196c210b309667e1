"""Store of alerts in memory, for tests on virtual time: what `AlertStore` promises, on dictionaries."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from appliance.alerts.book import AlertBook, Evaluation
from appliance.alerts.outbox import (
    WAITING,
    OutboxRow,
    Settlement,
    after,
    begun,
    rows_of,
)
from appliance.model.alerts import OutboxState, Severity, Subject, Transition
from appliance.system.sqlite.alert_tables import OutboxCounts


class FakeAlertStore:
    """Store of alerts that no disk has."""

    trouble: str | None = None
    recovery: str | None = None

    def __init__(self) -> None:
        self.rows: dict[int, OutboxRow] = {}
        self._book = AlertBook()
        self._memory: str | None = None
        self._transitions: list[Transition] = []
        self._tokens: dict[str, tuple[str, str, float]] = {}

    async def open(self) -> None:
        await self.requeue()

    async def close(self) -> None:
        """Keep everything, for the next `open`."""

    async def book(self) -> AlertBook:
        return self._book

    async def memory(self) -> str | None:
        return self._memory

    async def commit(
        self,
        evaluation: Evaluation,
        *,
        targets: Sequence[str],
        memory: str | None = None,
        min_severity: Mapping[str, Severity] | None = None,
        now_unix_s: float,
    ) -> Sequence[Transition]:
        self._book = evaluation.book
        self._memory = self._memory if memory is None else memory
        for row in self._queued():
            if row.transition.alert in evaluation.cancelled:
                self._cancel(row, "no longer wanted", now_unix_s)
            elif row.transition.alert in evaluation.postponed:
                until_unix_s = max(row.not_before_unix_s, evaluation.postponed_unix_s)
                self.rows[row.id] = replace(row, not_before_unix_s=until_unix_s)
        first_id = len(self._transitions) + 1
        numbered = [t.replaced(id=first_id + n) for n, t in enumerate(evaluation.transitions)]
        self._transitions += numbered
        by_value = dict(zip(evaluation.transitions, numbered, strict=True))
        for notice in evaluation.notices:
            told = replace(notice, transition=by_value[notice.transition])
            rows = rows_of(told, targets, lowest=min_severity or {}, now_unix_s=now_unix_s)
            for row in rows:
                if row.key not in {other.key for other in self.rows.values()}:
                    number = max(self.rows, default=0) + 1
                    self.rows[number] = replace(row, id=number)
        return numbered

    async def transitions(
        self, after: int = 0, *, subject: Subject | None = None, most: int = 100
    ) -> Sequence[Transition]:
        found = [t for t in self._transitions if t.id > after and subject in {None, t.subject}]
        return found[-most:]

    async def outbox(self, most: int = 100) -> Sequence[OutboxRow]:
        return list(self.rows.values())[-most:]

    async def counts(self) -> OutboxCounts:
        waiting = [row for row in self.rows.values() if row.state in WAITING]
        return OutboxCounts(
            waiting=len(waiting),
            dead=sum(row.state == OutboxState.DEAD for row in self.rows.values()),
            oldest_due_unix_s=min((row.due_unix_s for row in waiting), default=None),
        )

    async def waiting_targets(self) -> Sequence[str]:
        return sorted({row.target for row in self.rows.values() if row.state in WAITING})

    async def queued(self, target: str, *, most: int) -> Sequence[OutboxRow]:
        return [row for row in self._queued() if row.target == target][:most]

    async def last_sent(self, target: str) -> float | None:
        times = [
            row.settled_unix_s
            for row in self.rows.values()
            if row.target == target and row.state == OutboxState.SENT and row.settled_unix_s
        ]
        return max(times, default=None)

    async def begin(self, rows: Collection[OutboxRow], *, now_unix_s: float) -> bool:
        if any(self.rows[row.id].state != OutboxState.QUEUED for row in rows):
            return False
        for row in rows:
            self.rows[row.id] = begun(self.rows[row.id], now_unix_s=now_unix_s)
        return True

    async def settle(self, settlements: Mapping[int, Settlement], *, now_unix_s: float) -> None:
        for number, end in settlements.items():
            if self.rows[number].state == OutboxState.SENDING:
                self.rows[number] = after(self.rows[number], end, now_unix_s=now_unix_s)

    async def drop(self, reasons: Mapping[int, str], *, now_unix_s: float) -> None:
        for row in self._queued():
            if row.id in reasons:
                self._cancel(row, reasons[row.id], now_unix_s)

    async def requeue(self) -> None:
        for row in self.rows.values():
            if row.state == OutboxState.SENDING:
                self.rows[row.id] = replace(row, state=OutboxState.QUEUED)

    async def add_token(
        self, token_hash: str, alert: str, action: str, expires_unix_s: float
    ) -> None:
        self._tokens[token_hash] = (alert, action, expires_unix_s)

    async def use_token(self, token_hash: str, alert: str, action: str, now_unix_s: float) -> bool:
        known = self._tokens.get(token_hash)
        if known is None or known[:2] != (alert, action) or now_unix_s >= known[2]:
            return False
        del self._tokens[token_hash]
        return True

    def _queued(self) -> Sequence[OutboxRow]:
        return [row for row in self.rows.values() if row.state == OutboxState.QUEUED]

    def _cancel(self, row: OutboxRow, text: str, now_unix_s: float) -> None:
        end = Settlement(state=OutboxState.CANCELLED, text=text, retry_unix_s=row.retry_unix_s)
        self.rows[row.id] = after(row, end, now_unix_s=now_unix_s)
