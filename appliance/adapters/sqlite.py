"""Operations and marks in SQLite.

A switch never fails because of this file: an unreadable one is set aside and begun anew, a
full or failing disk is logged once a failure and the row is forgotten. What must not be lost
is in the commitment's own files, so rows are written without waiting for the disk (WAL,
synchronous=NORMAL): they only have to survive the death of this process.
"""

import asyncio
import contextlib
import json
import logging
import sqlite3
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from appliance.adapters.operation_rows import to_finished, to_operation, to_row
from appliance.domain.errors import StoreError
from appliance.domain.operations import Finished, Kind, Operation, Outcome
from appliance.domain.profile import Mark

_log = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE operations (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, goal TEXT NOT NULL,
  boot_id TEXT NOT NULL, requested_by TEXT NOT NULL, began REAL NOT NULL,
  rollback INTEGER NOT NULL, drain_s REAL, phase TEXT NOT NULL,
  rolling_back INTEGER NOT NULL, reason TEXT NOT NULL,
  outcome TEXT, message TEXT, finished REAL, phases_ms TEXT
) STRICT;
CREATE INDEX operations_began ON operations (began);
CREATE TABLE marks (
  name TEXT PRIMARY KEY, mark TEXT NOT NULL, set_by TEXT NOT NULL, set_at REAL NOT NULL
) STRICT;
"""
_USUAL_ROWS: Final = 9
T = TypeVar("T")
_DAMAGED: Final = (sqlite3.Error, ValueError, KeyError, TypeError)


class SqliteStore:
    """The port `Store`. All access happens in one thread of its own."""

    def __init__(self, path: Path, *, keep_rows: int) -> None:
        self._path = path
        self._keep_rows = keep_rows
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._db: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open or create the file. Raises `StoreError` only for one of a newer version."""
        loop = asyncio.get_running_loop()
        self._db = await loop.run_in_executor(self._thread, self._open)

    async def close(self) -> None:
        """Close the file and end the thread."""
        db, self._db = self._db, None
        if db is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, db.close)
        self._thread.shutdown()

    async def begin(self, operation: Operation) -> Operation:
        """Add a row; returns the operation with its id (0 when it could not be stored)."""
        row = to_row(operation)
        columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)

        def insert(db: sqlite3.Connection) -> int:
            sql = f"INSERT INTO operations ({columns}) VALUES ({places})"  # noqa: S608 - our names
            done = db.execute(sql, row).lastrowid or 0
            db.execute("DELETE FROM operations WHERE id <= ?", (done - self._keep_rows,))
            return done

        return replace(operation, id=await self._run(insert, 0))

    def update(self, operation: Operation) -> None:
        """Replace the row's phase, direction and reason, soon and in order; does not wait."""
        values = (
            operation.phase.value,
            int(operation.rolling_back),
            operation.reason,
            operation.id,
        )
        sql = "UPDATE operations SET phase=?, rolling_back=?, reason=? WHERE id=?"
        if self._db is not None:
            self._thread.submit(self._try, lambda db: db.execute(sql, values), self._db)

    async def finish(self, finished: Finished) -> None:
        """Close the row."""
        values = (
            finished.outcome.value,
            finished.message,
            finished.finished_unix_s,
            json.dumps(dict(finished.phases_ms)),
            finished.operation.phase.value,
            finished.operation.id,
        )
        sql = (
            "UPDATE operations SET outcome=?, message=?, finished=?, phases_ms=?, phase=?"
            " WHERE id=?"
        )
        await self._run(lambda db: db.execute(sql, values), None)

    async def unfinished(self) -> Operation | None:
        """The operation that an earlier process left open."""
        sql = "SELECT * FROM operations WHERE outcome IS NULL ORDER BY id DESC LIMIT 1"

        def read(db: sqlite3.Connection) -> Operation | None:
            row = db.execute(sql).fetchone()
            return None if row is None else to_operation(row)

        return await self._run(read, None)

    async def last(self) -> Finished | None:
        """The operation that ended last."""
        sql = "SELECT * FROM operations WHERE outcome IS NOT NULL ORDER BY id DESC LIMIT 1"

        def read(db: sqlite3.Connection) -> Finished | None:
            row = db.execute(sql).fetchone()
            return None if row is None else to_finished(row)

        return await self._run(read, None)

    async def usual_ms(self, operation: Operation) -> float | None:
        """Median duration of like operations that were done; None: none yet."""
        row = to_row(operation)
        values = (row["kind"], row["target"], Outcome.DONE.value, _USUAL_ROWS)
        sql = (
            "SELECT (finished - began) * 1000 FROM operations"
            " WHERE kind=? AND target=? AND outcome=? ORDER BY id DESC LIMIT ?"
        )

        def read(db: sqlite3.Connection) -> float | None:
            rows = [r[0] for r in db.execute(sql, values)]
            return statistics.median(rows) if rows else None

        return await self._run(read, None)

    async def repairs(self, since_unix_s: float) -> Mapping[str, Sequence[float]]:
        """Unix seconds of repairs that began since then, by profile."""
        sql = "SELECT * FROM operations WHERE kind=? AND began>=? ORDER BY began"

        def read(db: sqlite3.Connection) -> Mapping[str, Sequence[float]]:
            found: dict[str, list[float]] = {}
            for row in db.execute(sql, (Kind.REPAIR.value, since_unix_s)):
                for name in to_operation(row).target:
                    found.setdefault(name, []).append(row["began"])
            return found

        return await self._run(read, {})

    async def marks(self) -> Mapping[str, Mark]:
        """Marks set by people, by profile."""
        sql = "SELECT name, mark FROM marks"
        return await self._run(lambda db: {n: Mark(m) for n, m in db.execute(sql)}, {})

    async def set_mark(self, name: str, mark: Mark, *, by: str) -> None:
        """Replace a mark. Raises `StoreError`: a mark that is not kept was not set."""
        sql = (
            "INSERT INTO marks VALUES (?, ?, ?, unixepoch())"
            " ON CONFLICT (name) DO UPDATE SET mark=excluded.mark, set_by=excluded.set_by,"
            " set_at=excluded.set_at"
        )

        def write(db: sqlite3.Connection) -> bool:
            db.execute(sql, (name, mark.value, by))
            return True

        if not await self._run(write, default=False):
            raise StoreError(f"the mark of {name} could not be stored in {self._path}")

    async def _run(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Run a job in the store's thread; `default` when the store cannot do it."""
        if self._db is None:
            return default
        loop = asyncio.get_running_loop()
        done, result = await loop.run_in_executor(self._thread, self._try, job, self._db)
        return default if not done or result is None else result

    def _try(
        self, job: Callable[[sqlite3.Connection], T], db: sqlite3.Connection
    ) -> tuple[bool, T | None]:
        """In the store's thread: whether it could be done, and the result."""
        try:
            return True, job(db)
        except _DAMAGED as error:
            _log.warning("state not kept in %s: %s", self._path, error)
            return False, None

    def _open(self) -> sqlite3.Connection:
        try:
            return _opened(self._path)
        except sqlite3.Error as error:
            _log.warning("%s cannot be used (%s): set aside, begun anew", self._path, error)
        with contextlib.suppress(OSError):
            self._path.replace(self._path.with_suffix(".damaged"))
        try:
            return _opened(self._path)
        except sqlite3.Error as error:
            _log.error("no state is kept: %s: %s", self._path, error)
            return _opened(Path(":memory:"))


def _opened(path: Path) -> sqlite3.Connection:
    """A connection to a file of this schema. Raises `StoreError` for a newer one."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
    try:
        db.row_factory = sqlite3.Row
        version = _checked_version(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        if version == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _checked_version(db: sqlite3.Connection, path: Path) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer appliance (schema {version}, this one knows"
            f" {SCHEMA_VERSION}): install that version again"
        )
    return int(version)
