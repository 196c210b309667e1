"""JSON without the package json: text of a value, and typed readings of an object's fields.

Values are read by `appliance.model.json_reader`. A field that another version left out is empty, never an error.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Never

    Json = Mapping[str, object]
else:
    Json = dict  # for annotations alone


def encode_json(value: object) -> str:
    """Return a value as one line of ASCII, as `json.dumps` does.

    Raises:
        TypeError: JSON cannot hold it.
    """
    encode = make_encoder(
        markers={},
        default=_refuse,
        encoder=encode_basestring_ascii,
        indent=None,
        key_separator=": ",
        item_separator=", ",
        sort_keys=False,
        skipkeys=False,
        allow_nan=True,
    )
    return "".join(encode(value, 0))


def _refuse(value: object) -> Never:
    raise TypeError(f"{type(value).__name__} is no JSON")


def text_in(source: Json, key: str) -> str:
    """Return the text at `key`; empty when missing or no text."""
    value = source.get(key)
    return value if isinstance(value, str) else ""


def number_in(source: Json, key: str) -> float | None:
    """Return the number at `key`; None when missing, no number or too large for a float."""
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def whole_in(source: Json, key: str) -> int | None:
    """Return the whole number at `key`; None when missing or none."""
    value = source.get(key)
    return value if type(value) is int else None


def texts_in(source: Json, key: str) -> list[str]:
    """Return the list of texts at `key`; empty when it is missing."""
    value = source.get(key)
    return [str(item) for item in value] if isinstance(value, list) else []


def objects_in(source: Json, key: str) -> list[Json]:
    """Return the list of objects at `key`; empty when it is missing."""
    value = source.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_in(source: Json, key: str) -> Json:
    """Return the object at `key`; empty when it is missing or null."""
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def numbers_in(source: Json, key: str) -> dict[str, float]:
    """Return the object of numbers at `key`; what is no number is 0, empty when it is missing."""
    found = object_in(source, key)
    return {name: number_in(found, name) or 0.0 for name in found}
