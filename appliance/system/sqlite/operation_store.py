"""Store of operations and marks in SQLite.

A switch never fails because of this file: an unreadable one is renamed, and a new one begun. While
a disk is full or failing, operations are kept in a file in memory (the spool, on tmpfs) until the database takes
them. The files of `system.commitment` hold what a boot follows, so rows are written without waiting for the disk
(WAL, synchronous=NORMAL): they only have to survive the death of this process.

The spool has the running operation, which only has to survive the death of the supervisor, not a reboot, and the
finished ones that wait for the database.
"""

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from appliance.model.errors import StoreError
from appliance.model.json_reader import decode_json
from appliance.model.operations import Finished, Kind, Operation, Outcome, Phase
from appliance.model.words import Mark
from appliance.status.history import median
from appliance.system.files.regular import read_small_file, replace_volatile
from appliance.system.sqlite.database import DAMAGE, is_corrupt, newer_error, open_database
from appliance.system.sqlite.operation_tables import (
    OPERATIONS,
    SCHEMA_VERSION,
    put_row,
    spooled_rows,
    target_text,
    to_finished,
    to_finished_row,
    to_operation,
    to_operation_row,
)
from appliance.system.sqlite.store import RETRY_AFTER_S, SqliteStore, decoded, drop_old

_log = logging.getLogger(__name__)

_USUAL_ROWS: Final = 9
T = TypeVar("T")
_NEWEST_ROWS: Final = 9
"""Rows among which the last operation is looked for; the first of them may be damaged."""
_MOST_WAITING: Final = 100
_MOST_BYTES: Final = 4 << 20
"""Largest file that is read: forty times the size of so many operations."""
_UNSTATED: Final = 1
"""Version of a file that does not state one."""
SpooledRow = dict[str, Any]
"""Columns of an operation, its id among them (operation_tables)."""


class OperationStore(SqliteStore):
    """Port `Store`. All access happens in one thread of its own.

    Args:
        path: The database.
        keep_rows: Finished operations to keep.
        spool: A file that survives this process but no reboot; None: no such place.
        retry_after_s: Pause before a file that could not be opened is tried again.
    """

    def __init__(
        self,
        path: Path,
        *,
        keep_rows: int,
        spool: Path | None = None,
        retry_after_s: float = RETRY_AFTER_S,
    ) -> None:
        super().__init__(path, OPERATIONS, retry_after_s=retry_after_s)
        self._keep_rows = keep_rows
        self._spool = OperationSpool(spool)
        self._last_id = 0
        self._is_opening = False
        self._is_in_memory = False
        """Whether a database in memory is in the file's place."""
        self._offer_at_s = 0.0
        """Time when rows that the database refused are offered again."""
        self._marks: Mapping[str, Mark] | None = None
        self._last: Finished | None = None
        """Last finished operation, which every status asks for; only this process writes the
        database."""

    async def begin(self, operation: Operation) -> Operation:
        """Add a row; returns the operation with its id, also when the disk takes nothing."""

        def add(db: sqlite3.Connection) -> Operation:
            with contextlib.suppress(sqlite3.Error):
                self._last_id = max(self._last_id, _highest_id(db))
            self._last_id += 1
            begun = replace(operation, id=self._last_id)
            self._keep(begun)
            return begun

        return await self._do(add, operation)

    def update(self, operation: Operation) -> None:
        """Replace the row's phase, direction and reason, soon and in order; does not wait."""
        self._thread.submit(self._attempt, lambda _db: self._keep(operation), None)

    def _keep(self, operation: Operation) -> None:
        """Write the open operation to the spool, and to the database if possible."""
        row = to_operation_row(operation)
        self._spool.keep(row)
        self._attempt(lambda db: _put(db, row), None)

    async def finish(self, finished: Finished) -> None:
        """Close the row."""
        row = to_finished_row(finished)

        def write(db: sqlite3.Connection) -> None:
            self._spool.keep(None, finished=[row])
            self._store_waiting(db)
            drop_old(db, "operations", kept=self._keep_rows)

        await self._do(write, None)
        self._last = None

    def _store_waiting(self, db: sqlite3.Connection) -> None:
        """Hand finished operations to the database. Raises sqlite3.Error when it refuses."""
        if self._spool.waiting and not self._is_in_memory:
            for row in self._spool.waiting:
                _put(db, row)
            self._spool.taken()

    async def unfinished(self) -> Operation | None:
        """Return the operation that an earlier process left open."""
        sql = "SELECT * FROM operations WHERE outcome IS NULL ORDER BY id DESC LIMIT 1"

        def read(db: sqlite3.Connection) -> Operation | None:
            known = self._spool.known
            row = self._spool.open if known else db.execute(sql).fetchone()
            return None if row is None else to_operation(row)

        return await self._do(read, None)

    async def last(self) -> Finished | None:
        """Return the operation that ended last."""
        if self._last is not None:
            return self._last
        sql = "SELECT * FROM operations WHERE outcome IS NOT NULL ORDER BY id DESC LIMIT ?"

        def read(db: sqlite3.Connection) -> Finished | None:
            waiting = self._spool.waiting  # newer than every row of the database
            rows = [*reversed(waiting), *db.execute(sql, (_NEWEST_ROWS,))]
            return next(iter(decoded(rows[:_NEWEST_ROWS], to_finished)), None)

        last = await self._do(read, None)
        if self._is_settled():
            self._last = last
        return last

    async def finished(self, operation_id: int) -> Finished | None:
        """Return one operation that is over; None: not on record, or not over."""
        sql = "SELECT * FROM operations WHERE id=? AND outcome IS NOT NULL"

        def read(db: sqlite3.Connection) -> Finished | None:
            waiting = (row for row in self._spool.waiting if row["id"] == operation_id)
            row = next(waiting, None) or db.execute(sql, (operation_id,)).fetchone()
            return None if row is None else to_finished(row)

        return await self._do(read, None)

    async def newest(self, most: int) -> Sequence[Finished]:
        """Return the operations that are over, newest first."""
        sql = "SELECT * FROM operations WHERE outcome IS NOT NULL ORDER BY id DESC LIMIT ?"

        def read(db: sqlite3.Connection) -> Sequence[Finished]:
            waiting = {row["id"]: row for row in self._spool.waiting}
            stored = {row["id"]: row for row in db.execute(sql, (most,))}
            found = {**stored, **waiting}
            newest = sorted(found, reverse=True)[:most]
            return decoded([found[number] for number in newest], to_finished)

        return await self._do(read, ())

    async def usual_ms(self, operation: Operation) -> float | None:
        """Return the median duration of like operations that were done; None: none yet.

        One that changes no unit is over at once, and says nothing of one that does.
        """
        like = (operation.kind.value, target_text(operation.target), Outcome.DONE.value)
        phases = [f'"{phase}"' for phase in (Phase.STOP, Phase.RELEASE)]
        values = (*like, *phases, int(operation.changes_units), _USUAL_ROWS)
        sql = (
            "SELECT coalesce(nullif(finished_s, 0) - nullif(began_s, 0), finished - began) * 1000"
            " FROM operations"
            " WHERE kind=? AND target=? AND outcome=?"
            " AND (instr(phases_ms, ?) > 0 OR instr(phases_ms, ?) > 0) = ? ORDER BY id DESC LIMIT ?"
        )

        def read(db: sqlite3.Connection) -> float | None:
            rows = [r[0] for r in db.execute(sql, values)]
            return median(rows) if rows else None

        return await self._do(read, None)

    async def repairs(self, since_unix_s: float) -> Mapping[str, Sequence[float]]:
        """Return the Unix seconds of repairs that began since then, by profile."""
        sql = "SELECT * FROM operations WHERE kind=? AND began>=? ORDER BY began"

        def read(db: sqlite3.Connection) -> Mapping[str, Sequence[float]]:
            found: dict[str, list[float]] = {}
            waiting = [row for row in self._spool.waiting if row["kind"] == Kind.REPAIR]
            rows = (*db.execute(sql, (Kind.REPAIR.value, since_unix_s)), *waiting)
            for operation in decoded(rows, to_operation):
                for name in operation.target:
                    found.setdefault(name, []).append(operation.began_unix_s)
            return found

        return await self._do(read, {})

    async def marks(self) -> Mapping[str, Mark]:
        """Return the marks that operators have set, by profile."""
        if self._marks is not None:
            return self._marks
        sql = "SELECT name, mark FROM marks"
        marks = await self._do(
            lambda db: dict(decoded(db.execute(sql), lambda row: (str(row[0]), Mark(row[1])))), None
        )
        if self._is_settled():
            self._marks = marks
        return marks or {}

    async def set_mark(self, name: str, mark: Mark, *, by: str) -> None:
        """Replace a mark. Raises `StoreError` if it could not be stored."""
        sql = (
            "INSERT INTO marks VALUES (?, ?, ?, unixepoch())"
            " ON CONFLICT (name) DO UPDATE SET mark=excluded.mark, set_by=excluded.set_by,"
            " set_at=excluded.set_at"
        )

        def write(db: sqlite3.Connection) -> bool:
            db.execute(sql, (name, mark.value, by))
            return not self._is_in_memory

        kept = await self._do(write, default=False)
        self._marks = None
        if not kept:
            raise StoreError(f"the mark of {name} could not be stored in {self._path}")

    def _is_settled(self) -> bool:
        """Tell whether the file holds every row: a row that waits may get another number there."""
        return not self._is_in_memory and not self._spool.waiting

    async def _do(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Do a job in the store's thread; `default` when the store cannot do it."""
        return await self._run(self._in_turn, job, default)

    # --- in the store's thread -------------------------------------------------------

    def _in_turn(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Do a job, after writing the rows that waited for room on the disk."""
        if self._spool.waiting and time.monotonic() >= self._offer_at_s:
            self._offer_at_s = time.monotonic() + self._retry_after_s
            self._attempt(self._store_waiting, None)
        return self._attempt(job, default)

    def _attempt(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        if self._is_in_memory and self._is_due():
            self._open()
        return super()._attempt(job, default)

    def _failed(self, error: Exception) -> None:
        super()._failed(error)
        _log.warning("the database %s could not be read or written: %s", self._path, error)
        if is_corrupt(error) and not self._is_opening:
            self._open()

    def _open(self) -> None:
        """Open the file; replace a damaged one, and retry later one that no disk holds."""
        self._is_opening = True
        try:
            self._open_file_or_memory()
            if not self._spool.known:
                self._spool.load()
            self._last_id = max(self._last_id, self._spool.last_id)
            if not self._is_in_memory:
                self._attempt(self._store_waiting, None)
        finally:
            self._is_opening = False

    def _open_file_or_memory(self) -> None:
        try:
            _, recovery = self._open_file()
        except (*DAMAGE, OSError) as error:
            _log.error("operations are kept in memory only: %s: %s", self._path, error)
            self._db = open_database(Path(":memory:"), OPERATIONS)
            self._is_in_memory = True
            self._retry_at_s = time.monotonic() + self._retry_after_s
        else:
            self._is_in_memory = False
            if recovery is not None:
                _log.error("%s", recovery)


def _highest_id(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(id), 0) FROM operations").fetchone()[0])


def _put(db: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert or replace the operation of this id, but never another operation with the same id.

    After a boot on a full disk it is not known which numbers the database has given away. Such an
    operation gets a new number there once it has ended.
    """
    taken = db.execute("SELECT began FROM operations WHERE id=?", (row["id"],)).fetchone()
    if taken is not None and taken[0] != row["began"]:
        if row.get("outcome") is None:
            return
        row = {**row, "id": _highest_id(db) + 1}
    put_row(db, row)


# --- the spool -----------------------------------------------------------------------


@dataclass(slots=True)
class OperationSpool:
    """Store of the open operation, and of those that the database does not have yet.

    Args:
        path: The file; None: nothing is kept beyond this process.
    """

    path: Path | None
    open: SpooledRow | None = None
    waiting: list[SpooledRow] = field(default_factory=list)
    last_id: int = 0
    """Highest number of an operation that was kept here."""
    known: bool = False
    """Whether anything was written in this boot: the spool then decides what is open, whatever a
    database says."""

    def load(self) -> None:
        """Read the file of an earlier process. A damaged file counts as empty.

        Raises:
            StoreError: a newer version wrote the file.
        """
        if self.path is None:
            return
        try:
            document = decode_json(read_small_file(self.path, _MOST_BYTES))
            version = int(document.get("version", _UNSTATED))
            if version <= SCHEMA_VERSION:
                self._take(document, version)
                return
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s is damaged: %s", self.path, error)
            return
        raise newer_error(self.path, version, known=SCHEMA_VERSION)

    def _take(self, document: dict[str, Any], version: int) -> None:
        """Take over the content of a file. Raises KeyError or TypeError for a damaged one."""
        rows = [*([document["open"]] if document["open"] else []), *document["waiting"]]
        if not all(isinstance(row["id"], int) for row in rows):
            raise TypeError("an operation without a number")
        rows = spooled_rows(rows, version)
        self.last_id = max([int(document.get("last_id", 0)), *(row["id"] for row in rows)])
        self.open = rows.pop(0) if document["open"] else None
        self.waiting, self.known = rows, True

    def keep(self, row: SpooledRow | None, *, finished: Sequence[SpooledRow] = ()) -> None:
        """Replace the open operation, and add finished ones for the database to take."""
        self.open, self.known = row, True
        self.waiting = [*self.waiting, *finished][-_MOST_WAITING:]
        new = [*finished, *([row] if row else [])]
        self.last_id = max([self.last_id, *(r["id"] for r in new)])
        self._write()

    def taken(self) -> None:
        """Forget the finished operations, which the database has taken."""
        self.waiting = []
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        document = {
            "version": SCHEMA_VERSION,
            "open": self.open,
            "waiting": self.waiting,
            "last_id": self.last_id,
        }
        try:
            replace_volatile(self.path, self.path.with_suffix(".new"), json.dumps(document))
        except OSError as error:
            _log.warning("the running operation could not be written to %s: %s", self.path, error)
