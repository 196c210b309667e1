"""Store of the record of profiles' states in SQLite, small and bounded.

A fault of the file costs the record, nothing else: it is logged once, and the file is tried again after a
while. A change that could not be written is found again by the next observation.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from appliance.model.errors import StoreError
from appliance.status.state_record import (
    KEPT_S,
    MOST_OF_A_PROFILE,
    MOST_TOLD,
    StateChange,
    state_changes,
)
from appliance.system.sqlite.database import (
    DAMAGE,
    Schema,
    decoded,
    insert,
    make_tables,
    open_or_replace,
    salvage_tables,
    transaction,
)
from appliance.wire.typed_json import from_json

_log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 60.0
_SEEN_EVERY_S: Final = 60.0
"""Pause between two notes that the box was still observed: less than the gap that is told as one."""
_TABLES: Final = {
    "changes": """
  id INTEGER PRIMARY KEY, unix_s REAL NOT NULL, profile TEXT NOT NULL, state TEXT NOT NULL) STRICT""",
    "observed": "id INTEGER PRIMARY KEY CHECK (id = 1), until_unix_s REAL NOT NULL) STRICT",
}
_INDEXES: Final = ("CREATE INDEX changes_of ON changes (profile, id)",)
_LAST: Final = "SELECT unix_s, profile, state FROM changes WHERE id IN (SELECT max(id) FROM changes GROUP BY profile)"
_DROP_OLD: Final = (
    "DELETE FROM changes WHERE unix_s < :before"
    " AND id NOT IN (SELECT max(id) FROM changes GROUP BY profile)"
)
_DROP_MANY: Final = (
    "DELETE FROM changes WHERE profile = :profile AND id <= (SELECT id FROM changes"
    " WHERE profile = :profile ORDER BY id DESC LIMIT 1 OFFSET :kept)"
)
_DROP_GONE: Final = "DELETE FROM changes WHERE unix_s < :before AND state = 'unknown'"
_NEWEST: Final = "SELECT unix_s, profile, state FROM changes ORDER BY id DESC LIMIT :most"
T = TypeVar("T")

STATES: Final = Schema(
    version=1,
    migrate=lambda db, _version: make_tables(db, _TABLES, _INDEXES),
    pragmas=("synchronous=NORMAL",),
    is_checked=True,
)


class StateStore:
    """Store of states. One thread of its own does all access.

    Args:
        path: The database.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, *, retry_after_s: float = _RETRY_AFTER_S) -> None:
        self._path = path
        self._retry_after_s = retry_after_s
        self._retry_at_s = 0.0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="states")
        self._db: sqlite3.Connection | None = None
        self._last: dict[str, str] = {}
        self._until: float | None = None
        """Last observation, in Unix seconds; None: there was none."""
        self._written: float = float("-inf")
        """Last observation that the file has."""
        self._fault = ""

    async def observe(self, seen: Mapping[str, str], now: float) -> None:
        """Add what has changed since the last observation.

        Args:
            seen: State of each profile.
            now: Unix seconds.
        """
        await self._run(lambda: self._attempt(lambda db: self._observe(db, seen, now), None))

    async def changes(self) -> tuple[Sequence[StateChange], float | None]:
        """Return the newest changes, the oldest first, and the time of the last observation; None: none."""
        nothing: tuple[Sequence[StateChange], float | None] = ((), self._until)
        return await self._run(lambda: self._attempt(self._read, nothing))

    async def close(self) -> None:
        """Note the last observation, close the file and end the thread."""
        await self._run(self._end)
        self._thread.shutdown()

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _observe(self, db: sqlite3.Connection, seen: Mapping[str, str], now: float) -> None:
        found = list(state_changes(self._last, seen, until=self._until, now=now))
        if found or abs(now - self._written) >= _SEEN_EVERY_S:
            with transaction(db):
                for change in found:
                    row = {
                        "unix_s": change.unix_s,
                        "profile": change.profile,
                        "state": change.state,
                    }
                    insert(db, "changes", row)
                for profile in {change.profile for change in found}:
                    db.execute(_DROP_MANY, {"profile": profile, "kept": MOST_OF_A_PROFILE})
                for statement in (_DROP_OLD, _DROP_GONE):
                    db.execute(statement, {"before": now - KEPT_S})
                _note(db, now)
            self._written = now
        self._last.update({change.profile: change.state for change in found})
        self._until = now

    def _read(self, db: sqlite3.Connection) -> tuple[Sequence[StateChange], float | None]:
        rows = db.execute(_NEWEST, {"most": MOST_TOLD})
        return decoded(rows, _to_change)[::-1], self._until

    def _attempt(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        if self._db is None and time.monotonic() < self._retry_at_s:
            return default
        try:
            if self._db is None:
                self._db = self._open()
            found = job(self._db)
        except (*DAMAGE, OSError, StoreError) as error:
            self._failed(error)
            return default
        self._fault = ""
        return found

    def _open(self) -> sqlite3.Connection:
        db, aside = open_or_replace(self._path, STATES)
        if aside is not None:
            salvage_tables(aside, db, _TABLES)
        changes = decoded(db.execute(_LAST), _to_change)
        self._last = {change.profile: change.state for change in changes}
        observed = db.execute("SELECT until_unix_s FROM observed").fetchone()
        if self._until is None and observed is not None and isinstance(observed[0], float):
            self._until = observed[0]
        return db

    def _failed(self, error: Exception) -> None:
        if not self._fault:
            _log.error("states of profiles are not recorded in %s: %s", self._path, error)
        self._fault = str(error)
        self._retry_at_s = time.monotonic() + self._retry_after_s
        self._close()

    def _end(self) -> None:
        if self._db is not None and self._until is not None:
            until = self._until
            self._attempt(lambda db: _note(db, until), None)
        self._close()

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _to_change(row: sqlite3.Row) -> StateChange:
    return from_json(StateChange, dict(row))


def _note(db: sqlite3.Connection, until: float) -> None:
    """Note the time of the last observation."""
    row = {"id": 1, "until_unix_s": until}
    insert(db, "observed", row, "ON CONFLICT DO UPDATE SET until_unix_s = excluded.until_unix_s")
