"""Tables of alerts: states, transitions, outbox, silences, windows, tokens.

A row of `transitions` takes about 0.4 KiB, one of `outbox` 0.7 KiB: the most that is kept of both is
12 MiB.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from appliance.alerts.book import AlertBook, AlertKey, AlertState, Evaluation, Silence
from appliance.alerts.outbox import OutboxRow, Settlement
from appliance.model.alerts import AlertPhase, OutboxState, Transition
from appliance.system.sqlite.database import Schema
from appliance.system.sqlite.store import (
    Row,
    decoded,
    drop_old,
    from_text,
    insert,
    rows_as,
    to_json,
    to_row,
)
from appliance.wire.alert_requests import PlannedWindow

T = TypeVar("T")
KEPT_TRANSITIONS: Final = 10_000
KEPT_ROWS: Final = 10_000
"""Rows of the outbox back to which those that do not wait are kept."""
_PAGES_A_STEP: Final = 64
"""Free pages that a pruning gives back to the disk."""

WAITS: Final = f"state IN ('{OutboxState.QUEUED}', '{OutboxState.SENDING}')"

ALERTS: Final = Schema(
    version=1,
    tables={
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
    },
    indexes=(
        f"CREATE INDEX outbox_waiting ON outbox (target, id) WHERE {WAITS}",
        f"CREATE INDEX outbox_waiting_of ON outbox (alert) WHERE {WAITS}",
        f"CREATE INDEX outbox_sent ON outbox (target, settled_unix_s) WHERE state = '{OutboxState.SENT}'",
        f"CREATE INDEX outbox_dead ON outbox (id) WHERE state = '{OutboxState.DEAD}'",
        "CREATE INDEX transitions_of ON transitions (subject, id)",
        "CREATE INDEX tokens_age ON tokens (expires_unix_s)",
    ),
    pragmas=("auto_vacuum=INCREMENTAL", "synchronous=FULL"),
)


def replace_rows(source: sqlite3.Connection, db: sqlite3.Connection, *, is_whole: bool) -> None:
    """Copy all rows into the tables of another database, inside a transaction of it.

    Args:
        source: The database with the rows.
        db: The other one.
        is_whole: Whether `source` has all rows, so that those that it lacks were deleted.
    """
    for table in ALERTS.tables:
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


# --- values as rows: JSON, with columns for what is searched ---------------------------


def to_transition(row: Row) -> Transition:
    """Return the transition of a row. Raises ValueError for a damaged one."""
    return from_text(Transition, row["document"]).replaced(id=row["id"])


def to_transition_row(transition: Transition) -> dict[str, Any]:
    """Return the columns of a transition."""
    columns = {
        "id": transition.id,
        "subject": transition.subject.text,
        "alert": transition.alert,
        "episode": transition.episode,
    }
    return {**columns, "document": to_json(transition)}


def to_outbox_columns(row: OutboxRow) -> dict[str, Any]:
    """Return the columns of an outbox row."""
    return {
        **to_row(row),
        "alert": row.transition.alert,
        "episode": row.transition.episode,
    }


# --- the book: of it only what differs from the stored one is written -----------------

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
        books = _documents(db, AlertBook, "SELECT value FROM meta WHERE name = 'book'")
        states = _documents(db, AlertState, "SELECT document FROM states")
        silences = _documents(db, Silence, "SELECT document FROM silences")
        windows = _documents(db, PlannedWindow, "SELECT document FROM windows")
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
                row = (*_columns_of(key), to_json(state))
                db.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", row)
        if book.silences != stored.silences:
            _replace(db, "silences", {str(one.id): to_json(one) for one in book.silences})
        if book.windows != stored.windows:
            _replace(db, "windows", {one.name: to_json(one) for one in book.windows})
        _set_meta(db, "book", to_json(replace(book, states={}, silences=(), windows=())))
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


def _documents(db: sqlite3.Connection, kind: type[T], sql: str) -> list[T]:
    return decoded(db.execute(sql), lambda row: from_text(kind, row[0]))


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


# The states are parameters, but where an index holds rows of one state alone.
_IS_SENT: Final = f"state = '{OutboxState.SENT}'"
_IS_DEAD: Final = f"state = '{OutboxState.DEAD}'"
_IS_QUEUED: Final = f"{WAITS} AND state = '{OutboxState.QUEUED}'"
_CANCEL: Final = "UPDATE outbox SET state = ?, text = ?, settled_unix_s = ? WHERE"
_POSTPONE: Final = "UPDATE outbox SET not_before_unix_s = max(not_before_unix_s, ?) WHERE"
_BEGIN: Final = "UPDATE outbox SET state = ?, attempts = attempts + 1, tried_unix_s = ? WHERE id = ? AND state = ?"
_SETTLE: Final = (
    "UPDATE outbox SET state = ?, text = ?, retry_unix_s = ?, settled_unix_s = ?"
    " WHERE id = ? AND state = ?"
)
_REQUEUE: Final = f"UPDATE outbox SET state = ? WHERE state = ? AND {WAITS}"  # noqa: S608 - our words
_NEWEST: Final = "SELECT * FROM outbox ORDER BY id DESC LIMIT ?"
_QUEUED_OF: Final = f"SELECT * FROM outbox WHERE target = ? AND {_IS_QUEUED} ORDER BY id LIMIT ?"  # noqa: S608
_TARGETS: Final = f"SELECT DISTINCT target FROM outbox WHERE {WAITS} ORDER BY target"  # noqa: S608
_LAST_SENT: Final = f"SELECT max(settled_unix_s) FROM outbox WHERE target = ? AND {_IS_SENT}"  # noqa: S608
_WAITING: Final = (
    "SELECT count(*), min(max(created_unix_s, not_before_unix_s)) FROM outbox"  # noqa: S608
    f" WHERE {WAITS}"
)
_DEAD: Final = f"SELECT count(*) FROM outbox WHERE {_IS_DEAD}"  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxCounts:
    """Numbers of the outbox for the status."""

    waiting: int = 0
    dead: int = 0
    """Rows that were given up, as far as they are kept."""
    oldest_due_unix_s: float | None = None
    """Time from which on the oldest row that waits could be sent, which may be to come; None: no row
    waits."""


class NotQueuedError(Exception):
    """Row that is not queued any more."""


def add_rows(db: sqlite3.Connection, rows: Iterable[OutboxRow], *, first_id: int) -> None:
    """Add rows; one whose key exists was added before.

    Args:
        db: The database.
        rows: In their order.
        first_id: Number for the first of them, above all others.
    """
    number = first_id
    for row in rows:
        number += insert(
            db, "outbox", to_outbox_columns(replace(row, id=number)), "ON CONFLICT DO NOTHING"
        )


def cancel_alerts(db: sqlite3.Connection, alerts: Collection[str], *, now_unix_s: float) -> None:
    """Cancel what is queued of some alerts."""
    sql = f"{_CANCEL} alert = ? AND {_IS_QUEUED}"
    end = (OutboxState.CANCELLED, "no longer wanted", now_unix_s)
    db.executemany(sql, [(*end, alert) for alert in alerts])


def postpone_alerts(
    db: sqlite3.Connection, alerts: Collection[str], *, until_unix_s: float
) -> None:
    """Let what is queued of some alerts wait until a time."""
    values = [(until_unix_s, alert) for alert in alerts]
    db.executemany(f"{_POSTPONE} alert = ? AND {_IS_QUEUED}", values)


def drop_rows(db: sqlite3.Connection, reasons: Mapping[int, str], *, now_unix_s: float) -> None:
    """Cancel queued rows, each for its reason."""
    sql = f"{_CANCEL} id = ? AND {_IS_QUEUED}"
    state = OutboxState.CANCELLED
    db.executemany(sql, [(state, text, now_unix_s, number) for number, text in reasons.items()])


def begin_rows(db: sqlite3.Connection, rows: Iterable[OutboxRow], *, now_unix_s: float) -> None:
    """Mark queued rows as being sent. Raises `NotQueuedError` if one is not queued."""
    for row in rows:
        values = (OutboxState.SENDING, now_unix_s, row.id, OutboxState.QUEUED)
        if db.execute(_BEGIN, values).rowcount != 1:
            raise NotQueuedError


def settle_rows(
    db: sqlite3.Connection, settlements: Mapping[int, Settlement], *, now_unix_s: float
) -> None:
    """Write how attempts ended, by the number of the row."""
    for number, end in settlements.items():
        settled = None if end.state == OutboxState.QUEUED else now_unix_s
        values = (end.state, end.text, end.retry_unix_s, settled, number, OutboxState.SENDING)
        db.execute(_SETTLE, values)


def requeue_rows(db: sqlite3.Connection) -> None:
    """Queue the rows again that were being sent when their sender ended."""
    db.execute(_REQUEUE, (OutboxState.QUEUED, OutboxState.SENDING))


def newest_rows(db: sqlite3.Connection, most: int) -> Sequence[OutboxRow]:
    """Return the newest rows of any state, oldest first."""
    return rows_as(OutboxRow, db.execute(_NEWEST, (most,)))[::-1]


def queued_rows(db: sqlite3.Connection, target: str, most: int) -> Sequence[OutboxRow]:
    """Return the oldest rows of a target that are queued, oldest first."""
    return rows_as(OutboxRow, db.execute(_QUEUED_OF, (target, most)))


def waiting_targets(db: sqlite3.Connection) -> Sequence[str]:
    """Return the names of the targets for which rows wait."""
    return [target for (target,) in db.execute(_TARGETS) if isinstance(target, str)]


def last_sent(db: sqlite3.Connection, target: str) -> float | None:
    """Return when a target took a message last; None: it took none that is kept."""
    (last,) = db.execute(_LAST_SENT, (target,)).fetchone()
    return float(last) if isinstance(last, float | int) else None


def outbox_counts(db: sqlite3.Connection) -> OutboxCounts:
    """Return the numbers for the status."""
    waiting, oldest = db.execute(_WAITING).fetchone()
    (dead,) = db.execute(_DEAD).fetchone()
    oldest = float(oldest) if isinstance(oldest, float | int) else None
    return OutboxCounts(waiting=waiting, dead=dead, oldest_due_unix_s=oldest)
