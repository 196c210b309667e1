"""JSON bodies: their model, and changes that leave every other byte as it was."""

import json
import re
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.routing.json_body import LONG_BYTES, Pieces, compile_changes, parse_json_in_steps
from appliance.routing.json_scanner import BodyError, LongJsonScanner, run_steps, scan_object
from tests.fakes.body_parsing import change_json, parse_json


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b"{}", None),
        (b" \t\r\n{ } \n", None),
        (b'{"model":"a"}', "a"),
        (b'{ "model" : "a" }', "a"),
        (b'{"model"\n:\n"a"\n,\n"x"\n:\n1\n}', "a"),
        (b'{"x":{"model":"inner"},"y":"model","model":"a"}', "a"),
        (b'{"x":"\\"model\\":\\"b\\"","model":"a"}', "a"),
        (b'{"mod\\u0065l":"a"}', "a"),
        (b'{"model":"\\u0061\\n"}', "a\n"),
        ('{"model":"ü","ö":"ä"}'.encode(), "ü"),
        (b'{"model":null}', None),
        (b'{"model":""}', ""),
        (b'{"Model":"a"}', None),
    ],
)
def test_the_model_is_that_of_the_top_level(body: bytes, model: str | None) -> None:
    """Names inside of other values, and text that looks like JSON, are not the model."""
    assert parse_json(body).model == model


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"stream":true}', True),
        (b'{"stream": true }', True),
        (b'{"stream":false}', False),
        (b'{"stream":"true"}', False),
        (b'{"stream":1}', False),
        (b'{"stream":{}}', False),
        (b'{"x":{"stream":true}}', False),
        (b"{}", False),
    ],
)
def test_a_stream_is_asked_for_with_true(body: bytes, expected: bool) -> None:  # noqa: FBT001
    """Only `true` at the top level asks for a stream."""
    assert parse_json(body).streams is expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"model"', "not a JSON object"),
        (b"\xef\xbb\xbf{}", "not a JSON object"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "not JSON"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\xc3"}', "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":"\xc0\xaf"}', "not UTF-8"),
        (b"{", "too soon"),
        (b'{"a"', "too soon"),
        (b'{"a":', "too soon"),
        (b'{"a":1', "too soon"),
        (b'{"a":1,', "too soon"),
        (b'{"a":"b', "Unterminated string starting at byte 5"),
        (b'{"a":1}{', "follows the object at byte 7"),
        (b'{"a":1}\x00', "follows the object"),
        (b"{}\xc2\xa0", "follows the object"),
        (b"{a:1}", "no name at byte 1"),
        (b'{"a":1,}', "no name at byte 7"),
        (b'{"a" 1}', "no colon at byte 5"),
        (b'{"a":1 "b":2}', "no comma at byte 7"),
        (b'{"a":}', "no value at byte 5"),
        (b'{"a":\x0b1}', "no value at byte 5"),
        (b'{"a":01}', "no comma"),
        (b'{"a":tru}', "no value"),
        (b"{\"a\":'b'}", "no value"),
        (b'{"a":"\n"}', "control character"),
        (b'{"a":"\\x41"}', "escape"),
        (b'{"a":NaN}', "NaN is no JSON value"),
        (b'{"a":[-Infinity]}', "-Infinity is no JSON value"),
        (b'{"b":' + b"[" * 5_000, "nested too deeply"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b'{"a":' * 100_000, "nested too deeply"),
        (b"{" + b",".join(b'"%d":0' % n for n in range(1001)) + b"}", "more than 1000"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_what_an_engine_could_read_in_another_way_is_refused(body: bytes, message: str) -> None:
    """The refusal has a message for the client, and blames no parameter."""
    with pytest.raises(BodyError, match=message) as caught:
        parse_json(body)
    assert caught.value.param is None
    assert re.search(r"\b(\w+) \1\b", str(caught.value)) is None, "a word is there twice"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model":"a","model":"a"}', "model"),
        (b'{"model":"a","mod\\u0065l":"b"}', "model"),
        (b'{"model":null,"model":"b"}', "model"),
        (b'{"stream":true,"stream":true}', "stream"),
        (b'{"model":1}', "model"),
        (b'{"model":["a"]}', "model"),
        (b'{"model":{}}', "model"),
        (b'{"model":true}', "model"),
    ],
)
def test_what_is_routed_by_is_there_once_and_a_string(body: bytes, param: str) -> None:
    """A duplicate key is refused, because engines differ in which one they take."""
    with pytest.raises(BodyError) as caught:
        parse_json(body)
    assert caught.value.param == param


def test_other_names_may_be_there_twice() -> None:
    """Duplicate keys that do not matter to routing are passed on."""
    body = b'{"seed":1,"seed":2,"model":"a"}'
    assert change_json(body, model="b", set_={}, strip=()) == b'{"seed":1,"seed":2,"model":"b"}'


@pytest.mark.parametrize(
    ("set_", "strip", "body", "param"),
    [
        ({}, ("seed",), b'{"seed":1,"seed":2}', "seed"),
        ({"seed": 1}, (), b'{"seed":1,"s\\u0065ed":2}', "seed"),
        ({"a.b": 1}, (), b'{"a":{"b":1},"a":{"b":2}}', "a"),
        ({"a.b": 1}, (), b'{"a":{"b":1,"b":2}}', "a.b"),
        ({"é": 1}, (), '{"é":1,"\\u00e9":2}'.encode(), "é"),
    ],
)
def test_what_is_changed_is_there_once(
    set_: Mapping[str, object], strip: tuple[str, ...], body: bytes, param: str
) -> None:
    """A duplicate key that would be changed is refused."""
    with pytest.raises(BodyError, match="twice") as caught:
        change_json(body, model=None, set_=set_, strip=strip)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a"}', b'{"model":"q"}'),
        (b' {\t"model" : "a" , "x":1.0}\n', b' {\t"model" : "q" , "x":1.0}\n'),
        (b'{"x":"\\u00fc\xc3\xbc","model":"a"}', b'{"x":"\\u00fc\xc3\xbc","model":"q"}'),
        (b'{"model":null}', b'{"model":"q"}'),
        (b"{}", b'{"model":"q"}'),
        (b"{ }", b'{"model":"q" }'),
        (b'{"x":1}', b'{"model":"q","x":1}'),
        (b'{ "x":1}', b'{"model":"q", "x":1}'),
        (b'{"x":"model","model":"a"}', b'{"x":"model","model":"q"}'),
        (b'{"x":{"model":"a"}}', b'{"model":"q","x":{"model":"a"}}'),
        (b'{"model":"a\\n","x":1}', b'{"model":"q","x":1}'),
    ],
)
def test_the_model_gets_the_name_that_the_engine_knows(body: bytes, expected: bytes) -> None:
    """The name is changed where it stood, or put in front."""
    assert change_json(body, model="q", set_={}, strip=()) == expected


@pytest.mark.parametrize(
    ("set_", "strip", "body", "expected"),
    [
        ({"t": 1}, (), b"{}", b'{"t":1}'),
        ({"t": 1}, (), b'{"t":0.5}', b'{"t":1}'),
        ({"t": None}, (), b'{"t":0.5}', b'{"t":null}'),
        ({"a.b": False}, (), b'{"x":1}', b'{"a":{"b":false},"x":1}'),
        ({"a.b": False}, (), b'{"a":{}}', b'{"a":{"b":false}}'),
        ({"a.b": False}, (), b'{"a": {"b" : true} }', b'{"a": {"b" : false} }'),
        ({"a.b": False}, (), b'{"a":{"c":"\xc3\xbc"}}', b'{"a":{"b":false,"c":"\xc3\xbc"}}'),
        ({"a.b": False}, (), b'{"a":null}', b'{"a":{"b":false}}'),
        ({"a.b": 1, "a.c": 2}, (), b"{}", b'{"a":{"b":1,"c":2}}'),
        ({"a.b": 1, "a.c.d": 2}, (), b'{"a":[]}', b'{"a":{"b":1,"c":{"d":2}}}'),
        ({"ü": "ö"}, (), '{"ü":1}'.encode(), b'{"\xc3\xbc":"\\u00f6"}'),
        ({}, ("s",), b'{"s":1}', b"{}"),
        ({}, ("s",), b'{ "s":1 }', b"{  }"),
        ({}, ("s",), b'{"s":1,"x":2}', b'{"x":2}'),
        ({}, ("s",), b'{"x":2, "s":1}', b'{"x":2}'),
        ({}, ("s",), b'{"x":2, "s":1, "y":3}', b'{"x":2, "y":3}'),
        ({}, ("s", "t"), b'{"s":1,"t":2,"x":3,"s2":4}', b'{"x":3,"s2":4}'),
        ({}, ("s", "t"), b'{"x":3,"s":1,"t":2}', b'{"x":3}'),
        ({}, ("s", "t"), b'{"s":1,"x":3,"t":2}', b'{"x":3}'),
        ({}, ("s", "t"), b'{"s":1,"t":2}', b"{}"),
        ({}, ("a.b",), b'{"a":{"b":1,"c":2}}', b'{"a":{"c":2}}'),
        ({"t": 1}, ("s",), b'{"s":1}', b'{"t":1}'),
        ({"t": 1}, ("s",), b'{"s":1,"x":2}', b'{"t":1,"x":2}'),
        ({"t": 1}, ("t",), b'{"t":2}', b'{"t":1}'),
        ({"a.b": 1}, ("a",), b'{"a":{"c":2}}', b'{"a":{"b":1}}'),
        ({"a.b": 1}, ("a.c",), b'{"a":{"c":2}}', b'{"a":{"b":1}}'),
        ({"a": {"x": 1}, "a.b": 2}, (), b'{"a":3}', b'{"a":{"x":1,"b":2}}'),
        ({"a": {"x": 1}}, ("a.b",), b'{"a":{"b":2}}', b'{"a":{"x":1}}'),
        ({"a": 1, "a.b.c": 2}, ("a.b",), b"{}", b'{"a":{"b":{"c":2}}}'),
        ({}, ("a", "a.b"), b'{"a":{"b":1}}', b"{}"),
    ],
)
def test_parameters_are_set_and_taken_out(
    set_: Mapping[str, object], strip: tuple[str, ...], body: bytes, expected: bytes
) -> None:
    """Dots reach into objects, and commas stay right."""
    assert change_json(body, model=None, set_=set_, strip=strip) == expected


@pytest.mark.parametrize(
    ("model", "set_", "strip", "body"),
    [
        (None, {}, (), b'{"model":"a"}'),
        ("a", {}, (), b'{"model":"a"}'),
        ("a", {"t": 1}, ("s",), b'{"model":"a","t":1}'),
        (None, {}, ("a.b",), b'{"a":1}'),
        (None, {}, ("a.b",), b'{"x":1}'),
        (None, {}, ("a.b.c",), b'{"a":{"b":[]}}'),
    ],
)
def test_without_anything_to_do_nothing_is_copied(
    model: str | None, set_: Mapping[str, object], strip: tuple[str, ...], body: bytes
) -> None:
    """Without changes the very same object comes back."""
    assert change_json(body, model=model, set_=set_, strip=strip) is body


def test_the_name_of_the_model_outranks_a_parameter_of_that_name() -> None:
    """A profile that sets `model` as well cannot make requests go wrong."""
    changes = compile_changes(model="q", set_={"model": "x", "model.y": 1}, strip=("model",))
    assert parse_json(b'{"model":"a"}').apply(changes) == b'{"model":"q"}'
    assert not changes.others


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
