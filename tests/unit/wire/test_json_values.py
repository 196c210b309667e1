"""JSON texts: as the package json reads and writes them."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.model.json_reader import decode_json
from appliance.wire.control import Exit
from appliance.wire.json_values import encode_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(VALUES)
@example({"verb": "switch", "exit": Exit.BUSY, "tuple": (1, "\ud800")})
def test_texts_are_written_as_json_does(value: object) -> None:
    """A value makes the text that json makes, and comes back equal."""
    text = encode_json(value)
    assert text == json.dumps(value)
    assert decode_json(text) == json.loads(text)


def test_constants() -> None:
    """The numbers that JSON has no words for are written as Python's json does."""
    assert encode_json(math.inf) == "Infinity"


def test_what_json_cannot_hold() -> None:
    """A set is refused."""
    with pytest.raises(TypeError, match="set is no JSON"):
        encode_json({"names": {"a"}})
