"""Values of our types from JSON, checked by msgspec against their annotations.

A field that is missing has its default, and a name that is no field is ignored, so that releases of
one format can read each other's files. The way out is `dataclasses.asdict`.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any]


class JsonValueError(ValueError):
    """Value that is not of its field's type."""


def from_json(kind: type[T], value: object, *, dec_hook: Hook | None = None) -> T:
    """Return the `kind` that a decoded JSON value stands for.

    Args:
        kind: Type of the result.
        value: Decoded JSON.
        dec_hook: Maker of values of types that msgspec does not know, as of `msgspec.convert`.

    Raises:
        JsonValueError: the value is not of that type.
    """
    if not _is_finite(value):
        raise JsonValueError("a number is not finite")
    return from_strict_json(kind, value, dec_hook=dec_hook)


def from_strict_json(kind: type[T], value: object, *, dec_hook: Hook | None = None) -> T:
    """Return what `from_json` does; the value has no NaN and no Infinity (`json_reader.parse_object`)."""
    try:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise JsonValueError(_fault_of(error)) from None


def _fault_of(error: msgspec.ValidationError) -> str:
    """Return what is wrong with a value, after its field's name; the value itself is not shown."""
    text, _, place = str(error).partition(" - at `$")
    place = place.removeprefix(".").removesuffix("`")
    missing = text.removeprefix("Object missing required field `")
    if missing != text:
        return f"{place}.{missing}".lstrip(".").rstrip("`") + " is missing"
    fault = text.partition(" '")[0]  # what follows is the value
    return f"{place}: {fault[:1].lower()}{fault[1:]}" if place else fault


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
        case _:
            return True
