"""Store of alerts in SQLite: the book, its transitions, the outbox, and tokens of buttons.

States, transitions, outbox rows and cancellations of one evaluation are written in one transaction, and
are on the disk when `commit` returns (synchronous=FULL). Faults of the file: see `alert_database`.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from appliance.alerts.book import AlertBook, Evaluation
from appliance.alerts.outbox import OutboxRow, Settlement, rows_of
from appliance.model.alerts import Severity, Subject, Transition
from appliance.system.sqlite import outbox_table
from appliance.system.sqlite.alert_database import RETRY_AFTER_S, AlertDatabase
from appliance.system.sqlite.alert_rows import to_document, to_transition
from appliance.system.sqlite.alert_schema import give_pages_back, prune
from appliance.system.sqlite.book_table import BookTable, read_memory
from appliance.system.sqlite.database import decoded, insert
from appliance.system.sqlite.outbox_table import NotQueuedError, OutboxCounts

_PRUNE_EVERY: Final = 200
"""Commits with transitions after which old rows are dropped."""
EVERYTHING: Final[Mapping[str, Severity]] = {}
_TRANSITIONS: Final = "SELECT * FROM transitions WHERE id > ? ORDER BY id DESC LIMIT ?"
_TRANSITIONS_OF: Final = (
    "SELECT * FROM transitions WHERE subject = ? AND id > ? ORDER BY id DESC LIMIT ?"
)
_USE_TOKEN: Final = (
    "UPDATE tokens SET used_unix_s = :now WHERE hash = :hash AND alert = :alert"  # noqa: S105
    " AND action = :action AND used_unix_s IS NULL AND expires_unix_s > :now"
)
T = TypeVar("T")


class AlertStore:
    """Store of alerts. One thread of its own does all access.

    Args:
        path: The database.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, *, retry_after_s: float = RETRY_AFTER_S) -> None:
        self._database = AlertDatabase(path, retry_after_s=retry_after_s)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alerts")
        self._book = BookTable()
        self._commits = 0

    async def open(self) -> None:
        """Open or create the file; rows that were being sent are queued again.

        Raises `StoreError` only for a file of a newer version. The store can be used after that: it
        keeps in memory what it is told.
        """
        try:
            await self._run(self._database.open)
        finally:
            await self.requeue()

    async def close(self) -> None:
        """Close the file and end the thread."""
        await self._run(self._database.close)
        self._thread.shutdown()

    @property
    def trouble(self) -> str | None:
        """Sentence about a file that takes no rows; None: it takes them."""
        return self._database.trouble

    @property
    def recovery(self) -> str | None:
        """Sentence about a damaged file that was replaced since the start; None: none was."""
        return self._database.recovery

    # --- the book --------------------------------------------------------------------

    async def book(self) -> AlertBook:
        """Return the stored book; a new one where there is none."""
        return await self._run(self._database.use, self._book.read)

    async def memory(self) -> str | None:
        """Return the stored memory of the rules; None: there is none."""
        return await self._run(self._database.use, read_memory)

    async def commit(
        self,
        evaluation: Evaluation,
        *,
        targets: Sequence[str],
        memory: str | None = None,
        min_severity: Mapping[str, Severity] = EVERYTHING,
        now_unix_s: float,
    ) -> Sequence[Transition]:
        """Store an evaluation in one transaction; returns its transitions with their numbers.

        An evaluation that changes little is stored with a later one (`BookTable.may_wait`).

        Args:
            evaluation: Of the alert state machine.
            targets: Names of those who are told.
            memory: Memory of the rules; None: as it is stored.
            min_severity: Lowest severity of which a target is told; others are told of all.
            now_unix_s: The time.
        """
        database, book = self._database, evaluation.book

        def commit() -> Sequence[Transition]:
            if self._book.may_wait(evaluation, database.generation, now_unix_s):
                return ()
            transitions = database.write(write)
            self._book.remember(book, memory, database.generation, now_unix_s)
            if transitions:
                self._tidy(now_unix_s)
            return transitions

        def write(db: sqlite3.Connection) -> Sequence[Transition]:
            self._book.write(db, book, memory, database.generation)
            outbox_table.cancel_alerts(db, evaluation.cancelled, now_unix_s=now_unix_s)
            outbox_table.postpone_alerts(
                db, evaluation.postponed, until_unix_s=evaluation.postponed_unix_s
            )
            numbered = self._add_transitions(db, evaluation.transitions)
            numbers = dict(zip(evaluation.transitions, numbered, strict=True))
            rows: list[OutboxRow] = []
            for notice in evaluation.notices:
                told = numbers.get(notice.transition, notice.transition)
                rows += rows_of(
                    replace(notice, transition=told),
                    targets,
                    lowest=min_severity,
                    now_unix_s=now_unix_s,
                )
            if rows:
                outbox_table.add_rows(db, rows, first_id=self._next_id(db, "outbox"))
            return numbered

        return await self._run(commit)

    async def transitions(
        self, after: int = 0, *, subject: Subject | None = None, most: int = 100
    ) -> Sequence[Transition]:
        """Return the newest transitions with a number above `after`, oldest first.

        Args:
            after: 0: all.
            subject: Of one subject; None: of all.
            most: At most so many.
        """

        def read(db: sqlite3.Connection) -> Sequence[Transition]:
            if subject is None:
                rows = db.execute(_TRANSITIONS, (after, most))
            else:
                rows = db.execute(_TRANSITIONS_OF, (subject.text, after, most))
            return decoded(rows, to_transition)[::-1]

        return await self._run(self._database.use, read)

    # --- the outbox ------------------------------------------------------------------

    async def outbox(self, most: int = 100) -> Sequence[OutboxRow]:
        """Return the newest rows of any state, oldest first."""
        return await self._run(self._database.use, lambda db: outbox_table.newest_rows(db, most))

    async def counts(self) -> OutboxCounts:
        """Return the numbers of the outbox for the status."""
        return await self._run(self._database.use, outbox_table.outbox_counts)

    async def waiting_targets(self) -> Sequence[str]:
        """Return the names of the targets for which rows wait."""
        return await self._run(self._database.use, outbox_table.waiting_targets)

    async def queued(self, target: str, *, most: int) -> Sequence[OutboxRow]:
        """Return the oldest rows of a target that are queued, oldest first."""
        return await self._run(
            self._database.use, lambda db: outbox_table.queued_rows(db, target, most)
        )

    async def last_sent(self, target: str) -> float | None:
        """Return when a target took a message last; None: it took none that is kept."""
        return await self._run(self._database.use, lambda db: outbox_table.last_sent(db, target))

    async def begin(self, rows: Collection[OutboxRow], *, now_unix_s: float) -> bool:
        """Mark queued rows as being sent; returns False, and changes none, if one is not queued."""
        try:
            await self._run(
                self._database.write,
                lambda db: outbox_table.begin_rows(db, rows, now_unix_s=now_unix_s),
            )
        except NotQueuedError:
            return False
        return True

    async def settle(self, settlements: Mapping[int, Settlement], *, now_unix_s: float) -> None:
        """Store how attempts ended, by the number of the row."""
        await self._run(
            self._database.write,
            lambda db: outbox_table.settle_rows(db, settlements, now_unix_s=now_unix_s),
        )

    async def drop(self, reasons: Mapping[int, str], *, now_unix_s: float) -> None:
        """Cancel queued rows, each for its reason."""
        await self._run(
            self._database.write,
            lambda db: outbox_table.drop_rows(db, reasons, now_unix_s=now_unix_s),
        )

    async def requeue(self) -> None:
        """Queue the rows again that were being sent when their sender ended."""
        await self._run(self._database.write, outbox_table.requeue_rows)

    # --- tokens of buttons -----------------------------------------------------------

    async def add_token(
        self, token_hash: str, alert: str, action: str, expires_unix_s: float
    ) -> None:
        """Store the hash of a token that may be used once, for one action on one alert."""
        row = {
            "hash": token_hash,
            "alert": alert,
            "action": action,
            "expires_unix_s": expires_unix_s,
        }
        await self._run(
            self._database.write,
            lambda db: insert(db, "tokens", row, "ON CONFLICT DO NOTHING"),
        )

    async def use_token(self, token_hash: str, alert: str, action: str, now_unix_s: float) -> bool:
        """Use up a token; False: it is unknown, used, expired, or for something else."""
        values = {"now": now_unix_s, "hash": token_hash, "alert": alert, "action": action}
        used = await self._run(
            self._database.write, lambda db: db.execute(_USE_TOKEN, values).rowcount
        )
        return bool(used == 1)

    # --- in the store's thread -------------------------------------------------------

    async def _run(self, job: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job, *arguments)

    def _add_transitions(
        self, db: sqlite3.Connection, transitions: Sequence[Transition]
    ) -> Sequence[Transition]:
        """Add transitions; returns them with their numbers."""
        if not transitions:
            return ()
        first_id = self._next_id(db, "transitions")
        numbered = [replace(one, id=first_id + n) for n, one in enumerate(transitions)]
        for one in numbered:
            row = {
                "id": one.id,
                "subject": one.subject.text,
                "alert": one.alert,
                "episode": one.episode,
                "document": to_document(one),
            }
            insert(db, "transitions", row)
        return numbered

    def _next_id(self, db: sqlite3.Connection, table: str) -> int:
        sql = f"SELECT coalesce(max(id), 0) FROM {table}"  # noqa: S608 - our names
        (highest,) = db.execute(sql).fetchone()
        return max(int(highest) + 1, self._database.first_id)

    def _tidy(self, now_unix_s: float) -> None:
        """Drop old rows from time to time, and at the first commit of a process."""
        if self._commits % _PRUNE_EVERY == 0:
            self._database.write(lambda db: prune(db, now_unix_s=now_unix_s))
            self._database.use(give_pages_back)
        self._commits += 1
