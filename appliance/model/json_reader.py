"""Reader of JSON from outside this process: bounded in size and depth, ValueError for all that it refuses.

No other module parses JSON, so that no text can end a process: a deep one costs Python's parser its stack
(RecursionError), and whoever walks the value later, too. Names given twice: the last one counts, as for
the package json. That package takes 2.5 ms of a command, because it imports re and compiles patterns; the C
functions behind it are enough here.
"""

from __future__ import annotations

from _json import make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Never

LARGEST_TEXT: Final = 64 << 20
"""Longest text that is parsed: the largest body of a request. Who reads the bytes has a closer bound."""
MOST_LEVELS: Final = 64
"""Most levels of lists and objects within one another."""
_SPACE: Final = " \t\n\r"
_CONSTANTS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class JsonBoundError(ValueError):
    """Text beyond one of the bounds."""


class _Options:
    """Options that the scanner reads of a `json.JSONDecoder`, at their defaults."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = _CONSTANTS.__getitem__


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")


class _StrictOptions(_Options):
    parse_constant = staticmethod(_refuse_constant)


_scan = make_scanner(_Options)  # type: ignore[arg-type]  # it reads attributes
_scan_strictly = make_scanner(_StrictOptions)  # type: ignore[arg-type]


def decode_json(text: str | bytes | bytearray, *, strict: bool = False) -> Any:
    """Return the value that a text holds, as `json.loads` does; bytes are UTF-8.

    Args:
        text: From anywhere.
        strict: Refuse NaN and Infinity, which Python's json reads and writes.

    Raises:
        ValueError: the text is not JSON, too long or nested too deeply.
    """
    if len(text) > LARGEST_TEXT:
        raise JsonBoundError("too long")
    if not isinstance(text, str):
        text = text.decode(errors="surrogatepass")
    text = text.strip(_SPACE)
    try:
        value, end = (_scan_strictly if strict else _scan)(text, 0)
    except StopIteration as error:
        raise ValueError("not JSON") from error
    except RecursionError as error:
        raise JsonBoundError("nested too deeply") from error
    if end != len(text):
        raise ValueError("not JSON alone")
    if text.count("[") + text.count("{") > MOST_LEVELS and _levels(value) > MOST_LEVELS:
        raise JsonBoundError("nested too deeply")
    return value


def _levels(value: object) -> int:
    """Count the levels of lists and objects, up to one more than allowed."""
    within: list[Any] = [value]
    for level in range(MOST_LEVELS + 1):
        within = [each for each in within if isinstance(each, list | dict)]
        if not within:
            return level
        within = [
            child
            for each in within
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    return MOST_LEVELS + 1


def parse_object(text: str | bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object in a text. Raises `ValueError`: what the text is, as a phrase."""
    try:
        document = decode_json(text, strict=True)
    except JsonBoundError:
        raise
    except ValueError as error:
        raise ValueError("not JSON") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - all faults are one to callers
    return document
