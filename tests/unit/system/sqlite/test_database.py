"""SQLite files: what is opened, refused, renamed."""

import sqlite3
from pathlib import Path

import pytest

from appliance.system.sqlite.database import Schema, open_or_replace, transaction

NUMBERS = Schema(version=1, tables={"numbers": "n INTEGER)"}, pragmas=("synchronous=NORMAL",))


def written(path: Path, rows: int) -> None:
    db, _ = open_or_replace(path, NUMBERS)
    with transaction(db):
        db.executemany("INSERT INTO numbers VALUES (?)", ((n,) for n in range(rows)))
    db.close()


def damage(path: Path) -> None:
    """Overwrite a page in the middle of a file of several."""
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xff" * 4096)


def test_damage_inside_a_file_is_found(tmp_path: Path) -> None:
    """A damaged page is noticed at the opening, before anything is read from it or added."""
    path = tmp_path / "x.sqlite"
    written(path, 5000)
    damage(path)
    db, aside = open_or_replace(path, NUMBERS)
    assert aside == tmp_path / "x.damaged"
    assert db.execute("SELECT count(*) FROM numbers").fetchone()[0] == 0
    db.close()


def test_a_damaged_file_takes_its_log_along(tmp_path: Path) -> None:
    """The newest rows are in the log, and a log of an earlier damaged file goes."""
    path = tmp_path / "x.sqlite"
    written(path, 5000)
    writer, _ = open_or_replace(path, NUMBERS)
    writer.execute("INSERT INTO numbers VALUES (7)")
    damage(path)
    (tmp_path / "x.damaged-journal").write_bytes(b"of an earlier one")
    db, aside = open_or_replace(path, NUMBERS)
    assert aside == tmp_path / "x.damaged"
    assert db.execute("SELECT count(*) FROM numbers").fetchone()[0] == 0
    assert (tmp_path / "x.damaged-wal").stat().st_size > 4096
    assert not (tmp_path / "x.damaged-journal").exists()
    db.close()
    writer.close()


def test_a_directory_in_place_of_the_file_is_renamed(tmp_path: Path) -> None:
    """A directory in the place of the file is kept under another name, and the caller is told."""
    path = tmp_path / "x.sqlite"
    (path / "inside").mkdir(parents=True)
    db, aside = open_or_replace(path, NUMBERS)
    db.close()
    assert aside == tmp_path / "x.sqlite.damaged"
    assert (aside / "inside").is_dir()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    """Tables and version of an older file stay, and the file is no damaged one."""
    path = tmp_path / "x.sqlite"
    written(path, 1)

    def refuse(db: sqlite3.Connection, version: int) -> None:
        if version:
            db.execute("DROP TABLE numbers")
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full

    with pytest.raises(sqlite3.OperationalError):
        open_or_replace(path, Schema(version=2, tables={}, migrate=refuse, pragmas=()))
    db, aside = open_or_replace(path, NUMBERS)
    assert (db.execute("SELECT n FROM numbers").fetchone()[0], aside) == (0, None)
    db.close()
