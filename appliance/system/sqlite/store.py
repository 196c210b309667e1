"""Base of the four stores: one SQLite file, one thread that does all access, and typed values as rows.

A field of a value is a column of the same name; one that no column can hold, such as a list, is JSON text. What a
store does while its file takes no rows is its own affair: see `operation_store`, `measurement_store`,
`state_store` and `alert_store`.
"""

import asyncio
import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import to_builtins

from appliance.model.json_reader import decode_json
from appliance.model.wording import short
from appliance.system.sqlite.database import DAMAGE, Schema, open_or_replace, salvage_tables
from appliance.wire.typed_json import from_json

_log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 10.0
"""Pause before a file that refused is tried again; a full disk stays full for longer."""
Row = sqlite3.Row | Mapping[str, Any]
_PLAIN: Final = (str, int, float, NoneType)
"""Types of values that a column holds as they are; a truth value is 0 or 1."""
R = TypeVar("R")
T = TypeVar("T")


class SqliteStore:
    """Store on one file.

    Args:
        path: The file.
        schema: Its tables.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, schema: Schema, *, retry_after_s: float) -> None:
        self._path = path
        self._schema = schema
        self._retry_after_s = retry_after_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=path.stem)
        self._db: sqlite3.Connection | None = None
        """The file; None: it is not open."""
        self._retry_at_s = 0.0
        """Monotonic time from which a file that is not open is tried again."""
        self._fault: str | None = None
        """Reason why the file took no rows last; None: it takes them."""

    async def open(self) -> None:
        """Open or create the file. Raises `StoreError` only for one of a newer version."""
        await self._run(self._open)

    async def close(self) -> None:
        """Write what waits, close the file and end the thread."""
        await self._run(self._close)
        self._thread.shutdown()

    async def _run(self, job: Callable[..., T], *arguments: object) -> T:
        """Do a job in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, job, *arguments)

    # --- in the store's thread -------------------------------------------------------

    def _open(self) -> None:
        """Open the file; one that no disk holds is tried again later. Raises `StoreError` for a newer one."""
        try:
            self._opened(*self._open_file())
        except (*DAMAGE, OSError) as error:
            self._close_file()
            self._failed(error)

    def _opened(self, db: sqlite3.Connection, recovery: str | None) -> None:
        """Take over what the file has.

        Args:
            db: The file, just opened.
            recovery: Sentence about a damaged file that was replaced; None: the file was sound.
        """

    def _open_file(self) -> tuple[sqlite3.Connection, str | None]:
        """Open the file, and replace a damaged one, of which the rows are kept that can be read.

        Returns:
            The file, and a sentence about a damaged one that was replaced; None: it was sound.

        Raises:
            StoreError: a newer version wrote the file.
            sqlite3.Error: the disk is full or fails.
            OSError: the directory is missing or cannot be written.
        """
        self._close_file()
        db, aside = open_or_replace(self._path, self._schema)
        self._db = db
        if aside is None:
            return db, None
        copied = salvage_tables(aside, db, self._schema.tables)
        return db, f"{self._path} was damaged and is now {aside}; {copied} of its rows were kept"

    def _attempt(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Do a job on the file, opened if it is not; `default` where that fails."""
        if self._db is None and self._is_due():
            self._open()
        if self._db is None:
            return default
        try:
            return job(self._db)
        except DAMAGE as error:  # of the file, or of a number or text that SQLite cannot hold
            self._failed(error)
            return default

    def _is_due(self) -> bool:
        """Tell whether a file that refused is to be tried again."""
        return time.monotonic() >= self._retry_at_s

    def _failed(self, error: Exception) -> None:
        """Note that the file could not be opened, read or written."""
        self._fault = str(error)
        self._retry_at_s = time.monotonic() + self._retry_after_s

    def _close(self) -> None:
        self._close_file()

    def _close_file(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()


# --- values as rows ------------------------------------------------------------------


def to_row(value: object, *without: str) -> dict[str, Any]:
    """Return the columns of a value.

    Args:
        value: A dataclass or record.
        without: Fields that have no column of their name.
    """
    kind: type = type(value)
    names = _column_types(kind).keys() - {*without}
    columns = {name: getattr(value, name) for name in names}
    return {
        name: column if isinstance(column, _PLAIN) else to_json(column)
        for name, column in columns.items()
    }


def row_document(kind: type, row: Row, **other: object) -> dict[str, object]:
    """Return the fields of a `kind` in a row, for `from_json`.

    Args:
        kind: A dataclass or record.
        row: Its columns; further ones are ignored.
        other: Values of fields that have no column of their name.

    Raises:
        LookupError: a column is missing.
        ValueError: a column's JSON is damaged.
    """
    document = dict(other)
    for name, column in _column_types(kind).items():
        if name in other:
            continue
        value = row[name]
        if column is bool:
            value = bool(value)
        elif column is None and value is not None:
            value = decode_json(value)
        document[name] = value
    return document


def from_row(kind: type[T], row: Row, **other: object) -> T:
    """Return the `kind` in a row; arguments and errors as of `row_document`."""
    return from_json(kind, row_document(kind, row, **other))


def to_json(value: object) -> str:
    """Return the JSON text of a value."""
    return json.dumps(to_builtins(value), separators=(",", ":"))


def from_text(kind: type[T], text: str) -> T:
    """Return the `kind` in a JSON text. Raises ValueError for a damaged one."""
    return from_json(kind, decode_json(text))


def columns_of(kind: type) -> tuple[str, ...]:
    """Return the names of a type's fields, which are those of its columns."""
    return tuple(_column_types(kind))


@cache
def _column_types(kind: type) -> Mapping[str, type | None]:
    """Return the type of each field's column: bool, another plain one as `object`, or None for JSON text."""
    return {name: _column_type(hint) for name, hint in get_type_hints(kind).items()}


def _column_type(hint: Any) -> type | None:
    if hint is bool:
        return bool
    kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    is_plain = all(isinstance(one, type) and issubclass(one, _PLAIN) for one in kinds)
    return object if is_plain else None


def rows_as(kind: type[T], rows: Iterable[Row]) -> list[T]:
    """Return the values of rows whose columns are their fields, without those of damaged rows."""
    return decoded(rows, lambda row: from_row(kind, row))


def decoded(rows: Iterable[R], decode: Callable[[R], T]) -> list[T]:
    """Decode rows one by one, and leave out damaged ones."""
    found = []
    for row in rows:
        try:
            found.append(decode(row))
        except DAMAGE as error:
            _log.warning("a damaged row is left out: %s", short(str(error)))
    return found


def insert(
    db: sqlite3.Connection,
    table: str,
    row: Mapping[str, Any],
    conflict: str = "",
    *,
    verb: str = "INSERT",
) -> int:
    """Add a row; `conflict` is the clause for a key that exists. Returns how many rows changed."""
    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    sql = f"{verb} INTO {table} ({columns}) VALUES ({places}) {conflict}"
    return db.execute(sql, {name: _encodable(value) for name, value in row.items()}).rowcount


def drop_old(db: sqlite3.Connection, table: str, *, kept: int, condition: str = "") -> None:
    """Delete all but the newest rows of a table, by their order: numbers have gaps after a recovery.

    Args:
        db: The database.
        table: The table.
        kept: Number of rows that are kept.
        condition: Further clause for those that may be deleted, from its AND on.
    """
    oldest = f"SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET {kept}"  # noqa: S608
    db.execute(f"DELETE FROM {table} WHERE id <= ({oldest}) {condition}")  # noqa: S608 - our names


def _encodable(value: object) -> object:
    """Replace halves of surrogate pairs, which JSON may hold and SQLite refuses."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
