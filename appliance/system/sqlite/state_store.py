"""Store of the record of profiles' states in SQLite, small and bounded.

A fault of the file costs the record, nothing else: it is logged once, and the file is tried again after a
while. A change that could not be written is found again by the next observation.
"""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.status.state_record import (
    KEPT_S,
    MOST_OF_A_PROFILE,
    MOST_TOLD,
    StateChange,
    state_changes,
)
from appliance.system.sqlite.database import Schema, transaction
from appliance.system.sqlite.store import SqliteStore, insert, rows_as, to_row

_log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 60.0
_SEEN_EVERY_S: Final = 60.0
"""Pause between two notes that the box was still observed: less than a gap that is shown as unknown."""
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

STATES: Final = Schema(
    version=1,
    tables={
        "changes": """
  id INTEGER PRIMARY KEY, unix_s REAL NOT NULL, profile TEXT NOT NULL, state TEXT NOT NULL) STRICT""",
        "observed": "id INTEGER PRIMARY KEY CHECK (id = 1), until_unix_s REAL NOT NULL) STRICT",
    },
    indexes=("CREATE INDEX changes_of ON changes (profile, id)",),
    pragmas=("synchronous=NORMAL",),
)


class StateStore(SqliteStore):
    """Store of states.

    Args:
        path: The database.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, *, retry_after_s: float = _RETRY_AFTER_S) -> None:
        super().__init__(path, STATES, retry_after_s=retry_after_s)
        self._last: dict[str, str] = {}
        self._until: float | None = None
        """Last observation, in Unix seconds; None: there was none."""
        self._written: float = float("-inf")
        """Last observation that the file has."""

    async def observe(self, seen: Mapping[str, str], now: float) -> None:
        """Add what has changed since the last observation.

        Args:
            seen: State of each profile.
            now: Unix seconds.
        """
        await self._run(self._attempt, lambda db: self._observe(db, seen, now), None)

    async def changes(self) -> tuple[Sequence[StateChange], float | None]:
        """Return the newest changes, the oldest first, and the time of the last observation; None: none."""
        nothing: tuple[Sequence[StateChange], float | None] = ((), self._until)
        return await self._run(self._attempt, self._read, nothing)

    # --- in the store's thread -------------------------------------------------------

    def _observe(self, db: sqlite3.Connection, seen: Mapping[str, str], now: float) -> None:
        found = list(state_changes(self._last, seen, until=self._until, now=now))
        if found or abs(now - self._written) >= _SEEN_EVERY_S:
            with transaction(db):
                for change in found:
                    insert(db, "changes", to_row(change))
                for profile in {change.profile for change in found}:
                    db.execute(_DROP_MANY, {"profile": profile, "kept": MOST_OF_A_PROFILE})
                for statement in (_DROP_OLD, _DROP_GONE):
                    db.execute(statement, {"before": now - KEPT_S})
                _note(db, now)
            self._written = now
        self._last.update({change.profile: change.state for change in found})
        self._until = now
        self._fault = None

    def _read(self, db: sqlite3.Connection) -> tuple[Sequence[StateChange], float | None]:
        changes = rows_as(StateChange, db.execute(_NEWEST, {"most": MOST_TOLD}))
        self._fault = None
        return changes[::-1], self._until

    def _open(self) -> None:
        try:
            super()._open()
        except StoreError as error:  # of a newer version
            self._failed(error)

    def _opened(self, db: sqlite3.Connection, recovery: str | None) -> None:  # noqa: ARG002 - rows say what was kept
        changes = rows_as(StateChange, db.execute(_LAST))
        self._last = {change.profile: change.state for change in changes}
        observed = db.execute("SELECT until_unix_s FROM observed").fetchone()
        if self._until is None and observed is not None and isinstance(observed[0], float):
            self._until = observed[0]

    def _failed(self, error: Exception) -> None:
        if self._fault is None:
            _log.error("states of profiles are not recorded in %s: %s", self._path, error)
        super()._failed(error)
        self._close_file()

    def _close(self) -> None:
        if self._db is not None and self._until is not None:
            until = self._until
            self._attempt(lambda db: _note(db, until), None)
        self._close_file()


def _note(db: sqlite3.Connection, until: float) -> None:
    """Note the time of the last observation."""
    row = {"id": 1, "until_unix_s": until}
    insert(db, "observed", row, "ON CONFLICT DO UPDATE SET until_unix_s = excluded.until_unix_s")
