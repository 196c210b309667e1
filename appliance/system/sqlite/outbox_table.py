"""Table of the outbox: additions, attempts and their ends, and what is asked of it.

Functions of one statement or more on an open database; those that write run in a transaction of the
caller's. A row that is being sent is changed by nothing but its end.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.alerts.outbox import OutboxRow, Settlement
from appliance.model.alerts import OutboxState
from appliance.system.sqlite.alert_rows import to_outbox_columns, to_outbox_row
from appliance.system.sqlite.alert_schema import WAITS
from appliance.system.sqlite.database import decoded, insert

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
    return decoded(db.execute(_NEWEST, (most,)), to_outbox_row)[::-1]


def queued_rows(db: sqlite3.Connection, target: str, most: int) -> Sequence[OutboxRow]:
    """Return the oldest rows of a target that are queued, oldest first."""
    return decoded(db.execute(_QUEUED_OF, (target, most)), to_outbox_row)


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
