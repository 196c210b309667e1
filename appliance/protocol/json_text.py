"""JSON text of a value and value of a JSON text, by the C functions behind the package json.

Importing json itself takes 2.5 ms of a command, because it imports re and compiles patterns.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Never

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
