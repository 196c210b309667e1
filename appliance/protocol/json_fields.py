"""JSON objects, and typed readings of their fields.

A field that another version left out is empty, never an error.
"""

from __future__ import annotations

from appliance.protocol.json_text import decode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Json = Mapping[str, object]
else:
    Json = dict  # for annotations alone


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text. Raises `ValueError`: what the text is, as a phrase."""
    try:
        document = decode_json(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        raise ValueError("not JSON") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - all faults are one to callers
    return document


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
