"""Tables of operations and marks, and their migrations; operations as rows.

The database and the spool file (`operation_store`) both hold these rows, in the form of one schema version. Versions:

1  `rolling_back` 0 or 1, and the reason as a text alone; `began_s` and `finished_s` were added later
2  `cause` and `finish_cause` (`appliance.model.operations.Cause`); `rolling_back` is gone
3  `ends`
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from appliance.model.operations import Cause, Finished, Kind, Operation, Outcome
from appliance.system.sqlite.database import Schema
from appliance.system.sqlite.store import Row, from_row, insert, row_document, to_row

SCHEMA_VERSION: Final = 3
_TABLES: Final = {
    "marks": """
  name TEXT PRIMARY KEY, mark TEXT NOT NULL, set_by TEXT NOT NULL, set_at REAL NOT NULL
) STRICT""",
    "operations": """
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, goal TEXT NOT NULL,
  boot_id TEXT NOT NULL, requested_by TEXT NOT NULL, began REAL NOT NULL, began_s REAL,
  rollback INTEGER NOT NULL, drain_s REAL, phase TEXT NOT NULL, ends TEXT NOT NULL,
  cause TEXT, reason TEXT NOT NULL,
  outcome TEXT, message TEXT, finish_cause TEXT, finished REAL, finished_s REAL, phases_ms TEXT
) STRICT""",
}
_BEGAN: Final = "CREATE INDEX operations_began ON operations (began)"


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Make the tables, of those of an earlier version if there are any."""
    rows = []
    if version:
        rows = [_brought_up(old, version) for old in db.execute("SELECT * FROM operations")]
        db.execute("DROP TABLE operations")
    # In this order the first pages of every file are the same (`database`).
    db.execute(f"CREATE TABLE operations ({_TABLES['operations']}")
    db.execute(_BEGAN)
    if not version:
        db.execute(f"CREATE TABLE marks ({_TABLES['marks']}")
    for row in rows:
        put_row(db, row)


OPERATIONS: Final = Schema(
    version=SCHEMA_VERSION,
    tables=_TABLES,
    pragmas=("synchronous=NORMAL",),
    migrate=_migrate,
)


def put_row(db: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert or replace the operation of the row's id."""
    insert(db, "operations", row, verb="INSERT OR REPLACE")


# --- operations as rows --------------------------------------------------------------


def target_text(target: Sequence[str]) -> str:
    """Return the text of an operation's target, by which rows of all releases are found."""
    return json.dumps(target)


def to_operation_row(operation: Operation) -> dict[str, Any]:
    """Return the columns of an operation that goes on."""
    return {
        **to_row(operation, "target", "began_unix_s"),
        "target": target_text(operation.target),
        "began": operation.began_unix_s,
    }


def to_finished_row(finished: Finished) -> dict[str, Any]:
    """Return every column of an operation that is over."""
    return {
        **to_operation_row(finished.operation),
        **to_row(finished, "operation", "finished_unix_s", "cause"),
        "finished": finished.finished_unix_s,
        "finish_cause": finished.cause,
    }


def to_operation(row: Row) -> Operation:
    """Return the operation of a row. Raises an error of `database.DAMAGE` for a damaged one."""
    return from_row(Operation, row, **_times(row))


def to_finished(row: Row) -> Finished:
    """Return the closed operation of a row. Raises like `to_operation`."""
    return from_row(
        Finished,
        row,
        operation=row_document(Operation, row, **_times(row)),
        cause=row["finish_cause"],
        finished_unix_s=row["finished"],
        finished_s=row["finished_s"] or 0.0,
    )


def _times(row: Row) -> Mapping[str, object]:
    """Return the times of an operation's begin; that of the monotonic clock may be unknown."""
    return {"began_unix_s": row["began"], "began_s": row["began_s"] or 0.0}


# --- earlier versions ----------------------------------------------------------------


def spooled_rows(rows: Sequence[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """Return rows of a spool file in the form of this version. Raises like `to_operation`."""
    return [row if version == SCHEMA_VERSION else _brought_up(row, version) for row in rows]


def _brought_up(row: Row, version: int) -> dict[str, Any]:
    """Return a row of an earlier version in the form of this one. Raises like `to_operation`."""
    found = _from_version_1(row) if version == 1 else dict(row)
    found.setdefault("ends", "{}")
    return found


_CANCELLED_1: Final = "cancelled"
_COMMAND_ENDED_1: Final = "the command ended"
"""Beginning of the reason of a run whose command was over, in version 1."""
_WITH_CAUSE: Final = frozenset({Outcome.ROLLED_BACK, Outcome.FAILED, Outcome.REFUSED})


def _from_version_1(old: Row) -> dict[str, Any]:
    """Return a row of version 1 in the form of version 2. Raises like `to_operation`."""
    row = dict(old)
    row["cause"] = _cause_1(row["kind"], row["reason"]) if row.pop("rolling_back") else None
    row.setdefault("began_s", None)
    if row.get("outcome") is not None:
        is_undone = row["outcome"] in _WITH_CAUSE
        # Where the roll-back failed, the message is longer than the reason.
        is_cancelled = row["message"] == _CANCELLED_1
        cause = Cause.CANCELLED if is_cancelled else Cause.FAILURE
        row["finish_cause"] = cause if is_undone else None
        row.setdefault("finished_s", None)
    return row


def _cause_1(kind: str, reason: str) -> Cause:
    """Return the cause that a reason of version 1 stands for."""
    if kind == Kind.RUN and reason.startswith(_COMMAND_ENDED_1):
        return Cause.COMMAND_ENDED
    return Cause.CANCELLED if reason == _CANCELLED_1 else Cause.FAILURE
