"""Codec of alerts as rows: JSON of the dataclasses, with columns for what is searched."""

import json
import sqlite3
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from appliance.alerts.book import (
    AlertBook,
    AlertState,
    PlannedWindow,
    Silence,
)
from appliance.alerts.outbox import OutboxRow
from appliance.model.alerts import Transition
from appliance.model.json_reader import decode_json
from appliance.wire.typed_json import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLAIN_COLUMNS: Final = (
    "id",
    "key",
    "target",
    "created_unix_s",
    "not_before_unix_s",
    "state",
    "attempts",
    "tried_unix_s",
    "retry_unix_s",
    "settled_unix_s",
    "text",
)


def to_document(value: "DataclassInstance") -> str:
    """Return the JSON text of a dataclass."""
    return json.dumps(value, default=_fields_of, separators=(",", ":"))


def _fields_of(value: "DataclassInstance") -> dict[str, Any]:
    # `asdict` copies every value: four times as slow.
    return {field.name: getattr(value, field.name) for field in fields(value)}


def to_state(document: str) -> AlertState:
    """Return the state of a document. Raises ValueError for a damaged one."""
    return from_json(AlertState, decode_json(document))


def to_silence(document: str) -> Silence:
    """Return the silence of a document. Raises ValueError for a damaged one."""
    return from_json(Silence, decode_json(document))


def to_window(document: str) -> PlannedWindow:
    """Return the planned window of a document. Raises ValueError for a damaged one."""
    return from_json(PlannedWindow, decode_json(document))


def book_document(book: AlertBook) -> str:
    """Return the JSON text of what a book has besides states, silences and windows."""
    return to_document(replace(book, states={}, silences=(), windows=()))


def to_book(document: str) -> AlertBook:
    """Return a book without states, silences and windows. Raises ValueError for a damaged one."""
    return from_json(AlertBook, decode_json(document))


def to_transition(row: sqlite3.Row) -> Transition:
    """Return the transition of a row. Raises ValueError for a damaged one."""
    return replace(from_json(Transition, decode_json(row["document"])), id=row["id"])


def to_outbox_columns(row: OutboxRow) -> dict[str, Any]:
    """Return the columns of an outbox row."""
    return {
        **{name: getattr(row, name) for name in _PLAIN_COLUMNS},
        "alert": row.transition.alert,
        "episode": row.transition.episode,
        "transition": to_document(row.transition),
        "is_digest": int(row.is_digest),
    }


def to_outbox_row(row: sqlite3.Row) -> OutboxRow:
    """Return the outbox row of a row. Raises ValueError for a damaged one."""
    document = {name: row[name] for name in _PLAIN_COLUMNS}
    document |= {
        "is_digest": bool(row["is_digest"]),
        "transition": decode_json(row["transition"]),
    }
    return from_json(OutboxRow, document)
