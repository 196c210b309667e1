"""Reader of JSON: as the package json, within its bounds."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.model import json_reader
from appliance.model.json_reader import MOST_LEVELS, decode_json, parse_object

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
PIECES = st.sampled_from([*'{}[]:,"a\\ \t1-é\x00', "1e5", "null", "NaN"])


def by_json(line: bytes) -> object:
    """The value of a line of UTF-8; json.loads would take UTF-16 and UTF-32, too."""
    return json.loads(line.decode(errors="surrogatepass"))


def outcome(read: Callable[[bytes], object], line: bytes) -> str:
    """The value in words, because NaN equals nothing; or that there is none."""
    try:
        return repr(read(line))
    except ValueError:
        return "no value"


@given((st.lists(PIECES).map("".join) | VALUES.map(lambda v: f" {json.dumps(v)} ")).map(str.encode))
@example(b"")
@example(b"1 2")
@example(b"\x0b1")
@example(b'{"a": 1, "a": 2}')
@example(b'"\x80"')
def test_texts_are_read_as_json_does(line: bytes) -> None:
    """A text is the same value for both, or none for both."""
    assert outcome(decode_json, line) == outcome(by_json, line)


def test_constants() -> None:
    """The numbers that JSON has no words for are read as Python's json does, or refused."""
    assert decode_json(b"[Infinity, -Infinity]") == [math.inf, -math.inf]
    with pytest.raises(ValueError, match="NaN is no JSON"):
        decode_json("[NaN]", strict=True)


@pytest.mark.parametrize("count", [MOST_LEVELS + 1, 5_000, 3_000_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("ends", [True, False], ids=["whole", "cut"])
def test_deep_texts_are_values_errors_of_the_text(count: int, opening: str, ends: bool) -> None:  # noqa: FBT001
    """A text of any depth, whole or cut off, is a ValueError; no depth is a RecursionError."""
    text = opening * count
    if ends:
        text += "1" + "".join({"[": "]", "{": "}"}.get(c, "") for c in reversed(opening)) * count
    for read in (decode_json, parse_object):
        with pytest.raises(ValueError, match=r"nested too deeply|not JSON"):
            read(text)


def test_as_many_levels_as_allowed_are_read() -> None:
    """The deepest text that is allowed is read, also beside many shallow brackets."""
    text = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert decode_json(text) == json.loads(text)
    wide: object = [[{}] * 200] * 200
    assert decode_json(json.dumps(wide)) == wide


def test_a_long_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text beyond the bound is refused before it is decoded."""
    monkeypatch.setattr(json_reader, "LARGEST_TEXT", 10)
    assert decode_json(b'"\xff'[:1] + b'12345678"') == "12345678"
    with pytest.raises(ValueError, match="too long"):
        decode_json(b'"\xff23456789"')
