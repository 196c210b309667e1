"""Values as rows of a database: what is a column, what is JSON text, and what is damage."""

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
import pytest

from appliance.system.sqlite.database import DAMAGE
from appliance.system.sqlite.store import from_row, to_row


class Colour(StrEnum):
    """Enumeration, which is a text column."""

    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Value within another."""

    size: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """Value with a field of each form."""

    name: str
    colour: Colour = Colour.RED
    is_new: bool = True
    weight: float | None = None
    parts: tuple[Part, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    cover: Part | None = None


THING = Thing(name="a", is_new=False, weight=1.5, parts=(Part(size=2.0),), counts={"x": 1})
ROW = {
    "name": "a",
    "colour": "red",
    "is_new": 0,
    "weight": 1.5,
    "parts": '[{"size":2.0}]',
    "counts": '{"x":1}',
    "cover": None,
}


def test_a_value_is_a_row_and_comes_back() -> None:
    """A list is JSON text, and a truth value is a number."""
    assert to_row(THING) == ROW
    assert from_row(Thing, {**ROW, "further": 7}) == THING


def test_a_field_without_a_column_is_given() -> None:
    """A table of an older release may have another name for a field."""
    row = {name: value for name, value in ROW.items() if name != "weight"}
    assert to_row(THING, "weight") == row
    assert from_row(Thing, {**row, "mass": 1.5}, weight=1.5) == THING


@pytest.mark.parametrize(
    "damage",
    [
        {"colour": "blue"},
        {"weight": "heavy"},
        {"weight": float("nan")},
        {"parts": "[{"},
        {"parts": "[7]"},
        {"counts": '{"x":"y"}'},
        {"name": None},
    ],
)
def test_a_damaged_row_is_refused(damage: dict[str, object]) -> None:
    """Each value is of its field's type, or the row is damaged."""
    with pytest.raises(DAMAGE):
        from_row(Thing, {**ROW, **damage})


def test_a_row_without_a_column_is_refused() -> None:
    """A default never stands for a column that is missing."""
    row = {name: value for name, value in ROW.items() if name != "is_new"}
    with pytest.raises(DAMAGE):
        from_row(Thing, row)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Struct, whose fields are columns as those of a dataclass."""

    left: int
    right: tuple[str, ...] = ()


def test_a_struct_is_a_row_as_well() -> None:
    """Types of both kinds are stored."""
    row = {"left": 1, "right": '["a"]'}
    assert to_row(Pair(left=1, right=("a",))) == row
    assert from_row(Pair, row) == Pair(left=1, right=("a",))
