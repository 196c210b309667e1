"""Tables of the alert book: states, silences, windows, its numbers, and the memory of the rules.

Of a book only what differs from the stored one is written.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from appliance.alerts.book import AlertBook, AlertKey, AlertState, Evaluation
from appliance.model.alerts import AlertPhase
from appliance.system.sqlite.alert_rows import (
    book_document,
    to_book,
    to_document,
    to_silence,
    to_state,
    to_window,
)
from appliance.system.sqlite.database import decoded

LAZY_S: Final = 60.0
"""Time for which an evaluation that changes little may wait."""
_NUMBERS_OF: Final = (
    "SELECT alert, episode FROM transitions UNION SELECT alert, episode FROM outbox"
)


class BookTable:
    """Alert book in a database, with what is known of the last one that was written."""

    def __init__(self) -> None:
        self._generation: int | None = None
        """Generation of the database that has `_stored`; None: not known."""
        self._stored = AlertBook()
        self._stored_memory: str | None = None
        self._stored_unix_s = 0.0

    def read(self, db: sqlite3.Connection) -> AlertBook:
        """Return the stored book; where its numbers are lost, they are above all that are stored."""
        books = decoded(_documents(db, "SELECT value FROM meta WHERE name = 'book'"), to_book)
        states = decoded(_documents(db, "SELECT document FROM states"), to_state)
        silences = decoded(_documents(db, "SELECT document FROM silences"), to_silence)
        windows = decoded(_documents(db, "SELECT document FROM windows"), to_window)
        return replace(
            books[0] if books else _book_after_loss(db, states),
            states={state.key: state for state in states},
            silences=tuple(silences),
            windows=tuple(windows),
        )

    def may_wait(self, evaluation: Evaluation, generation: int, now_unix_s: float) -> bool:
        """Tell whether an evaluation has nothing that a killed process may not forget.

        So is a look that changes only counters of subjects that stay healthy, or stay as bad as they
        are: with every look on the disk, an idle box would write half a gigabyte a day.
        """
        book, stored = evaluation.book, self._stored
        if evaluation.transitions or evaluation.notices:
            return False
        if evaluation.cancelled or evaluation.postponed:
            return False
        if self._generation != generation or not (
            self._stored_unix_s <= now_unix_s < self._stored_unix_s + LAZY_S
        ):
            return False
        if (book.silences, book.windows) != (stored.silences, stored.windows):
            return False
        return book.states.keys() == stored.states.keys() and not any(
            _has_news(state, stored.states[key]) for key, state in book.states.items()
        )

    def write(
        self, db: sqlite3.Connection, book: AlertBook, memory: str | None, generation: int
    ) -> None:
        """Write what differs from what the database has; all, if that is not known.

        Args:
            db: The database, in a transaction.
            book: The book.
            memory: Memory of the rules; None: as it is stored.
            generation: Of the database.
        """
        is_known = self._generation == generation
        stored = self._stored if is_known else AlertBook()
        if not is_known:
            for table in ("states", "silences", "windows"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
        for key in stored.states.keys() - book.states.keys():
            db.execute("DELETE FROM states WHERE subject = ? AND rule = ?", _columns_of(key))
        for key, state in book.states.items():
            if stored.states.get(key) != state:
                row = (*_columns_of(key), to_document(state))
                db.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", row)
        if book.silences != stored.silences:
            _replace(db, "silences", {str(one.id): to_document(one) for one in book.silences})
        if book.windows != stored.windows:
            _replace(db, "windows", {one.name: to_document(one) for one in book.windows})
        _set_meta(db, "book", book_document(book))
        if memory is not None and not (is_known and memory == self._stored_memory):
            _set_meta(db, "memory", memory)

    def remember(
        self, book: AlertBook, memory: str | None, generation: int, now_unix_s: float
    ) -> None:
        """Keep what a transaction has written, after its end."""
        is_known = self._generation == generation
        kept_memory = self._stored_memory if is_known else None
        self._generation, self._stored, self._stored_unix_s = generation, book, now_unix_s
        self._stored_memory = kept_memory if memory is None else memory


def read_memory(db: sqlite3.Connection) -> str | None:
    """Return the stored memory of the rules; None: there is none."""
    row = db.execute("SELECT value FROM meta WHERE name = 'memory'").fetchone()
    return None if row is None else str(row[0])


def _documents(db: sqlite3.Connection, sql: str) -> Sequence[str]:
    return [document for (document,) in db.execute(sql)]


def _set_meta(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _replace(db: sqlite3.Connection, table: str, documents: Mapping[str, str]) -> None:
    db.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
    db.executemany(f"INSERT INTO {table} VALUES (?, ?)", documents.items())  # noqa: S608


def _columns_of(key: AlertKey) -> tuple[str, str]:
    subject, rule = key
    return subject.text, rule


def _has_news(state: AlertState, stored: AlertState) -> bool:
    """Tell whether a state differs by more than the counters of one that stays as it is."""
    if state == stored:
        return False
    if AlertPhase.PENDING in {state.phase, stored.phase}:
        return True
    return _without_counters(state) != _without_counters(stored)


def _without_counters(state: AlertState) -> AlertState:
    return replace(state, signs="", read_s=None, signed_s=0.0, looked_s=0.0, same_s=0.0)


def _book_after_loss(db: sqlite3.Connection, states: Sequence[AlertState]) -> AlertBook:
    """Return a book whose next numbers are above all in the database."""
    numbers = decoded(db.execute(_NUMBERS_OF), lambda row: (str(row[0]), int(row[1])))
    numbers += [(state.alert, state.episode) for state in states]
    alerts = [int(alert[1:]) for alert, _ in numbers if alert[1:].isdecimal()]
    return AlertBook(
        next_alert=max(alerts, default=0) + 1,
        episode_floor=max((episode for _, episode in numbers), default=0),
    )
