"""Dataclasses from JSON: what is of the field's type comes in, and anything else is named."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest

from appliance.wire.typed_json import JsonValueError, from_json


class Colour(StrEnum):
    """Words."""

    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Inner dataclass."""

    size: int
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Dataclass with a field of each kind."""

    name: Annotated[str, "a note"]
    part: Part
    parts: tuple[Part, ...] = ()
    colour: Colour = Colour.RED
    gpus: Literal["all"] | tuple[int, ...] | None = ()
    marks: frozenset[str] = frozenset()
    anything: Mapping[str, object] = field(default_factory=dict)
    is_new: bool = False


GOOD: dict[str, Any] = {"name": "a", "part": {"size": 1}}
FULL = Whole(
    name="a",
    part=Part(size=1, share=0.5),
    parts=(Part(size=2), Part(size=3)),
    colour=Colour.GREEN,
    gpus=(0, 2),
    marks=frozenset({"x"}),
    anything={"a": [None, {"b": 1}]},
    is_new=True,
)


def test_what_asdict_writes_comes_back() -> None:
    """The codec is the inverse of `asdict` and JSON; sets are lists there."""
    document = asdict(FULL) | {"marks": sorted(FULL.marks)}
    assert from_json(Whole, json.loads(json.dumps(document))) == FULL


PLAIN = Whole(name="a", part=Part(size=1))


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({}, PLAIN),
        ({"later": 1}, PLAIN),
        ({"gpus": "all"}, replace(PLAIN, gpus="all")),
        ({"gpus": None}, replace(PLAIN, gpus=None)),
    ],
)
def test_fields_have_defaults_and_other_names_are_ignored(
    changes: dict[str, object], whole: Whole
) -> None:
    """A file of another release of the same format can be read."""
    assert from_json(Whole, GOOD | changes) == whole


def test_whole_numbers_are_numbers() -> None:
    """JSON makes no difference between 2 and 2.0."""
    assert isinstance(from_json(Part, {"size": 1, "share": 2}).share, float)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": 1}, "name: expected `str`, got `int`"),
        ({"part": []}, "part: expected `object`, got `array`"),
        ({"part": {}}, "part.size is missing"),
        ({"part": {"size": True}}, "part.size: expected `int`, got `bool`"),
        ({"part": {"size": 1.5}}, "part.size: expected `int`, got `float`"),
        ({"part": {"size": 1, "share": True}}, "part.share: expected `float | null`, got `bool`"),
        ({"part": {"size": 1, "share": 10**400}}, "part.share: number out of range"),
        ({"part": {"size": 1, "share": float("nan")}}, "a number is not finite"),
        ({"parts": {"size": 1}}, "parts: expected `array`, got `object`"),
        ({"parts": [{"size": 1}, {"size": "2"}]}, "parts[1].size: expected `int`, got `str`"),
        ({"colour": "blue"}, "colour: invalid enum value"),
        ({"colour": ["red"]}, "colour: expected `str`, got `array`"),
        ({"gpus": "some"}, "gpus: invalid enum value"),
        ({"marks": "x"}, "marks: expected `array`, got `str`"),
        ({"anything": None}, "anything: expected `object`, got `null`"),
        ({"is_new": 1}, "is_new: expected `bool`, got `int`"),
    ],
)
def test_a_value_of_another_type_is_named(changes: dict[str, object], fault: str) -> None:
    """The error says which field, and what it is not; it shows no value."""
    with pytest.raises(JsonValueError) as raised:
        from_json(Whole, GOOD | changes)
    assert str(raised.value) == fault


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_only_an_object_is_a_dataclass(value: object) -> None:
    """A value that is no object has no place to name."""
    with pytest.raises(JsonValueError, match=r"^Expected `object`, got `[a-z]+`$"):
        from_json(Whole, value)
