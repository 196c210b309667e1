"""SQLite files of any schema: opened at its present version, migrated forward only.

A file that cannot be used is renamed and a new one begun: as `NAME.damaged` a database with damage,
as `NAME.SUFFIX.damaged` something that is no regular file. A full or failing disk is no damage.
"""

import contextlib
import logging
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from appliance.domain.errors import StoreError

_log = logging.getLogger(__name__)

_MODE: Final = 0o600
_LOG_FILES: Final = ("-wal", "-shm", "-journal")
"""Suffixes of SQLite's own files beside a database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Tables of one store."""

    version: int
    migrate: Callable[[sqlite3.Connection, int], None]
    """Function that makes the tables of this version from those of an earlier one, 0 for a new file.
    It runs in a transaction. Raises sqlite3.Error for rows that no version wrote."""
    pragmas: tuple[str, ...]
    """Settings of each connection, made before the first table."""
    is_checked: bool = False
    """Whether opening reads the whole file to find damage (PRAGMA quick_check)."""


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
    try:
        return open_database(path, schema), aside
    except sqlite3.OperationalError:
        raise  # A full or failing disk: the file may be sound.
    except sqlite3.DatabaseError as error:
        _log.warning("%s cannot be used (%s): renamed, and a new database begun", path, error)
    aside = _set_damaged_aside(path)
    return open_database(path, schema), aside


def open_database(path: Path, schema: Schema) -> sqlite3.Connection:
    """Open a file, new or of any version so far. Raises `StoreError` for a newer version."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
    try:
        db.row_factory = sqlite3.Row
        version = _readable_version(db, path, schema)
        for pragma in (*schema.pragmas, "journal_mode=WAL"):
            db.execute(f"PRAGMA {pragma}")
        if schema.is_checked:
            _check(db)
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


def insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any], conflict: str = "") -> int:
    """Add a row; `conflict` is the clause for a key that exists. Returns how many rows changed."""
    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    sql = f"INSERT INTO {table} ({columns}) VALUES ({places}) {conflict}"  # noqa: S608 - our names
    return db.execute(sql, {name: _encodable(value) for name, value in row.items()}).rowcount


def make_tables(db: sqlite3.Connection, tables: Mapping[str, str], indexes: Iterable[str]) -> None:
    """Make the tables of a new file.

    Args:
        db: The file, in a transaction.
        tables: Text of each table's statement behind its opening parenthesis, by the table's name.
        indexes: Statements that make the indexes.
    """
    for name, columns in tables.items():
        db.execute(f"CREATE TABLE {name} ({columns}")
    for statement in indexes:
        db.execute(statement)


def salvage_tables(
    damaged: Path, db: sqlite3.Connection, *, version: int, tables: Iterable[str]
) -> int:
    """Copy the rows that can be read of a damaged database; returns how many.

    Args:
        damaged: The file; one of another version is left alone.
        db: Database with the same tables.
        version: Of the schema.
        tables: Names of the tables, what must not be lost first.
    """
    if not damaged.is_file():
        return 0
    old = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True)
    copied = 0
    try:
        (found,) = old.execute("PRAGMA user_version").fetchone()
        if found == version:
            with transaction(db):
                copied = sum(_copy(old, db, table) for table in tables)
    except sqlite3.Error as error:
        _log.warning("nothing could be read of %s: %s", damaged, error)
        copied = 0
    finally:
        old.close()
    return copied


def _copy(old: sqlite3.Connection, db: sqlite3.Connection, table: str) -> int:
    """Copy a table up to its first damage, and from its end back to its last."""
    copied = 0
    for order in ("", " ORDER BY 1 DESC"):
        with contextlib.suppress(sqlite3.DatabaseError):
            for row in old.execute(f"SELECT * FROM {table}{order}"):  # noqa: S608 - our names
                places = ", ".join("?" * len(row))
                sql = f"INSERT OR IGNORE INTO {table} VALUES ({places})"  # noqa: S608
                copied += db.execute(sql, row).rowcount
            break
    return copied


def _encodable(value: object) -> object:
    """Replace halves of surrogate pairs, which JSON may hold and SQLite refuses."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _readable_version(db: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """Return the version of a file, 0 for a new one. Raises `StoreError` for a newer version."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > schema.version:
        raise newer_error(path, version, known=schema.version)
    return int(version)


def _check(db: sqlite3.Connection) -> None:
    """Read all pages. Raises sqlite3.DatabaseError for damage that SQLite can recognise."""
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(verdict.split()))


def _bring_up_to_date(db: sqlite3.Connection, version: int, schema: Schema) -> None:
    """Make or migrate the tables in one transaction, so that a killed process changes nothing."""
    with transaction(db):
        schema.migrate(db, version)
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
