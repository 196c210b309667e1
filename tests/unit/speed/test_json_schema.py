"""The check of JSON values against a subset of JSON Schema."""

import pytest

from appliance.speed.json_schema import SchemaError, parse_schema, schema_fault

PERSON = {
    "title": "person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "minItems": 1, "maxItems": 2},
        "alive": {"const": True},
        "either": {"type": ["number", "null"]},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"name": "Ada"}, None),
        ({"name": "Ada", "age": 36, "tags": ["a", None], "alive": True, "either": 1.5}, None),
        ({"name": "Ada", "age": 36.0, "either": None}, None),
        ([], "it is not of type object"),
        ({}, "it lacks name"),
        ({"name": ""}, "it.name has fewer than 1 characters"),
        ({"name": "a" * 9}, "it.name has more than 8 characters"),
        ({"name": "Ada", "age": "36"}, "it.age is not of type integer"),
        ({"name": "Ada", "age": True}, "it.age is not of type integer"),
        ({"name": "Ada", "age": 36.5}, "it.age is not of type integer"),
        ({"name": "Ada", "age": -1}, "it.age is below 0"),
        ({"name": "Ada", "age": 151}, "it.age is above 150"),
        ({"name": "Ada", "tags": []}, "it.tags has fewer than 1 items"),
        ({"name": "Ada", "tags": ["a", "b"]}, "it.tags[1] is none of the allowed values"),
        ({"name": "Ada", "tags": [True]}, "it.tags[0] is none of the allowed values"),
        ({"name": "Ada", "alive": 1}, "it.alive is none of the allowed values"),
        ({"name": "Ada", "either": "1"}, "it.either is not of type number or null"),
        ({"name": "Ada", "secret": 1}, "it has a property that the schema does not allow"),
    ],
)
def test_fault(value: object, fault: str | None) -> None:
    """The first fault names its place by the schema's keys, and a value that fits has none."""
    assert schema_fault(value, parse_schema(PERSON), "it") == fault


def test_untyped() -> None:
    """A schema without keywords is fit by every value, and its arrays take every item."""
    values: list[object] = [1, [2], "a", {}]
    assert all(schema_fault(value, parse_schema({}), "it") is None for value in values)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ([], "a schema is an object"),
        ({"type": "text"}, "type must be one or more of"),
        ({"type": 1}, "type must be one or more of"),
        ({"enum": []}, "enum must be a list of 1 to 64 values"),
        ({"enum": "a"}, "enum must be a list"),
        ({"enum": [[]]}, "enum and const take texts"),
        ({"properties": []}, "properties must be an object"),
        ({"properties": {str(number): {} for number in range(65)}}, "at most 64"),
        ({"required": "a"}, "required must be a list of at most 64"),
        ({"required": [1]}, "required must be a list of names"),
        ({"additionalProperties": {}}, "additionalProperties must be true or false"),
        ({"minLength": -1}, "minLength must be a whole number"),
        ({"maxItems": 1.5}, "maxItems must be a whole number"),
        ({"minimum": "0"}, "minimum must be a number"),
        ({"maximum": True}, "maximum must be a number"),
        ({"pattern": "a"}, 'keyword "pattern" is not known here'),
        ({"properties": {"a": {"$ref": "#"}}}, 'keyword "$ref" is not known here'),
    ],
)
def test_refused(schema: object, text: str) -> None:
    """A keyword that is unknown or of a wrong form is refused, never ignored."""
    with pytest.raises(SchemaError, match=text.replace("$", r"\$")):
        parse_schema(schema)


def test_depth() -> None:
    """A schema that is nested without end is refused."""
    schema: dict[str, object] = {}
    for _ in range(13):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="more than 12 deep"):
        parse_schema(schema)
