"""Database of operations and marks: opened at its present version, migrated forward only."""

import contextlib
import logging
import sqlite3
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from appliance.adapters.sqlite.operation_rows import SCHEMA_VERSION, from_version_1
from appliance.adapters.sqlite.operation_spool import newer_error

_log = logging.getLogger(__name__)

_OPERATIONS: Final = """
CREATE TABLE operations (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, goal TEXT NOT NULL,
  boot_id TEXT NOT NULL, requested_by TEXT NOT NULL, began REAL NOT NULL, began_s REAL,
  rollback INTEGER NOT NULL, drain_s REAL, phase TEXT NOT NULL, cause TEXT, reason TEXT NOT NULL,
  outcome TEXT, message TEXT, finish_cause TEXT, finished REAL, finished_s REAL, phases_ms TEXT
) STRICT"""
_BEGAN: Final = "CREATE INDEX operations_began ON operations (began)"
_MARKS: Final = """
CREATE TABLE marks (
  name TEXT PRIMARY KEY, mark TEXT NOT NULL, set_by TEXT NOT NULL, set_at REAL NOT NULL
) STRICT"""


def open_database(path: Path) -> sqlite3.Connection:
    """Open a file, new or of any version so far. Raises `StoreError` for a newer version."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
    try:
        db.row_factory = sqlite3.Row
        version = _readable_version(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        if version != SCHEMA_VERSION:
            _bring_up_to_date(db, version)
    except BaseException:
        db.close()
        raise
    return db


def _readable_version(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of a file, 0 for a new one. Raises `StoreError` for a newer version."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise newer_error(path, version)
    return int(version)


def _bring_up_to_date(db: sqlite3.Connection, version: int) -> None:
    """Make or migrate the tables in one transaction, so that a killed process changes nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        old = [] if version == 0 else _taken_out(db)
        for statement in (_OPERATIONS, _BEGAN, *([_MARKS] if version == 0 else [])):
            db.execute(statement)
        for row in old:
            put_row(db, row)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _taken_out(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Drop the table of version 1, and return its rows in the form of this version."""
    try:
        rows = [from_version_1(old) for old in db.execute("SELECT * FROM operations")]
    except (KeyError, TypeError, AttributeError) as error:
        raise sqlite3.DatabaseError(f"no row of version 1: {error}") from error
    db.execute("DROP TABLE operations")
    return rows


def put_row(db: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert or replace the operation of the row's id."""
    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    sql = f"INSERT OR REPLACE INTO operations ({columns}) VALUES ({places})"  # noqa: S608 - our names
    db.execute(sql, dict(row))


def set_odd_aside(path: Path) -> None:
    """Rename a path that is no regular file, on which SQLite might wait. Raises OSError."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = path.with_name(f"{path.name}{suffix}")
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(file.stat().st_mode):
                _log.warning("%s is no regular file: renamed, and a new database begun", file)
                file.replace(file.with_name(f"{file.name}.damaged"))
