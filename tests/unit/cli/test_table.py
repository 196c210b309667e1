"""Tables on screens of every width, in a pipe, and in ASCII."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.cells import width
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Terminal

COLUMNS = (
    Column("name", least=6),
    Column("port", is_right=True),
    Column("what it is for", least=8, spare=1),
)
ROWS = (
    ("genesis-with-a-long-name", "8022", "the model of everyday work"),
    ("aeon", "80", "its sibling"),
)


def shown(columns: int | None, *, unicode: bool = True) -> list[str]:
    """Return the table's lines on a terminal of that width; None: in a pipe."""
    terminal = Terminal(
        stream=io.StringIO(), interactive=columns is not None, columns=columns, unicode=unicode
    )
    return list(fitted(COLUMNS, ROWS, terminal).lines())


def test_a_pipe_gets_everything() -> None:
    """Columns are as wide as their widest cell; figures are on the right."""
    assert shown(None) == [
        "name                      port  what it is for",
        "genesis-with-a-long-name  8022  the model of everyday work",
        "aeon                        80  its sibling",
    ]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (58, ["genesis-with-a-long-name  8022  the model of everyday work"]),
        (44, ["genesis-with-a-lo…  8022  the model of ever…"]),
        (22, ["genes…  8022  the mod…"]),
        (21, ["genesis-with-a…  8022"]),
        (12, ["genes…  8022"]),
    ],
)
def test_a_narrow_screen_has_cut_cells_and_fewer_columns(columns: int, lines: list[str]) -> None:
    """The widest cells are cut first; a column that can be spared makes room for the others."""
    assert shown(columns)[1:2] == lines


def test_the_narrowest_screen_has_rows_one_below_the_other() -> None:
    """Every cell is whole then, and has its head."""
    assert shown(11) == [
        "name: genesis-with-a-long-name",
        "  port            8022",
        "  what it is for  the model of everyday work",
        "name: aeon",
        "  port            80",
        "  what it is for  its sibling",
    ]


def test_a_cut_in_ascii_takes_three_cells() -> None:
    """The table fits in the C locale too."""
    assert shown(44, unicode=False)[1] == "genesis-with-a-...  8022  the model of ev..."


@given(st.integers(1, 120))
def test_rows_can_be_told_apart_at_any_width(columns: int) -> None:
    """Each row has lines of its own, and with heads each fits."""
    table = fitted(COLUMNS, ROWS, Terminal(stream=io.StringIO(), interactive=True, columns=columns))
    assert len(table.rows) == len(ROWS)
    if table.heads:
        assert all(width(line) <= columns for line in table.lines())


def test_a_table_without_rows_has_its_heads() -> None:
    """No row is no error."""
    table = fitted(COLUMNS, (), Terminal(stream=io.StringIO()))
    assert list(table.lines()) == ["name  port  what it is for"]
