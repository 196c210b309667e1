"""Long JSON bodies: scanned in steps, with the results of the short scanner."""

import json
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.routing.body_changes import LONG_BYTES, Pieces, compile_changes
from appliance.routing.json_body import BodyError, parse_json_in_steps
from appliance.routing.json_scanner import scan_object
from appliance.routing.long_json import LongJsonScanner, run_steps
from tests.fakes.body_parsing import change_json, parse_json

PAD = b" " * LONG_BYTES
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)


def read(body: bytes) -> tuple[LongJsonScanner, int]:
    """Return the result, and the number of steps."""
    top = LongJsonScanner(body)
    return top, 1 + sum(1 for _ in top.steps())


@given(
    st.dictionaries(st.text(max_size=20), _VALUES, max_size=8),
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
)
def test_long_bodies_are_read_as_short_ones(
    document: Mapping[str, object],
    ascii_: bool,  # noqa: FBT001
    indent: int | str | None,
) -> None:
    """Both scanners find the same members in the same places."""
    body = json.dumps(document, ensure_ascii=ascii_, indent=indent).encode()
    expected = scan_object(body)
    top, _ = read(body)
    assert (top.opening, top.members) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "ends too soon"),
        (b"[]", "not a JSON object"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\xc3', "not UTF-8"),
        (b"{", "too soon"),
        (b'{"a"', "too soon"),
        (b'{"a":', "too soon"),
        (b'{"a":1', "too soon"),
        (b'{"a":1,', "too soon"),
        (b'{"a":"b', "too soon"),
        (b'{"a":["b', "too soon"),
        (b'{"a":[1,', "too soon"),
        (b'{"a":1}{', "something follows the object"),
        (b"{a:1}", "no name"),
        (b'{"a":1,}', "no name"),
        (b'{"a" 1}', "no colon"),
        (b'{"a":1 "b":2}', "no comma"),
        (b'{"a":}', "no value"),
        (b'{"a":\x0b1}', "no value"),
        (b'{"a":01}', "no comma"),
        (b'{"a":tru}', "no value"),
        (b"{\"a\":'b'}", "no value"),
        (b'{"a":NaN}', "no value"),
        (b'{"a":"\n"}', "a control character in the string"),
        (b'{"a":"\\x41"}', "an invalid escape in the string"),
        (b'{"a":[/*"*/]}', "no value"),
        (b'{"a":[#"\n]}', "no value"),
        (b'{"a":[\'"\']}', "no value"),
        (b'{"a":["\x01"]}', "a control character"),
        (b'{"a":[}', "another bracket is open"),
        (b'{"a":{]', "another bracket is open"),
        (b'{"a":' + b"1" * 5000 + b"}", "no comma"),
        (b'{"' + b"a" * 9000 + b'":1}', "a name in the body is too long"),
        (b'{"a":' + b"[" * 1000, "nested too deeply"),
        (b"{" + b",".join(b'"%d":0' % n for n in range(1001)) + b"}", "more than 1000"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_long_bodies_that_two_readers_could_take_differently(body: bytes, message: str) -> None:
    """Ambiguous long bodies are refused, at the top level for the same reasons as short ones."""
    with pytest.raises(BodyError, match=message):
        read(PAD + body)


@pytest.mark.parametrize(
    "inside",
    [
        b"[" + b"1," * (1 << 20) + b"1]",
        b'"' + b"\\n" * (1 << 19) + b'"',
        b'"' + b"a" * (2 << 20) + b'"',
        b'"' + "漢".encode() * (1 << 19) + b'"',
        b"[" + b'"",' * (1 << 18) + b"1]",
        b"[" + (b'"' + b"x" * 200 + b'",') * 9_000 + b"1]",
        b"[" + b"{}," * 60_000 + b"1]",
        b" " * (2 << 20) + b"1",
        b"[" + b" " * (2 << 20) + b"1]",
    ],
    ids=lambda value: repr(value[:12]),
)
def test_long_bodies_take_steps_by_their_size_and_no_memory(inside: bytes) -> None:
    """Half of a body takes half of the steps, and no value is kept."""
    half = b'{"a":' + inside + b"}"
    whole = b'{"a":' + inside + b',"b":' + inside + b"}"
    tracemalloc.start()
    try:
        _, steps = read(half)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert len(half) / steps < 600 << 10
    assert read(whole)[1] <= 2 * steps + 2


def test_long_bodies_are_changed_without_a_copy() -> None:
    """The changed body is made of pieces of the original one."""
    content = b"A" * (1 << 20) + "🙂".encode()
    body = b'{"model":"a","messages":[{"role":"user","content":"%b"}],"top_k":1}' % content
    tracemalloc.start()
    try:
        new = parse_json(body).apply(compile_changes(model="b", set_={"n": 2}, strip=("top_k",)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(new, Pieces)
    expected = body.replace(b'{"model":"a"', b'{"n":2,"model":"b"').replace(b',"top_k":1', b"")
    assert (bytes(new), len(new)) == (expected, len(expected))
    assert b"head" + new == b"head" + expected
    assert peak < 1 << 20


def test_long_bodies_with_another_model_and_nothing_else() -> None:
    """Without changes the very same object comes back."""
    body = b'{"model":"a","prompt":"%b"}' % (b"x" * LONG_BYTES)
    assert parse_json(body).apply(compile_changes(model="a", set_={}, strip=())) is body
    assert change_json(body, model="b", set_={}, strip=()) == body.replace(b'"a"', b'"b"')


def test_short_bodies_take_no_step() -> None:
    """A short body is parsed without a step."""
    with pytest.raises(StopIteration) as end:
        next(parse_json_in_steps(b'{"model":"a"}'))
    assert end.value.value.model == "a"


def test_long_bodies_of_too_many_values_are_refused() -> None:
    """A body with as many brackets as allowed is read, one with more is refused."""
    body = PAD + b'{"a":[' + b"[]," * 999 + b"1]}"
    assert run_steps(LongJsonScanner(body, most_marks=1000).steps()) is None
    with pytest.raises(BodyError, match="too many values"):
        run_steps(LongJsonScanner(body, most_marks=999).steps())


def test_huge_model_names_are_refused() -> None:
    """A name is refused beyond a length, because it is repeated in errors."""
    body = b'{"model":"%b"}' % (b"a" * LONG_BYTES)
    with pytest.raises(BodyError, match="too long") as caught:
        parse_json(body)
    assert caught.value.param == "model"


def test_large_objects_are_not_changed_inside() -> None:
    """A change inside of a large object is refused, because that is scanned in one go."""
    body = b'{"model":"a","extra":{"x":"%b"}}' % (b"a" * (40 << 10))
    with pytest.raises(BodyError, match="too large") as caught:
        change_json(body, model="b", set_={"extra.y": 1}, strip=())
    assert caught.value.param == "extra"
