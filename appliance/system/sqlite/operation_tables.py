"""Tables of operations and marks, and their migrations."""

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from appliance.system.sqlite.database import Schema
from appliance.system.sqlite.operation_rows import SCHEMA_VERSION, brought_up

_OPERATIONS: Final = """
CREATE TABLE operations (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, goal TEXT NOT NULL,
  boot_id TEXT NOT NULL, requested_by TEXT NOT NULL, began REAL NOT NULL, began_s REAL,
  rollback INTEGER NOT NULL, drain_s REAL, phase TEXT NOT NULL, ends TEXT NOT NULL,
  cause TEXT, reason TEXT NOT NULL,
  outcome TEXT, message TEXT, finish_cause TEXT, finished REAL, finished_s REAL, phases_ms TEXT
) STRICT"""
_BEGAN: Final = "CREATE INDEX operations_began ON operations (began)"
_MARKS: Final = """
CREATE TABLE marks (
  name TEXT PRIMARY KEY, mark TEXT NOT NULL, set_by TEXT NOT NULL, set_at REAL NOT NULL
) STRICT"""


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Make the tables, of those of an earlier version if there are any."""
    old = [] if version == 0 else _taken_out(db, version)
    for statement in (_OPERATIONS, _BEGAN, *([_MARKS] if version == 0 else [])):
        db.execute(statement)
    for row in old:
        put_row(db, row)


def _taken_out(db: sqlite3.Connection, version: int) -> list[dict[str, Any]]:
    """Drop the table of an earlier version, and return its rows in the form of this version."""
    rows = [brought_up(old, version) for old in db.execute("SELECT * FROM operations")]
    db.execute("DROP TABLE operations")
    return rows


def put_row(db: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert or replace the operation of the row's id."""
    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    sql = f"INSERT OR REPLACE INTO operations ({columns}) VALUES ({places})"  # noqa: S608 - our names
    db.execute(sql, dict(row))


OPERATIONS: Final = Schema(
    version=SCHEMA_VERSION, migrate=_migrate, pragmas=("synchronous=NORMAL",), is_checked=True
)
TABLES: Final = ("marks", "operations")
"""Names of the tables, what must not be lost first."""
