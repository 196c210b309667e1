"""Tables of alerts: states, transitions, outbox, silences, windows, tokens.

A row of `transitions` takes about 0.4 KiB, one of `outbox` 0.7 KiB: the most that is kept of both is
12 MiB.
"""

import sqlite3
from pathlib import Path
from typing import Final

from appliance.model.alerts import OutboxState
from appliance.system.sqlite.database import Schema, drop_old, make_tables, salvage_tables

KEPT_TRANSITIONS: Final = 10_000
KEPT_ROWS: Final = 10_000
"""Rows of the outbox back to which those that do not wait are kept."""
_PAGES_A_STEP: Final = 64
"""Free pages that a pruning gives back to the disk."""

# What must not be lost first.
TABLES: Final = {
    "meta": """
  name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    "states": """
  subject TEXT NOT NULL, rule TEXT NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY (subject, rule)) STRICT, WITHOUT ROWID""",
    "silences": """
  name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    "windows": """
  name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    "outbox": """
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, target TEXT NOT NULL, alert TEXT NOT NULL,
  episode INTEGER NOT NULL, transition TEXT NOT NULL, created_unix_s REAL NOT NULL,
  not_before_unix_s REAL NOT NULL, is_digest INTEGER NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL, tried_unix_s REAL, retry_unix_s REAL NOT NULL,
  settled_unix_s REAL, text TEXT NOT NULL) STRICT""",
    "transitions": """
  id INTEGER PRIMARY KEY, subject TEXT NOT NULL, alert TEXT NOT NULL, episode INTEGER NOT NULL,
  document TEXT NOT NULL) STRICT""",
    "tokens": """
  hash TEXT PRIMARY KEY, alert TEXT NOT NULL, action TEXT NOT NULL, expires_unix_s REAL NOT NULL,
  used_unix_s REAL) STRICT, WITHOUT ROWID""",
}
WAITS: Final = f"state IN ('{OutboxState.QUEUED}', '{OutboxState.SENDING}')"
_INDEXES: Final = (
    f"CREATE INDEX outbox_waiting ON outbox (target, id) WHERE {WAITS}",
    f"CREATE INDEX outbox_waiting_of ON outbox (alert) WHERE {WAITS}",
    f"CREATE INDEX outbox_sent ON outbox (target, settled_unix_s) WHERE state = '{OutboxState.SENT}'",
    f"CREATE INDEX outbox_dead ON outbox (id) WHERE state = '{OutboxState.DEAD}'",
    "CREATE INDEX transitions_of ON transitions (subject, id)",
    "CREATE INDEX tokens_age ON tokens (expires_unix_s)",
)


def make_alert_tables(db: sqlite3.Connection, _version: int) -> None:
    """Make the tables; there is no earlier version."""
    make_tables(db, TABLES, _INDEXES)


ALERTS: Final = Schema(
    version=1,
    migrate=make_alert_tables,
    pragmas=("auto_vacuum=INCREMENTAL", "synchronous=FULL"),
    is_checked=True,
)


def salvage_alerts(damaged: Path, db: sqlite3.Connection) -> int:
    """Copy the rows that can be read of a damaged database; returns how many."""
    return salvage_tables(damaged, db, TABLES)


def replace_rows(source: sqlite3.Connection, db: sqlite3.Connection, *, is_whole: bool) -> None:
    """Copy all rows into the tables of another database, inside a transaction of it.

    Args:
        source: The database with the rows.
        db: The other one.
        is_whole: Whether `source` has all rows, so that those that it lacks were deleted.
    """
    for table in TABLES:
        if is_whole:
            db.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
        rows = source.execute(f"SELECT * FROM {table}")  # noqa: S608 - our names
        places = ", ".join("?" * len(rows.description))
        db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", rows)  # noqa: S608


def prune(db: sqlite3.Connection, *, now_unix_s: float) -> None:
    """Drop what is older than the retention, inside a transaction; rows that wait are kept."""
    drop_old(db, "transitions", kept=KEPT_TRANSITIONS)
    drop_old(db, "outbox", kept=KEPT_ROWS, condition=f"AND NOT {WAITS}")
    db.execute("DELETE FROM tokens WHERE expires_unix_s < ?", (now_unix_s,))


def give_pages_back(db: sqlite3.Connection) -> None:
    """Give free pages back to the disk, a bounded number; outside a transaction."""
    # `execute` stops after one page, because the statement has rows without columns.
    db.executescript(f"PRAGMA incremental_vacuum({_PAGES_A_STEP})")
