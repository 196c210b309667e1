"""Frozen records, without what makes dataclasses slow to import."""

import pytest

from appliance.model.record import Record


class Point(Record):
    """Two fields, of which one has a default."""

    x: int
    y: int = 0


class Size(Record):
    """The same fields."""

    x: int
    y: int = 0


def test_fields_are_given_by_place_or_name_or_have_defaults() -> None:
    """A record is made as a dataclass is, and a copy may have other values."""
    assert Point(1) == Point(x=1, y=0) == Point(3, 0).replaced(x=1)
    assert Point(1, 2).fields() == {"x": 1, "y": 2}
    assert repr(Point(1)) == "Point(x=1, y=0)"
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_records_of_two_classes_are_never_equal() -> None:
    """Equal values make equal records of one class only, with equal hashes."""
    assert len({Point(1), Size(1)}) == 2
    assert {Point(1), Point(1), Size(1)} == {Point(1), Size(1)}


def test_a_record_is_frozen() -> None:
    """No field can be set after the record is made."""
    with pytest.raises(AttributeError, match="immutable"):
        Point(1).x = 2  # type: ignore[misc]
