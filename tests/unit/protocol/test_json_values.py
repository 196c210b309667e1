"""JSON texts: as the package json reads and writes them."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.protocol.control import Exit
from appliance.protocol.json_values import decode_json, encode_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
PIECES = st.sampled_from([*'{}[]:,"a\\ \t1-é\x00', "1e5", "null", "NaN"])


@given(VALUES)
@example({"verb": "switch", "exit": Exit.BUSY, "tuple": (1, "\ud800")})
def test_texts_are_written_as_json_does(value: object) -> None:
    """A value makes the text that json makes, and comes back equal."""
    text = encode_json(value)
    assert text == json.dumps(value)
    assert decode_json(text) == json.loads(text)


def by_json(line: bytes) -> object:
    """The value of a line of UTF-8; json.loads would take UTF-16 and UTF-32, too."""
    return json.loads(line.decode(errors="surrogatepass"))


def outcome(read: Callable[[bytes], object], line: bytes) -> str:
    """The value in words, because NaN equals nothing; or that there is none."""
    try:
        return repr(read(line))
    except (ValueError, RecursionError):
        return "no value"


@given((st.lists(PIECES).map("".join) | VALUES.map(lambda v: f" {json.dumps(v)} ")).map(str.encode))
@example(b"")
@example(b"1 2")
@example(b"\x0b1")
@example(b'{"a": 1, "a": 2}')
@example(b'"\x80"')
@example(b"[" * 100_000)
def test_texts_are_read_as_json_does(line: bytes) -> None:
    """A text is the same value for both, or none for both."""
    assert outcome(decode_json, line) == outcome(by_json, line)


def test_constants() -> None:
    """The numbers that JSON has no words for are read and written as Python's json does."""
    assert decode_json(b"[Infinity, -Infinity]") == [math.inf, -math.inf]
    assert encode_json(math.inf) == "Infinity"


def test_what_json_cannot_hold() -> None:
    """A set is refused."""
    with pytest.raises(TypeError, match="set is no JSON"):
        encode_json({"names": {"a"}})
