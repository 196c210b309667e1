"""Check of JSON values against a subset of JSON Schema.

The keywords are those that OpenAI's structured outputs and the engines' grammars have in common,
without references, combinations and patterns: ``type``, ``enum``, ``const``, ``properties``,
``required``, ``additionalProperties`` (true or false), ``items``, and the bounds of lengths and
numbers. Every other keyword is refused, never ignored. A check takes time in proportion to the
value. Faults name places by the schema's own keys, and never quote a value.

A library would not replace the parser, and its phrases quote the value (docs/decisions/080).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_MOST_DEPTH: Final = 12
_MOST_NAMES: Final = 64
"""Limit of properties and of allowed values in one place, so that a check stays linear."""
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
_TEXTS: Final = frozenset({"title", "description", "$schema"})
"""Keywords that are for people."""
Scalar = str | int | float | bool | None


class SchemaError(ValueError):
    """Error for a schema that cannot be checked here; `str()` is a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Schema of one value."""

    types: tuple[str, ...] = ()
    """Empty: any."""
    allowed: tuple[Scalar, ...] | None = None
    """None: all."""
    properties: Mapping[str, "JsonSchema"] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    closed: bool = False
    """Whether an object may have no properties but these."""
    items: "JsonSchema | None" = None
    least_length: int = 0
    """Of a string or an array, as the next."""
    most_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None


def parse_schema(document: object, *, depth: int = 0) -> JsonSchema:
    """Return the schema that a JSON document describes. Raises `SchemaError`."""
    if not isinstance(document, dict):
        raise SchemaError("a schema is an object")
    if depth > _MOST_DEPTH:
        raise SchemaError(f"the schema is nested more than {_MOST_DEPTH} deep")
    values = {key: value for key, value in document.items() if key not in _TEXTS}
    closed = values.pop("additionalProperties", True)
    if not isinstance(closed, bool):
        raise SchemaError("additionalProperties must be true or false")
    schema = JsonSchema(
        types=_types(values.pop("type", [])),
        allowed=_allowed(values),
        properties={
            name: parse_schema(inner, depth=depth + 1)
            for name, inner in _properties(values.pop("properties", {})).items()
        },
        required=_required(values.pop("required", [])),
        closed=not closed,
        items=parse_schema(values.pop("items"), depth=depth + 1) if "items" in values else None,
        least_length=_length(values, "minLength", "minItems") or 0,
        most_length=_length(values, "maxLength", "maxItems"),
        minimum=_bound(values, "minimum"),
        maximum=_bound(values, "maximum"),
    )
    if values:
        raise SchemaError(f'keyword "{str(next(iter(values)))[:40]}" is not known here')
    return schema


def _types(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(name in _TYPES for name in names):
        raise SchemaError(f"type must be one or more of {', '.join(_TYPES)}")
    return tuple(names)


def _allowed(values: dict[str, object]) -> tuple[Scalar, ...] | None:
    if "const" in values:
        values["enum"] = [values.pop("const")]
    if "enum" not in values:
        return None
    allowed = values.pop("enum")
    if not isinstance(allowed, list) or not 0 < len(allowed) <= _MOST_NAMES:
        raise SchemaError(f"enum must be a list of 1 to {_MOST_NAMES} values")
    if not all(value is None or isinstance(value, str | int | float) for value in allowed):
        raise SchemaError("enum and const take texts, numbers, true, false and null")
    return tuple(allowed)


def _properties(value: object) -> dict[str, object]:
    if not isinstance(value, dict) or len(value) > _MOST_NAMES:
        raise SchemaError(f"properties must be an object of at most {_MOST_NAMES}")
    return value


def _required(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_NAMES:
        raise SchemaError(f"required must be a list of at most {_MOST_NAMES} names")
    if not all(isinstance(name, str) for name in value):
        raise SchemaError("required must be a list of names")
    return tuple(value)


def _length(values: dict[str, object], *keys: str) -> int | None:
    found: int | None = None
    for key in keys:
        if key in values:
            value = values.pop(key)
            if type(value) is not int or value < 0:
                raise SchemaError(f"{key} must be a whole number from 0")
            found = value
    return found


def _bound(values: dict[str, object], key: str) -> float | None:
    if key not in values:
        return None
    value = values.pop(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{key} must be a number")
    return value


def schema_fault(value: object, schema: JsonSchema, where: str) -> str | None:
    """Return the first fault of a value as a phrase; None: it fits the schema.

    Args:
        value: JSON value.
        schema: Schema that it must fit.
        where: Name of the value for the phrase.
    """
    return next(_faults(value, schema, where), None)


def _faults(value: object, schema: JsonSchema, where: str) -> Iterator[str]:
    if schema.types and not any(_is_of(name, value) for name in schema.types):
        yield f"{where} is not of type {' or '.join(schema.types)}"
    elif schema.allowed is not None and not _is_allowed(value, schema.allowed):
        yield f"{where} is none of the allowed values"
    elif isinstance(value, dict):
        yield from _object_faults(value, schema, where)
    elif isinstance(value, list):
        yield from _length_faults(len(value), schema, f"{where} has", "items")
        if schema.items is not None:
            for index, item in enumerate(value):
                yield from _faults(item, schema.items, f"{where}[{index}]")
    elif isinstance(value, str):
        yield from _length_faults(len(value), schema, f"{where} has", "characters")
    elif isinstance(value, int | float):
        yield from _number_faults(value, schema, where)


def _object_faults(value: Mapping[str, object], schema: JsonSchema, where: str) -> Iterator[str]:
    for name in schema.required:
        if name not in value:
            yield f"{where} lacks {name}"
    if schema.closed and any(name not in schema.properties for name in value):
        yield f"{where} has a property that the schema does not allow"
    for name, inner in schema.properties.items():
        if name in value:
            yield from _faults(value[name], inner, f"{where}.{name}")


def _number_faults(value: float, schema: JsonSchema, where: str) -> Iterator[str]:
    if schema.minimum is not None and value < schema.minimum:
        yield f"{where} is below {schema.minimum:g}"
    if schema.maximum is not None and value > schema.maximum:
        yield f"{where} is above {schema.maximum:g}"


def _length_faults(length: int, schema: JsonSchema, subject: str, unit: str) -> Iterator[str]:
    if length < schema.least_length:
        yield f"{subject} fewer than {schema.least_length} {unit}"
    if schema.most_length is not None and length > schema.most_length:
        yield f"{subject} more than {schema.most_length} {unit}"


def _is_of(name: str, value: object) -> bool:
    """Tell whether a value is of a type of JSON; a number without fraction is an integer too."""
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, int):
        return name in {"integer", "number"}
    if isinstance(value, float):
        return name == "number" or (name == "integer" and value.is_integer())
    kinds = {dict: "object", list: "array", str: "string", type(None): "null"}
    return kinds.get(type(value)) == name


def _is_allowed(value: object, allowed: tuple[Scalar, ...]) -> bool:
    """Tell whether a value is among others; true is not 1, as it is in Python."""
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed
    )
