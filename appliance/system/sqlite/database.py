"""SQLite files of any schema: opened at its present version, migrated forward only.

A file that cannot be used is renamed and a new one begun: as `NAME.damaged` a database with damage,
as `NAME.SUFFIX.damaged` something that is no regular file. A full or failing disk is no damage. Whatever else
an opening raises is: a flipped byte may be in a page, a row, the name of a column or the version.
The pages that hold header and schema are the same in every file of a schema, so one damaged byte of them is put
right: without them SQLite reads nothing of a file.
"""

import contextlib
import logging
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from appliance.model.errors import StoreError
from appliance.model.wording import short

_log = logging.getLogger(__name__)

_MODE: Final = 0o600
_LOG_FILES: Final = ("-wal", "-shm", "-journal")
"""Suffixes of SQLite's own files beside a database."""
DAMAGE: Final = (
    *(sqlite3.Error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
)
"""Errors that a damaged file can raise: SQLite's own, its binding's (a message may be no UTF-8, a column may
have another name), and those of the codecs of rows."""
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DISK: Final = frozenset(
    {
        *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM),
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL),
    }
)
"""Codes of errors that tell of a full or failing disk or of another process, not of the file's content."""
_PAGE_BYTES: Final = 4096
_HEADER_BYTES: Final = 100
_CHANGING: Final = frozenset((*range(24, 44), *range(52, 56), *range(92, 100)))
"""Bytes of a file's header that change with its content: counters, sizes and free pages
(https://www.sqlite.org/fileformat.html#the_database_header)."""
_Statement = tuple[str, str, str, str | None]
"""Type, name, table and SQL of an entry of the schema; None: SQLite made it by itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schema:
    """Tables of one store."""

    version: int
    tables: Mapping[str, str]
    """Text of each table's statement behind its opening parenthesis, by name, what must not be lost first."""
    indexes: Sequence[str] = ()
    """Statements that make the indexes."""
    pragmas: Sequence[str]
    """Settings of each connection, made before the first table."""
    migrate: Callable[[sqlite3.Connection, int], None] | None = None
    """Function that makes the tables of this version from those of an earlier one, 0 for a new file; None: there
    is no earlier version. It runs in a transaction. Raises sqlite3.Error for rows that no version wrote."""

    def make(self, db: sqlite3.Connection, version: int) -> None:
        """Make the tables of this version from those of an earlier one, 0 for a new file."""
        if self.migrate is not None:
            self.migrate(db, version)
            return
        for name, columns in self.tables.items():
            db.execute(f"CREATE TABLE {name} ({columns}")
        for statement in self.indexes:
            db.execute(statement)


def is_corrupt(error: Exception) -> bool:
    """Tell whether an error of SQLite says that a file is damaged; its own message may be damaged, too."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _CORRUPT or isinstance(error, UnicodeError)


def open_or_replace(path: Path, schema: Schema) -> tuple[sqlite3.Connection, Path | None]:
    """Open a file that only this user can read, or a new one in place of a damaged file.

    Returns:
        The database, and the new path of what was renamed; None: nothing was.

    Raises:
        StoreError: a newer version wrote the file.
        sqlite3.Error: the disk is full or fails.
        OSError: the directory is missing or cannot be written.
    """
    aside = _set_odd_aside(path)
    # SQLite's own further files take the mode of this one.
    path.touch(mode=_MODE)
    path.chmod(_MODE)
    _restore_byte(path, schema)
    try:
        return open_database(path, schema), aside
    except DAMAGE as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK:
            raise  # The file may be sound.
        fault = short(str(error))
        _log.warning("%s cannot be used (%s): renamed, and a new database begun", path, fault)
    aside = _set_damaged_aside(path)
    return open_database(path, schema), aside


def open_database(path: Path, schema: Schema) -> sqlite3.Connection:
    """Open a file, new or of any version so far. Raises `StoreError` for a newer version."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
    try:
        db.row_factory = sqlite3.Row
        db.text_factory = _TEXT
        version = _readable_version(db, path, schema)
        for pragma in (*schema.pragmas, "journal_mode=WAL"):
            db.execute(f"PRAGMA {pragma}")
        check(db)
        if version != schema.version:
            _bring_up_to_date(db, version, schema)
    except BaseException:
        db.close()
        raise
    return db


def newer_error(path: Path, version: int, *, known: int) -> StoreError:
    """Return the error for a file that a newer version of the appliance has written."""
    return StoreError(
        f"{path} was written by a newer appliance (schema {version}, this one knows"
        f" {known}): install that version again"
    )


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes, or nothing if it fails."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def salvage_tables(damaged: Path, db: sqlite3.Connection, tables: Iterable[str]) -> int:
    """Copy the rows that can be read of a damaged database; returns how many.

    Args:
        damaged: The file; tables with other columns are left alone.
        db: Database with the tables.
        tables: Names of the tables, what must not be lost first.
    """
    if not damaged.is_file():
        return 0
    copied = 0
    try:
        old = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(old), transaction(db):
            old.text_factory = _TEXT
            copied = sum(_copy(old, db, table) for table in tables)
    except DAMAGE as error:
        _log.warning("nothing could be read of %s: %s", damaged, short(str(error)))
    return copied


def _copy(old: sqlite3.Connection, db: sqlite3.Connection, table: str) -> int:
    """Copy a table: what its keys lead to first, then what else it has from its begin and its end to a damage.

    A row with a damaged key stands in the place of another, or before it.
    """
    copied = 0
    plain = f"SELECT * FROM {table}"  # noqa: S608 - our names
    for statement in (
        _by_keys(db, table),
        plain,
        f"{plain} ORDER BY rowid DESC",
        f"{plain} ORDER BY 1 DESC",
    ):
        for row in _readable(old, statement):
            places = ", ".join("?" * len(row))
            sql = f"INSERT OR IGNORE INTO {table} VALUES ({places})"  # noqa: S608
            with contextlib.suppress(sqlite3.IntegrityError):  # a value of another type
                copied += db.execute(sql, row).rowcount
    return copied


def _readable(db: sqlite3.Connection, statement: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query before the first damage."""
    count = 0
    try:
        for row in db.execute(statement):
            yield row
            count += 1
    except DAMAGE:
        # The binding has read one row ahead, and loses the one before it when that fails.
        with contextlib.suppress(*DAMAGE):
            yield from db.execute(f"{statement} LIMIT 1 OFFSET {count}")


def _by_keys(db: sqlite3.Connection, table: str) -> str:
    """Return the query for rows that are found by their key, and by the key of a unique index if there is one."""
    sql = "SELECT wr FROM pragma_table_list WHERE schema='main' AND name=?"
    (has_no_rowid,) = db.execute(sql, (table,)).fetchone()
    if has_no_rowid:
        hint, sql = "", "SELECT name FROM pragma_table_info(?) WHERE pk"
        equal = [f"b.{column}=a.{column}" for (column,) in db.execute(sql, (table,))]
    else:
        sql = """SELECT name FROM pragma_index_list(?) WHERE "unique" AND origin<>'c'"""
        index = db.execute(sql, (table,)).fetchone()
        hint = "NOT INDEXED" if index is None else f"INDEXED BY {index[0]}"
        columns = (
            [] if index is None else db.execute("SELECT name FROM pragma_index_info(?)", index)
        )
        # With a plus a column is read from the row, not from the index.
        equal = ["b.rowid=a.rowid", *(f"+b.{column}=a.{column}" for (column,) in columns)]
    return f"SELECT b.* FROM {table} a {hint} CROSS JOIN {table} b ON {' AND '.join(equal)}"  # noqa: S608


_TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""Text of a column; one damaged text would otherwise end the reading of all rows."""


def _restore_byte(path: Path, schema: Schema) -> None:
    """Put the one damaged byte in the pages of a file's schema right. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b", buffering=0) as file:
        damaged = _size_byte(path, file.read(_HEADER_BYTES))
        for number, wanted in _schema_pages(schema).items():
            begin = number * _PAGE_BYTES
            file.seek(begin)
            found = file.read(_PAGE_BYTES)
            if len(found) < _PAGE_BYTES:
                return
            if found != wanted:
                places = (at for at in range(_PAGE_BYTES) if found[at] != wanted[at])
                damaged += [
                    (begin + at, wanted[at]) for at in places if begin + at not in _CHANGING
                ]
        if len(damaged) == 1:
            ((place, value),) = damaged
            file.seek(place)
            file.write(bytes([value]))
            _log.warning("%s: its damaged byte %d is put right", path, place)


def _size_byte(path: Path, header: bytes) -> list[tuple[int, int]]:
    """Return place and right value of each damaged byte of a file's size in its header: without it all pages are lost.

    None where a write-ahead log may hold pages, since the file is then of another size for a while.
    """
    log = path.with_name(f"{path.name}-wal")
    is_told = len(header) == _HEADER_BYTES and header[24:28] == header[92:96]
    if not is_told or (log.exists() and log.stat().st_size):
        return []
    pages = (path.stat().st_size // _PAGE_BYTES).to_bytes(4)
    return [(28 + at, pages[at]) for at in range(4) if header[28 + at] != pages[at]]


@cache
def _schema_pages(schema: Schema) -> Mapping[int, bytes]:
    """Return the pages of a new file that hold its header and its schema, by their numbers from 0."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        for pragma in (f"page_size={_PAGE_BYTES}", *schema.pragmas):
            db.execute(f"PRAGMA {pragma}")
        _bring_up_to_date(db, 0, schema)
        roots = {place for (place,) in db.execute("SELECT rootpage FROM sqlite_master")}
        (vacuums,) = db.execute("PRAGMA auto_vacuum").fetchone()
        image = db.serialize()
    begins = range(0, len(image), _PAGE_BYTES)
    pages = {n: image[begin : begin + _PAGE_BYTES] for n, begin in enumerate(begins)}
    pages[0] = pages[0][:18] + b"\2\2" + pages[0][20:]  # a file has a write-ahead log
    pointers = {2} if vacuums else set()
    return {n: page for n, page in pages.items() if n + 1 not in roots | pointers}


def _readable_version(db: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """Return the version of a file, 0 for a new one.

    Raises:
        StoreError: a newer version wrote the file, which is whole.
        sqlite3.DatabaseError: its version or its tables are damaged.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    is_ours = _statements(db) == _statements_of(schema)
    if version == schema.version and not is_ours:
        raise sqlite3.DatabaseError("its tables are not those of its version")
    if version != schema.version and is_ours:
        check(db)
        db.execute(f"PRAGMA user_version={schema.version}")
        _log.warning("%s: its damaged version (%d) is put right", path, version)
        return schema.version
    if version > schema.version:
        check(db)
        raise newer_error(path, version, known=schema.version)
    return int(version)


def _statements(db: sqlite3.Connection) -> frozenset[_Statement]:
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset((kind, name, table, sql) for kind, name, table, sql in rows)


@cache
def _statements_of(schema: Schema) -> frozenset[_Statement]:
    """Return the entries of the schema of a new file."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        schema.make(db, 0)
        return _statements(db)


def check(db: sqlite3.Connection) -> None:
    """Read all pages. Raises sqlite3.DatabaseError for damage that SQLite can recognise."""
    (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(short(" ".join(str(verdict).split())))


def _bring_up_to_date(db: sqlite3.Connection, version: int, schema: Schema) -> None:
    """Make or migrate the tables in one transaction, so that a killed process changes nothing."""
    with transaction(db):
        schema.make(db, version)
        db.execute(f"PRAGMA user_version={schema.version}")


def _set_odd_aside(path: Path) -> Path | None:
    """Rename paths that are no regular files, on which SQLite might wait. Raises OSError.

    Returns:
        The new path of the database itself; None: it was a file, or missing.
    """
    aside = None
    for suffix in ("", *_LOG_FILES):
        file = path.with_name(f"{path.name}{suffix}")
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(file.stat().st_mode):
                _log.warning("%s is no regular file: renamed, and a new database begun", file)
                renamed = file.replace(file.with_name(f"{file.name}.damaged"))
                aside = aside if suffix else renamed
    return aside


def _set_damaged_aside(path: Path) -> Path:
    """Rename a database with its log, which may hold the newest rows. Raises OSError.

    Returns:
        Its new path; an earlier damaged database there is replaced.
    """
    aside = path.with_suffix(".damaged")
    for suffix in _LOG_FILES:
        aside.with_name(f"{aside.name}{suffix}").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.with_name(f"{path.name}{suffix}").replace(aside.with_name(f"{aside.name}{suffix}"))
    return path.replace(aside)
