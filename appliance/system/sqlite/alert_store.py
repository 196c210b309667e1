"""Store of alerts in SQLite: the book, its transitions, the outbox, and tokens of buttons.

States, transitions, outbox rows and cancellations of one evaluation are written in one transaction, and
are on the disk when `commit` returns (synchronous=FULL). Where the file takes no rows, memory takes its place:

=====================================  ======================================================
fault                                  what happens
=====================================  ======================================================
written by a newer version             `open` raises `StoreError`; nothing is touched, and
                                       what is written after that is kept in memory alone
damaged, at the opening or later       renamed, rows that can be read are copied to a new one,
                                       and what was being written is written again
disk full or failing, no directory     a copy in memory takes its place, is read and written,
                                       and goes back into the file when that takes rows again
=====================================  ======================================================

So alerts are sent while the disk is full; what is lost with the process is what was written then.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from appliance.alerts.book import AlertBook, Evaluation
from appliance.alerts.outbox import OutboxRow, Settlement, rows_of
from appliance.model.alerts import Severity, Subject, Transition
from appliance.model.errors import StoreError
from appliance.system.sqlite.alert_tables import (
    ALERTS,
    BookTable,
    NotQueuedError,
    OutboxCounts,
    add_rows,
    begin_rows,
    cancel_alerts,
    drop_rows,
    give_pages_back,
    last_sent,
    newest_rows,
    outbox_counts,
    postpone_alerts,
    prune,
    queued_rows,
    read_memory,
    replace_rows,
    requeue_rows,
    settle_rows,
    to_transition,
    to_transition_row,
    waiting_targets,
)
from appliance.system.sqlite.database import DAMAGE, check, is_corrupt, open_database, transaction
from appliance.system.sqlite.store import RETRY_AFTER_S, SqliteStore, decoded, insert

_log = logging.getLogger(__name__)

_MOST_REPAIRS: Final = 2
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


class AlertStore(SqliteStore):
    """Store of alerts.

    Args:
        path: The database.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, *, retry_after_s: float = RETRY_AFTER_S) -> None:
        super().__init__(path, ALERTS, retry_after_s=retry_after_s)
        self._memory: sqlite3.Connection | None = None
        """Database in place of the file; None: the file is in use, or nothing is open."""
        self._is_copy = False
        """Whether `_memory` began as a copy of the file."""
        self._is_newer = False
        self._first_id = 1
        """Lowest number for a row; where those that were given away are not known, the Unix second."""
        self._generation = 0
        """Number that changes when rows may have been lost, so that what is known of them is not."""
        self._book = BookTable()
        self._commits = 0
        self.recovery: str | None = None
        """Sentence about a damaged file that was replaced since the start; None: none was."""

    async def open(self) -> None:
        """Open or create the file; rows that were being sent are queued again.

        Raises `StoreError` only for a file of a newer version. The store can be used after that: it
        keeps in memory what is written.
        """
        try:
            await super().open()
        finally:
            await self.requeue()

    @property
    def trouble(self) -> str | None:
        """Sentence about a file that takes no rows; None: it takes them."""
        if self._fault is None:
            return None
        hint = "" if self._is_newer else f"; see df -h {self._path.parent}"
        return (
            f"alerts cannot be stored in {self._path} ({self._fault}): they are told, and kept"
            f" in memory until the agent ends{hint}"
        )

    # --- the book --------------------------------------------------------------------

    async def book(self) -> AlertBook:
        """Return the stored book; a new one where there is none."""
        return await self._run(self._use, self._book.read)

    async def memory(self) -> str | None:
        """Return the stored memory of the rules; None: there is none."""
        return await self._run(self._use, read_memory)

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
            targets: Names of the targets.
            memory: Memory of the rules; None: as it is stored.
            min_severity: Lowest severity that a target takes; a target without one takes all.
            now_unix_s: The time.
        """
        book = evaluation.book

        def commit() -> Sequence[Transition]:
            if self._book.may_wait(evaluation, self._generation, now_unix_s):
                return ()
            transitions = self._write(write)
            self._book.remember(book, memory, self._generation, now_unix_s)
            if transitions:
                self._tidy(now_unix_s)
            return transitions

        def write(db: sqlite3.Connection) -> Sequence[Transition]:
            self._book.write(db, book, memory, self._generation)
            cancel_alerts(db, evaluation.cancelled, now_unix_s=now_unix_s)
            postpone_alerts(db, evaluation.postponed, until_unix_s=evaluation.postponed_unix_s)
            numbered = self._add_transitions(db, evaluation.transitions)
            numbers = dict(zip(evaluation.transitions, numbered, strict=True))
            rows: list[OutboxRow] = []
            for notice in evaluation.notices:
                transition = numbers.get(notice.transition, notice.transition)
                rows += rows_of(
                    replace(notice, transition=transition),
                    targets,
                    lowest=min_severity,
                    now_unix_s=now_unix_s,
                )
            if rows:
                add_rows(db, rows, first_id=self._next_id(db, "outbox"))
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

        return await self._run(self._use, read)

    # --- the outbox ------------------------------------------------------------------

    async def outbox(self, most: int = 100) -> Sequence[OutboxRow]:
        """Return the newest rows of any state, oldest first."""
        return await self._run(self._use, lambda db: newest_rows(db, most))

    async def counts(self) -> OutboxCounts:
        """Return the numbers of the outbox for the status."""
        return await self._run(self._use, outbox_counts)

    async def waiting_targets(self) -> Sequence[str]:
        """Return the names of the targets for which rows wait."""
        return await self._run(self._use, waiting_targets)

    async def queued(self, target: str, *, most: int) -> Sequence[OutboxRow]:
        """Return the oldest rows of a target that are queued, oldest first."""
        return await self._run(self._use, lambda db: queued_rows(db, target, most))

    async def last_sent(self, target: str) -> float | None:
        """Return when a target took a message last; None: it took none that is kept."""
        return await self._run(self._use, lambda db: last_sent(db, target))

    async def begin(self, rows: Collection[OutboxRow], *, now_unix_s: float) -> bool:
        """Mark queued rows as being sent; returns False, and changes none, if one is not queued."""
        try:
            await self._run(
                self._write,
                lambda db: begin_rows(db, rows, now_unix_s=now_unix_s),
            )
        except NotQueuedError:
            return False
        return True

    async def settle(self, settlements: Mapping[int, Settlement], *, now_unix_s: float) -> None:
        """Store how attempts ended, by the number of the row."""
        await self._run(
            self._write,
            lambda db: settle_rows(db, settlements, now_unix_s=now_unix_s),
        )

    async def drop(self, reasons: Mapping[int, str], *, now_unix_s: float) -> None:
        """Cancel queued rows, each for its reason."""
        await self._run(
            self._write,
            lambda db: drop_rows(db, reasons, now_unix_s=now_unix_s),
        )

    async def requeue(self) -> None:
        """Queue the rows again that were being sent when their sender ended."""
        await self._run(self._write, requeue_rows)

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
            self._write,
            lambda db: insert(db, "tokens", row, "ON CONFLICT DO NOTHING"),
        )

    async def use_token(self, token_hash: str, alert: str, action: str, now_unix_s: float) -> bool:
        """Use up a token; False: it is unknown, used, expired, or for something else."""
        values = {"now": now_unix_s, "hash": token_hash, "alert": alert, "action": action}
        used = await self._run(self._write, lambda db: db.execute(_USE_TOKEN, values).rowcount)
        return bool(used == 1)

    # --- in the store's thread -------------------------------------------------------

    def _add_transitions(
        self, db: sqlite3.Connection, transitions: Sequence[Transition]
    ) -> Sequence[Transition]:
        """Add transitions; returns them with their numbers."""
        if not transitions:
            return ()
        first_id = self._next_id(db, "transitions")
        numbered = [one.replaced(id=first_id + n) for n, one in enumerate(transitions)]
        for one in numbered:
            insert(db, "transitions", to_transition_row(one))
        return numbered

    def _next_id(self, db: sqlite3.Connection, table: str) -> int:
        sql = f"SELECT coalesce(max(id), 0) FROM {table}"  # noqa: S608 - our names
        (highest,) = db.execute(sql).fetchone()
        return max(int(highest) + 1, self._first_id)

    def _tidy(self, now_unix_s: float) -> None:
        """Drop old rows from time to time, and at the first commit of a process."""
        if self._commits % _PRUNE_EVERY == 0:
            self._write(lambda db: prune(db, now_unix_s=now_unix_s))
            self._use(give_pages_back)
        self._commits += 1

    # --- the file, or the memory in its place ------------------------------------------

    def _open(self) -> None:
        self._connect()
        if self._is_newer:
            raise StoreError(self._fault or "")

    def _close(self) -> None:
        """Write what waits in memory, if the file takes it, and close."""
        self._retry_at_s = 0.0
        self._connect()
        self._close_file()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Do a job in one transaction. It may be done again, if the file breaks."""

        def in_transaction(db: sqlite3.Connection) -> T:
            with transaction(db):
                return job(db)

        return self._use(in_transaction)

    def _use(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Do a job without a transaction; it may be done again, if the file breaks."""
        for _ in range(_MOST_REPAIRS):
            db = self._connect()
            if db is self._memory:
                break
            try:
                return job(db)
            except (sqlite3.DatabaseError, UnicodeError) as error:
                is_ours = isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError)
                if is_ours and _is_whole(db):
                    raise  # A fault of ours, not of the file.
                self._step_back(error)
        return job(self._memory or self._take_memory(StoreError("damaged again and again")))

    def _connect(self) -> sqlite3.Connection:
        """Return the file, opened if it was closed, or the memory in its place."""
        if self._db is None and not self._is_newer and self._is_due():
            try:
                self._open_and_fill()
            except (*DAMAGE, OSError, StoreError) as error:
                self._is_newer = isinstance(error, StoreError)
                self._close_file()
                return self._take_memory(error)
        return self._db or self._memory or self._take_memory(StoreError("not open"))

    def _open_and_fill(self) -> None:
        """Open the file, replace a damaged one, and write what waits in memory."""
        db, recovery = self._open_file()
        if recovery is not None:
            self.recovery = recovery
            _log.error("%s", recovery)
            self._forget_numbers()
        if self._memory is not None:
            with transaction(db):
                replace_rows(self._memory, db, is_whole=self._is_copy)
            self._memory.close()
            self._memory = None
        if self._fault is not None:
            _log.info("alerts are stored in %s again", self._path)
        self._fault = None

    def _step_back(self, error: Exception) -> None:
        """Close a damaged file, which opening replaces; copy one on a full or failing disk."""
        if is_corrupt(error) or isinstance(error, sqlite3.IntegrityError):
            _log.error("%s is damaged: %s", self._path, error)
            self._close_file()
        else:
            self._take_memory(error)

    def _take_memory(self, error: Exception) -> sqlite3.Connection:
        """Take a copy of the file in memory, or of nothing, in its place."""
        if self._fault is None:
            _log.error("alerts cannot be stored in %s: %s", self._path, error)
        self._failed(error)
        if self._memory is None:
            self._memory, self._is_copy = self._copy()
        self._close_file()
        return self._memory

    def _copy(self) -> tuple[sqlite3.Connection, bool]:
        """Return a copy of the file, or new tables; and whether it is a copy."""
        memory = open_database(Path(":memory:"), ALERTS)
        if self._db is not None:
            try:
                self._db.backup(memory)
            except DAMAGE as error:
                _log.warning("%s cannot be read: %s", self._path, error)
                memory.close()
                memory = open_database(Path(":memory:"), ALERTS)
            else:
                return memory, True
        self._forget_numbers()
        return memory, False

    def _forget_numbers(self) -> None:
        self._first_id = int(time.time())
        self._generation += 1


def _is_whole(db: sqlite3.Connection) -> bool:
    try:
        check(db)
    except DAMAGE:
        return False
    return True
