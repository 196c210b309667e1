"""JSON without the package json: value of a text, text of a value, and typed readings of an object's fields.

Importing json takes 2.5 ms of a command, because it imports re and compiles patterns; the C functions
behind it are enough here. A field that another version left out is empty, never an error.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Never

    Json = Mapping[str, object]
else:
    Json = dict  # for annotations alone

_SPACE = " \t\n\r"
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Options:
    """Options that the scanner reads of a `json.JSONDecoder`, at their defaults."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = _CONSTANTS.__getitem__


_scan = make_scanner(_Options)  # type: ignore[arg-type]  # it reads attributes


def decode_json(text: str | bytes) -> Any:
    """Return the value that a text holds, as `json.loads` does; bytes are UTF-8.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: it is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="surrogatepass")
    text = text.strip(_SPACE)
    try:
        value, end = _scan(text, 0)
    except StopIteration as error:
        raise ValueError("not JSON") from error
    if end != len(text):
        raise ValueError("not JSON alone")
    return value


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
