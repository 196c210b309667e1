"""Rows of a database by the pages that hold them: what one damaged byte may cost."""

import contextlib
import random
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = 4096
Row = tuple[str, tuple[object, ...]]
"""Table and primary key of a row."""
Rows = Mapping[Row, tuple[object, ...]]
"""Rows by their keys; the columns of a key are the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows of one page of 4 KiB."""

    own: set[Row] = field(default_factory=set)
    """Rows that lie on this page, wholly or with a part."""
    below: set[Row] = field(default_factory=set)
    """Rows on pages to which only this page leads."""


def flips(content: bytes, number: int, chance: random.Random) -> Sequence[tuple[int, int]]:
    """Return places of bytes with a bit of each; the header and the schema are hit as often as all other pages."""
    places = [chance.randrange(len(content) if n % 2 else PAGE_BYTES) for n in range(number)]
    return [(place, 1 << chance.randrange(8)) for place in places]


def flip(content: bytes, place: int, bit: int) -> bytes:
    """Return a file's content with a bit of one byte changed."""
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def lost_beside(before: Rows, after: Rows, page: Page) -> set[Row]:
    """Return what was lost or changed although it is not of the damaged page.

    Of two rows with one key nobody knows which is the true one: a row whose key one of the page has now is none.
    """
    lost = before.keys() - dict(before.items() & after.items()).keys()
    moved = {(row[0], before[row][len(row[1]) :]) for row in page.own if row in before}
    return {
        row
        for row in lost - page.own - page.below
        if row not in after or (row[0], after[row][len(row[1]) :]) not in moved
    }


def read_rows(path: Path) -> Rows:
    """Return the rows of all tables by their keys."""
    with _opened(path) as db:
        return {
            (table, tuple(row[at] for at in key)): row
            for table, key, _ in _tables(db)
            for row in db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our names
        }


def read_pages(path: Path) -> Mapping[int, Page]:
    """Return the rows of each page of a whole file, by the page's number from 1; a page without rows is left out.

    The virtual table `dbstat` names the pages of a table and how many cells each has; a walk of them meets the
    rows in the order of their keys (https://www.sqlite.org/dbstat.html).
    """
    pages: dict[int, Page] = {}
    with _opened(path) as db:
        for table, key, is_index in _tables(db):
            order = ", ".join(str(at + 1) for at in key) if is_index else "rowid"
            rows = db.execute(f"SELECT * FROM {table} ORDER BY {order}")  # noqa: S608 - our names
            keys: Iterator[Row] = ((table, tuple(row[at] for at in key)) for row in rows)
            stat = db.execute(
                "SELECT path, pageno, pagetype, ncell FROM dbstat WHERE name = ?", (table,)
            )
            found = {where: rest for where, *rest in stat}
            _walk("/", found, keys, pages, (), is_index=is_index)
            assert next(keys, None) is None, table
    return pages


def _walk(
    where: str,
    found: Mapping[str, list[int | str]],
    keys: Iterator[Row],
    pages: dict[int, Page],
    above: tuple[int, ...],
    *,
    is_index: bool,
) -> None:
    number, kind, cells = found[where]
    assert isinstance(number, int)
    assert isinstance(cells, int)
    for cell in range(cells + (kind == "internal")):
        if kind == "internal":
            _walk(f"{where}{cell:03x}/", found, keys, pages, (*above, number), is_index=is_index)
        if cell < cells and (kind == "leaf" or is_index):
            row = next(keys)
            begin = f"{where}{cell:03x}+"
            parts = (rest[0] for name, rest in found.items() if name.startswith(begin))
            for part in (number, *parts):
                pages.setdefault(int(part), Page()).own.add(row)
            for page in above:
                pages.setdefault(page, Page()).below.add(row)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.text_factory = lambda content: content.decode(errors="replace")
        yield db


def _tables(db: sqlite3.Connection) -> Iterable[tuple[str, tuple[int, ...], bool]]:
    """Yield the name of each table, the places of its key's columns, and whether it has no other key."""
    tables = db.execute(
        "SELECT name, wr FROM pragma_table_list WHERE type='table' AND schema='main'"
    )
    for table, is_index in tables.fetchall():
        if table.startswith("sqlite_"):
            continue
        columns = db.execute("SELECT cid, pk FROM pragma_table_info(?)", (table,)).fetchall()
        places = sorted((pk, cid) for cid, pk in columns if pk)
        # A table whose key is not that of its b-tree is known by its row's number.
        yield table, tuple(cid for _, cid in places), bool(is_index)
