"""Scanner of a short JSON object: its members, in one pass of the standard library's C scanner.

For bodies of a few KiB: longer ones have `long_json`. No values are kept: numbers and objects
become booleans as they are met. The text is scanned as Latin-1, one character a byte, so that
positions in it are positions in the body; the tokens of JSON's grammar are ASCII in both.
"""

import json
import re
from collections.abc import Callable
from json import JSONDecodeError, decoder
from json.scanner import make_scanner
from typing import Any, Final, NoReturn, cast

from appliance.model.errors import ApplianceError

MOST_MEMBERS: Final = 1000
"""Most members of one object. No API has a tenth of that; each costs half a microsecond."""


class BodyError(ApplianceError):
    """Body that cannot be routed; the message is for the client."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param: Final = param
        """Request parameter that is to blame; None: the body as such."""


def _no_constant(word: str) -> NoReturn:
    raise BodyError(f"the body is not JSON: {word} is no JSON value")


_whitespace: Final = re.compile(r"[ \t\n\r]*").match
_scan_once: Final = make_scanner(
    # The stubs want a context object; the scanner reads the attributes of a decoder.
    cast(
        "Any",
        json.JSONDecoder(
            object_hook=bool, parse_float=bool, parse_int=bool, parse_constant=_no_constant
        ),
    )
)

# The C function, which the type stubs leave out.
_scan_string: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]

_read_once: Final = make_scanner(
    # Numbers become the lengths of their text: converting a long one takes long, and no number may
    # be taken for a string or for true.
    cast("Any", json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_no_constant))
)
_SHORT_BYTES: Final = 4096
"""Longest body for `scan_plain_object`: a body of this length cannot hold too many members."""
_MODEL: Final = b'"model"'
_MODEL_MEMBER: Final = re.compile(rb'"model"[ \t\n\r]*:[ \t\n\r]*("[^"\\]*")')

Member = tuple[str, int, int, int]
"""Member of an object: key, position of its quote, begin and end of its value."""


def scan_object(body: bytes) -> tuple[int, list[Member]]:
    """Return the position of the brace of a body's object, and the object's members.

    Raises:
        BodyError: The body is no JSON object in UTF-8, or is nested too deeply.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BodyError("the body is not UTF-8") from error
    text = body.decode("latin-1")
    at = _whitespace(text).end()  # type: ignore[union-attr]  # it matches everywhere
    if text[at : at + 1] != "{":
        raise BodyError("the body is not a JSON object")
    found, end = _members(text, at)
    if _whitespace(text, end).end() != len(text):  # type: ignore[union-attr]
        raise BodyError(f"the body is not JSON: something follows the object at byte {end}")
    return at, found


def scan_plain_object(body: bytes) -> tuple[str | None, bool] | None:
    """Return the model, and whether a stream is wanted, of a plain body.

    Most bodies have each key once and without escapes. The C scanner parses such a body in one go,
    which takes half as long as `scan_object`: on the path of every request.

    Returns:
        None: the body is not plain; `scan_object` tells what is wrong with it, if anything.
    """
    if len(body) > _SHORT_BYTES:
        return None
    try:
        text = body.decode()
        # Searched in the text, because `in` takes four times as long for bytes.
        found, end = (None, 0) if "\\u" in text else _read_once(text, 0)
    except (ValueError, StopIteration, RecursionError, BodyError):
        return None
    if type(found) is not dict or end != len(text):
        return None
    # A key that occurs once in the text, and is a member, occurs nowhere else.
    once = "stream" not in found or body.count(b'"stream"') == 1
    model = found.get("model")
    if model is None:
        # `scan_object` finds the position of null.
        once = once and "model" not in found
    else:
        once = once and type(model) is str and body.count(_MODEL) == 1
    return (model, found.get("stream") is True) if once else None


def find_plain_model(body: bytes) -> tuple[int, int] | None:
    """Return the position of the model in a plain body; None: the model is written with escapes."""
    written = _MODEL_MEMBER.match(body, body.find(_MODEL))
    return None if written is None else written.span(1)


def scan_member_object(body: bytes, start: int, end: int) -> list[Member]:
    """Return the members of an object inside of a body that was scanned already.

    Raises:
        BodyError: The object has too many members.
    """
    found, _ = _members(body[start:end].decode("latin-1"), 0)
    return [(key, at + start, first + start, last + start) for key, at, first, last in found]


def decode_string(raw: bytes) -> str:
    """Return the value of a JSON string that was scanned already."""
    return _scan_string(raw.decode(), 1)[0]


def _members(text: str, at: int) -> tuple[list[Member], int]:
    """Return the members of the object at a brace, and the position of its end."""
    try:
        return _scan_members(text, at)
    except JSONDecodeError as error:
        # Some of the library's messages end with the word.
        why = error.msg.removesuffix(" at")
        raise BodyError(f"the body is not JSON: {why} at byte {error.pos}") from error
    except StopIteration as error:
        raise BodyError(f"the body is not JSON: no value at byte {error.value}") from error
    except IndexError as error:
        raise BodyError("the body is not JSON: it ends too soon") from error
    except RecursionError as error:
        raise BodyError("the body is nested too deeply") from error


def _scan_members(text: str, at: int) -> tuple[list[Member], int]:
    members: list[Member] = []
    foreign = not text.isascii()
    at = _past(text, at + 1)
    if text[at] == "}":
        return members, at + 1
    for _ in range(MOST_MEMBERS):
        if text[at] != '"':
            raise JSONDecodeError("no name", text, at)
        key, colon = _scan_string(text, at + 1)
        if foreign and not key.isascii():
            key = _reread(text[at:colon])
        start = _value_at(text, colon)
        _, end = _scan_once(text, start)
        members.append((key, at, start, end))
        if text[end] != ",":
            end = _past(text, end)
            if text[end] == "}":
                return members, end + 1
        at = _name_at(text, end)
    raise BodyError(f"an object of the body has more than {MOST_MEMBERS} members")


def _value_at(text: str, at: int) -> int:
    """Return the position of a value after its name, without a regex for usual spacing."""
    if text[at] != ":":
        at = _past(text, at)
        if text[at] != ":":
            raise JSONDecodeError("no colon", text, at)
    at += 1
    if text[at] == " ":
        at += 1
    return at if text[at] > " " else _past(text, at)


def _name_at(text: str, at: int) -> int:
    """Return the position of the next name after a value."""
    if text[at] != ",":
        raise JSONDecodeError("no comma", text, at)
    at += 1
    if text[at] == " ":
        at += 1
    return at if text[at] > " " else _past(text, at)


def _past(text: str, at: int) -> int:
    """Return the position after whitespace; raise IndexError at the end of the text."""
    end = _whitespace(text, at).end()  # type: ignore[union-attr]
    text[end]
    return end


def _reread(quoted: str) -> str:
    """Return a string that is not ASCII, decoded as UTF-8."""
    return decode_string(quoted.encode("latin-1"))
