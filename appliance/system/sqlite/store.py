"""Store of operations and marks in SQLite.

A switch never fails because of this file: an unreadable one is renamed, and a new one begun. While
a disk is full or failing, operations are kept in a file in memory
(`system.sqlite.operation_spool`) until the database takes them. The files of
`system.commitment` hold what a boot follows, so rows are written without waiting for the disk
(WAL, synchronous=NORMAL): they only have to survive the death of this process.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from appliance.model.errors import StoreError
from appliance.model.operations import Finished, Kind, Operation, Outcome, Phase
from appliance.model.words import Mark
from appliance.status.history import median
from appliance.system.sqlite.database import (
    DAMAGE,
    decoded,
    drop_old,
    is_corrupt,
    open_database,
    open_or_replace,
    salvage_tables,
)
from appliance.system.sqlite.operation_rows import (
    to_finished,
    to_finished_row,
    to_operation,
    to_row,
)
from appliance.system.sqlite.operation_spool import OperationSpool
from appliance.system.sqlite.operation_tables import OPERATIONS, TABLES, put_row

_log = logging.getLogger(__name__)

_USUAL_ROWS: Final = 9
_RETRY_AFTER_S: Final = 10.0
"""Pause before a disk that refused a write is tried again; a full disk stays full for longer."""
T = TypeVar("T")
_NEWEST_ROWS: Final = 9
"""Rows among which the last operation is looked for; the first of them may be damaged."""


class SqliteStore:
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
        retry_after_s: float = _RETRY_AFTER_S,
    ) -> None:
        self._path = path
        self._keep_rows = keep_rows
        self._retry_after_s = retry_after_s
        self._spool = OperationSpool(spool)
        self._last_id = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._db: sqlite3.Connection | None = None
        self._is_opening = False
        self._offer_at_s = 0.0
        """Time when rows that the database refused are offered again."""
        self._retry_at_s: float | None = None
        """Time when the file is tried again, while a database in memory replaces it; None: it does
        not."""
        self._marks: Mapping[str, Mark] | None = None
        self._last: Finished | None = None
        """Last finished operation, which every status asks for; only this process writes the
        database."""

    async def open(self) -> None:
        """Open or create the file. Raises `StoreError` only for one of a newer version."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._open)

    async def close(self) -> None:
        """Close the file and end the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    async def begin(self, operation: Operation) -> Operation:
        """Add a row; returns the operation with its id, also when the disk takes nothing."""

        def add(db: sqlite3.Connection) -> Operation:
            with contextlib.suppress(sqlite3.Error):
                self._last_id = max(self._last_id, _highest_id(db))
            self._last_id += 1
            begun = replace(operation, id=self._last_id)
            self._keep(begun)
            return begun

        return await self._run(add, operation)

    def update(self, operation: Operation) -> None:
        """Replace the row's phase, direction and reason, soon and in order; does not wait."""
        self._thread.submit(self._try, lambda _db: self._keep(operation))

    def _keep(self, operation: Operation) -> None:
        """Write the open operation to the spool, and to the database if possible."""
        row = {"id": operation.id, **to_row(operation)}
        self._spool.keep(row)
        self._try(lambda db: _put(db, row))

    async def finish(self, finished: Finished) -> None:
        """Close the row."""
        row = to_finished_row(finished)

        def write(db: sqlite3.Connection) -> None:
            self._spool.keep(None, finished=[row])
            self._store_waiting(db)
            drop_old(db, "operations", kept=self._keep_rows)

        await self._run(write, None)
        self._last = None

    def _store_waiting(self, db: sqlite3.Connection) -> None:
        """Hand finished operations to the database. Raises sqlite3.Error when it refuses."""
        if self._spool.waiting and self._retry_at_s is None:
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

        return await self._run(read, None)

    async def last(self) -> Finished | None:
        """Return the operation that ended last."""
        if self._last is not None:
            return self._last
        sql = "SELECT * FROM operations WHERE outcome IS NOT NULL ORDER BY id DESC LIMIT ?"

        def read(db: sqlite3.Connection) -> Finished | None:
            waiting = self._spool.waiting  # newer than every row of the database
            rows = [*reversed(waiting), *db.execute(sql, (_NEWEST_ROWS,))]
            return next(iter(decoded(rows[:_NEWEST_ROWS], to_finished)), None)

        last = await self._run(read, None)
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

        return await self._run(read, None)

    async def newest(self, most: int) -> Sequence[Finished]:
        """Return the operations that are over, newest first."""
        sql = "SELECT * FROM operations WHERE outcome IS NOT NULL ORDER BY id DESC LIMIT ?"

        def read(db: sqlite3.Connection) -> Sequence[Finished]:
            waiting = {row["id"]: row for row in self._spool.waiting}
            stored = {row["id"]: row for row in db.execute(sql, (most,))}
            found = {**stored, **waiting}
            newest = sorted(found, reverse=True)[:most]
            return decoded([found[number] for number in newest], to_finished)

        return await self._run(read, ())

    async def usual_ms(self, operation: Operation) -> float | None:
        """Return the median duration of like operations that were done; None: none yet.

        One that changes no unit is over at once, and says nothing of one that does.
        """
        row = to_row(operation)
        like = (row["kind"], row["target"], Outcome.DONE.value)
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

        return await self._run(read, None)

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

        return await self._run(read, {})

    async def marks(self) -> Mapping[str, Mark]:
        """Return the marks that operators have set, by profile."""
        if self._marks is not None:
            return self._marks
        sql = "SELECT name, mark FROM marks"
        marks = await self._run(
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
            return self._retry_at_s is None

        kept = await self._run(write, default=False)
        self._marks = None
        if not kept:
            raise StoreError(f"the mark of {name} could not be stored in {self._path}")

    def _is_settled(self) -> bool:
        """Tell whether the file holds every row: a row that waits may get another number there."""
        return self._retry_at_s is None and not self._spool.waiting

    async def _run(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Run a job in the store's thread; `default` when the store cannot do it."""
        loop = asyncio.get_running_loop()
        done, result = await loop.run_in_executor(self._thread, self._in_turn, job)
        return default if not done or result is None else result

    # --- in the store's thread -------------------------------------------------------

    def _in_turn(self, job: Callable[[sqlite3.Connection], T]) -> tuple[bool, T | None]:
        """Try a job, after writing the rows that waited for room on the disk."""
        if self._spool.waiting and time.monotonic() >= self._offer_at_s:
            self._offer_at_s = time.monotonic() + self._retry_after_s
            self._try(self._store_waiting)
        return self._try(job)

    def _try(self, job: Callable[[sqlite3.Connection], T]) -> tuple[bool, T | None]:
        """Try a job; returns whether it could be done, and its result."""
        if self._retry_at_s is not None and time.monotonic() >= self._retry_at_s:
            self._open()
        if self._db is None:
            return False, None
        try:
            return True, job(self._db)
        except DAMAGE as error:
            _log.warning("the database %s could not be read or written: %s", self._path, error)
            if is_corrupt(error) and not self._is_opening:
                self._open()
            return False, None

    def _open(self) -> None:
        """Open the file; replace a damaged one, and retry later one that no disk holds."""
        self._is_opening = True
        try:
            self._open_file()
        finally:
            self._is_opening = False

    def _open_file(self) -> None:
        self._close()
        try:
            self._db, aside = open_or_replace(self._path, OPERATIONS)
            self._retry_at_s = None
            if aside is not None:
                copied = salvage_tables(aside, self._db, TABLES)
                _log.error(
                    "%s was damaged and is now %s; %d of its rows were kept",
                    *(self._path, aside, copied),
                )
        except (*DAMAGE, OSError) as error:
            _log.error("operations are kept in memory only: %s: %s", self._path, error)
            self._db = open_database(Path(":memory:"), OPERATIONS)
            self._retry_at_s = time.monotonic() + self._retry_after_s
        if not self._spool.known:
            self._spool.load()
        self._last_id = max(self._last_id, self._spool.last_id)
        if self._retry_at_s is None:
            self._try(self._store_waiting)

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _highest_id(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(id), 0) FROM operations").fetchone()[0])


def _put(db: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert or replace the operation of this id, but never another operation with the same id.

    After a boot on a full disk nobody knows which numbers the database has given away. Such an
    operation gets a new number there once it has ended.
    """
    taken = db.execute("SELECT began FROM operations WHERE id=?", (row["id"],)).fetchone()
    if taken is not None and taken[0] != row["began"]:
        if row.get("outcome") is None:
            return
        row = {**row, "id": _highest_id(db) + 1}
    put_row(db, row)
