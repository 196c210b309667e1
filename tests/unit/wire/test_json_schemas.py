"""Schemas of types: what each annotation becomes, and where descriptions come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from appliance.wire.control_events import AcceptedEvent
from appliance.wire.json_schemas import SchemaDeriver
from tests.fakes.schema_validator import violations


class Colour(StrEnum):
    """Colour."""

    RED = "red"


@dataclass(frozen=True)
class Wheel:
    """Wheel.

    Of a cart.
    """

    size_mm: int
    """Diameter."""
    spokes: tuple[str, ...] = ()


class Cart(TypedDict):
    """Cart."""

    wheels: list[Wheel]
    name: str | None
    """None: it has none."""
    load: NotRequired[float]


class Train(Cart):
    """Cart with others behind it."""

    others: list["Train"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (float | None, {"type": ["number", "null"]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Colour, {"type": "string", "enum": ["red"]}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Mapping[str, object], {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[Colour] | None, {"anyOf": [
            {"type": "array", "items": {"type": "string", "enum": ["red"]}}, {"type": "null"}]}),
    ],
)  # fmt: skip
def test_annotations_become_schemas(kind: Any, schema: dict[str, Any]) -> None:
    """Each form of annotation has one form of schema."""
    assert SchemaDeriver().schema(kind) == schema


def test_objects_have_the_texts_of_their_docstrings() -> None:
    """Descriptions are the docstrings of the class and of its keys; a default is no absence."""
    deriver = SchemaDeriver()
    deriver.schema(Cart)
    assert deriver.definitions["Wheel"] == {
        "type": "object",
        "description": "Wheel. Of a cart.",
        "properties": {
            "size_mm": {"type": "integer", "description": "Diameter."},
            "spokes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["size_mm", "spokes"],
    }
    assert deriver.definitions["Cart"]["required"] == ["wheels", "name"]


def test_a_type_that_has_itself_as_a_part_ends() -> None:
    """A train of trains refers to itself, and has the texts of what it extends."""
    deriver = SchemaDeriver()
    schema = {**deriver.schema(Train), "$defs": deriver.definitions}
    train: dict[str, Any] = {"wheels": [], "name": None, "others": []}
    assert violations({**train, "others": [train]}, schema) == []
    assert violations({**train, "others": [{}]}, schema)
    described = deriver.definitions["Train"]["properties"]["name"]
    assert described["description"] == "null: it has none."


def test_types_of_another_process_may_lack_keys() -> None:
    """Keys that another release may leave out are not required."""
    deriver = SchemaDeriver(frozenset({Wheel}))
    deriver.schema(Wheel)
    assert deriver.definitions["Wheel"]["required"] == []


def test_an_event_has_its_name_and_the_fields_without_default() -> None:
    """A line of an event names it; fields with a default may be left out by another release."""
    deriver = SchemaDeriver()
    schema = {**deriver.event(AcceptedEvent, "accepted"), "$defs": deriver.definitions}
    assert violations({"event": "accepted", "operation": 1, "kind": "switch"}, schema) == []
    assert violations({"event": "phase", "operation": 1, "kind": "switch"}, schema)
    assert violations({"event": "accepted", "operation": True, "kind": "switch"}, schema)


def test_a_record_of_this_process_has_each_field() -> None:
    """In a document that is made here of records nothing is left out; its definitions stand elsewhere."""
    deriver = SchemaDeriver(place="#/components/schemas/", are_records_whole=True)
    assert deriver.schema(AcceptedEvent) == {"$ref": "#/components/schemas/AcceptedEvent"}
    assert deriver.definitions["AcceptedEvent"]["required"] == [*AcceptedEvent.__match_args__]


def test_a_type_without_a_form_is_refused() -> None:
    """A callable has no form in JSON."""
    with pytest.raises(TypeError, match="has no form in JSON"):
        SchemaDeriver().schema(complex)
