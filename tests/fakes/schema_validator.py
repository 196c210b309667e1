"""Validator of JSON values against the keywords that our schemas have; any other keyword is an error."""

from collections.abc import Iterator
from typing import Any

_TEXTS = {"$schema", "$id", "$defs", "title", "description"}
_KNOWN = {
    "$ref", "type", "enum", "const", "anyOf", "properties", "required", "items",
    "additionalProperties",
}  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def violations(value: Any, schema: dict[str, Any]) -> list[str]:
    """Sentences about the places where a value is not as the schema says."""
    return list(_violations(value, schema, schema.get("$defs", {}), "it"))


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of objects that have no keys but those that it describes."""
    return {key: _closed(value) for key, value in schema.items()}


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _closed(inner) for key, inner in value.items()}
    is_object = isinstance(value.get("properties"), dict) and "type" in value
    return {"additionalProperties": {"enum": []}, **found} if is_object else found


def _violations(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str) -> Iterator[str]:
    unknown = schema.keys() - _TEXTS - _KNOWN
    assert not unknown, f"keywords that are not checked: {unknown}"
    if "$ref" in schema:
        yield from _violations(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, at)
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    if names and not any(_is(value, name) for name in names):
        yield f"{at} is {type(value).__name__}, not {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}, none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} is {value!r}, not {schema['const']!r}"
    if "anyOf" in schema:
        found = [list(_violations(value, one, defs, at)) for one in schema["anyOf"]]
        if all(found):
            yield f"{at} is none of the alternatives: {min(found, key=len)}"
    if isinstance(value, dict):
        yield from _in_object(value, schema, defs, at)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _violations(item, schema["items"], defs, f"{at}[{number}]")


def _in_object(
    value: dict[str, Any], schema: dict[str, Any], defs: dict[str, Any], at: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{at} has no {key}"
    for key, inner in value.items():
        if key in properties:
            yield from _violations(inner, properties[key], defs, f"{at}.{key}")
        elif "additionalProperties" in schema:
            yield from _violations(inner, schema["additionalProperties"], defs, f"{at}.{key}")


def _is(value: Any, name: str) -> bool:
    # JSON tells true from 1, Python does not.
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
