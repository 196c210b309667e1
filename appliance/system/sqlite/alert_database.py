"""Database of alerts: in its file, or in memory while the file takes no rows.

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

So alerts are told while the disk is full; what is lost with the process is what was written then.
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from appliance.model.errors import StoreError
from appliance.system.sqlite.alert_schema import (
    ALERTS,
    make_alert_tables,
    replace_rows,
    salvage_alerts,
)
from appliance.system.sqlite.database import (
    DAMAGE,
    check,
    is_corrupt,
    open_or_replace,
    transaction,
)

_log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 10.0
"""Pause before a file that refused is tried again."""
_MOST_REPAIRS: Final = 2
T = TypeVar("T")


class AlertDatabase:
    """Database of alerts, for one thread.

    Args:
        path: The file.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, *, retry_after_s: float = RETRY_AFTER_S) -> None:
        self._path = path
        self._retry_after_s = retry_after_s
        self._retry_at_s = 0.0
        self._file: sqlite3.Connection | None = None
        self._memory: sqlite3.Connection | None = None
        """Database in place of the file; None: the file is in use, or nothing is open."""
        self._is_whole = False
        """Whether `_memory` began as a copy of the file."""
        self._is_newer = False
        self._fault: str | None = None
        self.first_id = 1
        """Lowest number for a row; where those that were given away are not known, the Unix second."""
        self.generation = 0
        """Number that changes when rows may have been lost, so that what is known of them is not."""
        self.recovery: str | None = None
        """Sentence about a damaged file that was replaced since the start; None: none was."""

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

    def open(self) -> None:
        """Open or create the file. Raises `StoreError` only for one of a newer version."""
        self._connect()
        if self._is_newer:
            raise StoreError(self._fault or "")

    def close(self) -> None:
        """Write what waits in memory, if the file takes it, and close."""
        self._retry_at_s = 0.0
        self._connect()
        for db in (self._file, self._memory):
            if db is not None:
                db.close()
        self._file = self._memory = None

    def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Do a job in one transaction. It may be done again, if the file breaks."""

        def in_transaction(db: sqlite3.Connection) -> T:
            with transaction(db):
                return job(db)

        return self.use(in_transaction)

    def use(self, job: Callable[[sqlite3.Connection], T]) -> T:
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

    # --- the file --------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        """Return the file, opened if it was closed, or the memory in its place."""
        if self._file is None and not self._is_newer and time.monotonic() >= self._retry_at_s:
            try:
                self._open_file()
            except (*DAMAGE, OSError, StoreError) as error:
                self._is_newer = isinstance(error, StoreError)
                self._close_file()
                return self._take_memory(error)
        return self._file or self._memory or self._take_memory(StoreError("not open"))

    def _open_file(self) -> None:
        """Open the file, replace a damaged one, and write what waits in memory."""
        self._file, aside = open_or_replace(self._path, ALERTS)
        if aside is not None:
            copied = salvage_alerts(aside, self._file)
            self.recovery = (
                f"{self._path} was damaged and is now {aside}; {copied} of its rows were kept"
            )
            _log.error("%s", self.recovery)
            self._forget_numbers()
        if self._memory is not None:
            with transaction(self._file):
                replace_rows(self._memory, self._file, is_whole=self._is_whole)
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
        self._retry_at_s = time.monotonic() + self._retry_after_s
        if self._fault is None:
            _log.error("alerts cannot be stored in %s: %s", self._path, error)
        self._fault = str(error)
        if self._memory is None:
            self._memory, self._is_whole = self._copy()
        self._close_file()
        return self._memory

    def _copy(self) -> tuple[sqlite3.Connection, bool]:
        """Return a copy of the file, or new tables; and whether it is a copy."""
        if self._file is not None:
            memory = _memory()
            try:
                self._file.backup(memory)
            except DAMAGE as error:
                _log.warning("%s cannot be read: %s", self._path, error)
                memory.close()
            else:
                return memory, True
        memory = _memory()
        make_alert_tables(memory, 0)
        self._forget_numbers()
        return memory, False

    def _forget_numbers(self) -> None:
        self.first_id = int(time.time())
        self.generation += 1

    def _close_file(self) -> None:
        db, self._file = self._file, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()


def _memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    return db


def _is_whole(db: sqlite3.Connection) -> bool:
    try:
        check(db)
    except DAMAGE:
        return False
    return True
