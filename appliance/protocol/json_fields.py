"""Typed readings of JSON objects: a field that another version left out is empty, never an error."""

from collections.abc import Mapping

Json = Mapping[str, object]


def text_in(source: Json, key: str) -> str:
    """Return the text at `key`; empty when it is missing or no text."""
    value = source.get(key)
    return value if isinstance(value, str) else ""


def number_in(source: Json, key: str) -> float | None:
    """Return the number at `key`; None when it is missing, no number or too large for a float."""
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


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
