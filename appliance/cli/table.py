"""Tables that fit the screen: cells are cut, columns left out, or rows shown one below the other."""

from __future__ import annotations

from appliance.cli.terminal import Style
from appliance.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from appliance.cli.terminal import Terminal

_GAP: Final = 2
"""Spaces between two columns."""


class Column(Record):
    """Column of a table."""

    head: str = ""
    is_right: bool = False
    """Whether its cells are aligned on the right, as figures are."""
    least: int | None = None
    """Width down to which its cells may be cut where the screen is narrow; None: not at all."""
    spare: int = 0
    """Order in which columns are left out of a narrow screen, the highest first; 0: never."""


class FittedTable(Record):
    """Table as lines that fit a screen."""

    heads: str
    """Line with the heads; empty: the rows bear their own."""
    rows: Sequence[Sequence[str]]
    """Lines of each row."""

    def lines(self) -> Iterator[str]:
        """Yield all lines."""
        if self.heads:
            yield self.heads
        for row in self.rows:
            yield from row


def fitted(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    terminal: Terminal,
    *,
    indent: int = 0,
) -> FittedTable:
    """Return a table, each column as wide as its widest cell.

    On a terminal that is too narrow, columns that may be cut are, then columns that can be spared are left out;
    where it is still too narrow, each row is a heading with a line for each other cell. A pipe gets everything.

    Args:
        columns: The columns; none of them has a head: no line of heads.
        rows: A cell for each column, painted or not.
        terminal: Where the table is shown.
        indent: Spaces before each line.
    """
    if not terminal.interactive:
        return _whole(columns, rows, indent)
    from appliance.cli.cells import width  # noqa: PLC0415 - 5 ms that a pipe need not spend

    shown = [[terminal.shown(cell) for cell in row] for row in rows]
    heads = [column.head for column in columns]
    kept = list(range(len(columns)))
    room = terminal.width() - indent
    while True:
        widths = [max(width(row[at]) for row in (heads, *shown)) for at in kept]
        widths = _narrowed(widths, [columns[at] for at in kept], _total(widths) - room)
        if _total(widths) <= room:
            break
        spare = max(kept, key=lambda at: columns[at].spare)
        if not columns[spare].spare:
            return FittedTable("", [_one_below_the_other(columns, row, indent) for row in shown])
        kept.remove(spare)
    mark = terminal.shown("…")
    margin = " " * indent
    head = _line(heads, kept, columns, widths, mark)
    return FittedTable(
        terminal.paint(margin + head, Style.DIM) if head else "",
        [[margin + _line(row, kept, columns, widths, mark)] for row in shown],
    )


def _whole(columns: Sequence[Column], rows: Sequence[Sequence[str]], indent: int) -> FittedTable:
    """Return the table for a pipe, where nothing is painted and no line too long."""
    heads = [column.head for column in columns]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(wide) if column.is_right else cell.ljust(wide)
            for column, cell, wide in zip(columns, row, widths, strict=True)
        ]
        return (" " * indent + (" " * _GAP).join(cells)).rstrip()

    return FittedTable(line(heads) if any(heads) else "", [[line(row)] for row in rows])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _narrowed(widths: Sequence[int], columns: Sequence[Column], over: int) -> list[int]:
    """Return widths that are `over` cells less in all, as far as cells may be cut, the widest first."""
    found = list(widths)
    while over > 0:
        able = [
            at
            for at, column in enumerate(columns)
            if column.least is not None and found[at] > column.least
        ]
        if not able:
            break
        widest = max(able, key=lambda at: found[at])
        found[widest] -= 1
        over -= 1
    return found


def _line(
    row: Sequence[str],
    kept: Sequence[int],
    columns: Sequence[Column],
    widths: Sequence[int],
    mark: str,
) -> str:
    from appliance.cli.cells import cut, width  # noqa: PLC0415 - see above

    cells = []
    for at, wide in zip(kept, widths, strict=True):
        cell = cut(row[at], wide, mark)
        spaces = " " * (wide - width(cell))
        cells.append(spaces + cell if columns[at].is_right else cell + spaces)
    return (" " * _GAP).join(cells).rstrip()


def _one_below_the_other(
    columns: Sequence[Column], row: Sequence[str], indent: int
) -> Sequence[str]:
    margin = " " * indent
    label = max((len(column.head) for column in columns[1:]), default=0)
    others = [
        f"{margin}  {column.head:{label}}  {cell}"
        for column, cell in zip(columns[1:], row[1:], strict=True)
        if cell
    ]
    head = columns[0].head
    return [margin + (f"{head}: {row[0]}" if head else row[0]), *others]
