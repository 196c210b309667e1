"""Bodies of any kind: every change is made, and nothing else changes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.routing.form_body import parse_form
from appliance.routing.json_scanner import BodyError
from tests.fakes.body_parsing import change_form, change_json, parse_json

ACTED: Final = ("model", "stream", "seed", "kwargs", "ü")
"""Names that the changes below act on; all others may be there twice."""

words = st.text(max_size=8) | st.sampled_from(["model", '"model":', "\\", "🙂", "\ud800", "{", "]"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
spaces = st.text(alphabet=" \t\r\n", max_size=3)
kwargs = st.dictionaries(st.sampled_from(["thinking", "deep", "x", "é"]), values, max_size=3)
set_s = st.dictionaries(
    st.sampled_from(["seed", "kwargs", "kwargs.thinking", "kwargs.deep.er", "ü", "new"]),
    values,
    max_size=3,
)
strips = st.lists(
    st.sampled_from(["seed", "kwargs", "kwargs.thinking", "kwargs.é", "ü", "other"]), max_size=3
)


@st.composite
def spelt(draw: st.DrawFn, text: str) -> str:
    """A string as JSON, with some of its characters escaped that need not be."""
    kinds = draw(st.lists(st.integers(0, 2), min_size=len(text), max_size=len(text)))
    marks = []
    for char, kind in zip(text, kinds, strict=True):
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        escaped = json.dumps(char)[1:-1]
        every = "".join(f"\\u{unit:04X}" for unit in _utf16(char))
        surrogate = 0xD800 <= ord(char) <= 0xDFFF
        marks.append(escaped if surrogate else (plain, escaped, every)[kind])
    return f'"{"".join(marks)}"'


def _utf16(char: str) -> Sequence[int]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON, with whitespace wherever it may stand."""
    space = draw(spaces)
    if isinstance(value, str):
        return draw(spelt(value))
    if isinstance(value, list):
        items = [draw(written(item)) for item in value]
        return f"[{space}{f'{space},{space}'.join(items)}{space}]"
    if isinstance(value, dict):
        pairs = [f"{draw(spelt(k))}{space}:{space}{draw(written(v))}" for k, v in value.items()]
        return f"{{{space}{f'{space},{space}'.join(pairs)}{space}}}"
    return json.dumps(value)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str], str, str]:
    """Draw a body's beginning, its members, the text between two of them, and its end."""
    acted: Mapping[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "model": words,
                "stream": st.booleans() | scalars,
                "seed": values,
                "kwargs": kwargs | values,
                "ü": values,
            },
        )
    )
    # The values of names that nobody acts on; they may be there twice.
    others = draw(st.lists(st.tuples(words.filter(lambda w: w not in ACTED), values), max_size=4))
    pairs = draw(st.permutations([*acted.items(), *others]))
    between = draw(spaces)
    members = [f"{draw(spelt(k))}{between}:{between}{draw(written(v))}" for k, v in pairs]
    first, last = draw(spaces), draw(spaces)
    opening = f"{first}{{{last}"
    return opening, members, f"{between},{last}", f"{last}}}{first}"


def joined(document: tuple[str, list[str], str, str]) -> bytes:
    """The body."""
    opening, members, comma, end = document
    return (opening + comma.join(members) + end).encode()


def expected(
    body: bytes, model: str | None, set_: Mapping[str, Any], strip: Sequence[str]
) -> dict[str, Any]:
    """The changes, made the simple way."""
    found = json.loads(body)
    for key in strip:
        _take(found, key.split("."))
    for key, value in sorted(set_.items(), key=lambda item: item[0].count(".")):
        _put(found, key.split("."), value)
    if model is not None:
        found["model"] = model
    assert isinstance(found, dict)
    return found


def _take(found: Any, path: Sequence[str]) -> None:
    for key in path[:-1]:
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict):
        found.pop(path[-1], None)


def _put(found: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(found.get(key), dict):
            found[key] = {}
        found = found[key]
    found[path[-1]] = value


@given(documents(), st.none() | words, set_s, strips)
def test_the_changes_are_made(
    document: tuple[str, list[str], str, str],
    model: str | None,
    set_: Mapping[str, Any],
    strip: Sequence[str],
) -> None:
    """An engine reads the body that it would have read with the changes made by hand."""
    body = joined(document)
    wanted = expected(body, model, json.loads(json.dumps(set_)), strip)
    new = change_json(body, model=model, set_=set_, strip=strip)
    assert json.loads(new) == wanted
    # Everything is changed that is to be changed: a second time, nothing is.
    assert change_json(new, model=model, set_=set_, strip=strip) is new


@given(documents(), words)
def test_only_the_model_changes(document: tuple[str, list[str], str, str], model: str) -> None:
    """Every byte before its value and behind it is as it was."""
    opening, members, comma, end = document
    body = joined(document)
    quoted = json.dumps(model)
    names = [json.loads(f"{{{member}}}") for member in members]
    at = next((n for n, name in enumerate(names) if "model" in name), None)
    if at is None:
        inserted = f'"model":{quoted}' + ("," if members else "")
        brace = opening.index("{") + 1
        wanted = opening[:brace] + inserted + opening[brace:] + comma.join(members) + end
    else:
        value = members[at].index('"', members[at].index(":"))
        changed = [*members[:at], members[at][:value] + quoted, *members[at + 1 :]]
        wanted = opening + comma.join(changed) + end
    assert change_json(body, model=model, set_={}, strip=()) == wanted.encode()


@given(documents(), set_s, strips)
def test_what_is_not_changed_keeps_its_bytes(
    document: tuple[str, list[str], str, str], set_: Mapping[str, Any], strip: Sequence[str]
) -> None:
    """Every other member is there, letter by letter and in its place."""
    body = joined(document)
    new = change_json(body, model=None, set_=set_, strip=strip)
    touched = {key.partition(".")[0] for key in (*set_, *strip)}
    at = 0
    for member in document[1]:
        (name,) = json.loads(f"{{{member}}}")
        if name not in touched:
            found = new.find(member.encode(), at)
            assert found >= 0
            at = found + len(member.encode())


@given(documents())
def test_what_is_read_is_what_engines_read(document: tuple[str, list[str], str, str]) -> None:
    """The model, and whether a stream is wanted."""
    body = joined(document)
    found = json.loads(body)
    read = parse_json(body)
    assert read.model == found.get("model")
    assert read.streams == (found.get("stream") is True)


damage = st.binary(max_size=4) | st.sampled_from(
    [b'"', b"{", b"}", b",", b":", b'"model":"x",', b'"model"', b"\\u0065", b"\xff", b"[", b"NaN"]
)


@given(documents(), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), damage), max_size=3))
@example(("{", ['"mod\\u0065l":"a"', '"model":"b"'], ",", "}"), [])
def test_a_damaged_body_is_refused_or_read_as_engines_read_it(
    document: tuple[str, list[str], str, str], cuts: list[tuple[int, int, bytes]]
) -> None:
    """No body exists of which the gateway takes one model and an engine another."""
    body = joined(document)
    for at, length, new in cuts:
        start = min(at, len(body))
        body = body[:start] + new + body[start + length :]
    check(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    """Bytes that are hardly ever JSON."""
    check(body)


@given(st.text(alphabet='{}[]",:\\umodel01eE+-. \n', max_size=60))
def test_any_marks_are_refused_or_read(text: str) -> None:
    """Text made of what JSON gives a meaning to."""
    check(text.encode())
    check(f'{{"model":{text}}}'.encode())


def check(body: bytes) -> None:
    """A body is refused, or read and changed as the library would have it."""
    try:
        document = parse_json(body)
    except BodyError:
        return
    pairs = json.loads(body.decode(), object_pairs_hook=list)
    models = [value for key, value in pairs if key == "model"]
    assert models in ([], [document.model])
    new = json.loads(change_json(body, model="new", set_={}, strip=()))
    assert new == json.loads(body) | {"model": "new"}


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


names = st.text(alphabet="abc []_", min_size=1, max_size=4)
boundaries = st.text(alphabet="ab'()+_,-./:=?0", min_size=1, max_size=8)


@given(
    boundaries,
    st.lists(st.tuples(names, st.binary(max_size=30)), max_size=5),
    st.none() | st.binary(max_size=8).filter(_is_text),
)
def test_only_the_model_of_a_form_changes(
    boundary: str, fields: list[tuple[str, bytes]], model: bytes | None
) -> None:
    """Files and other fields are passed on byte for byte."""
    delimiter = b"--" + boundary.encode()
    fields = [(name, content.replace(delimiter, b"")) for name, content in fields]
    if any(delimiter in b"\r\n" + content for _, content in fields):
        return
    if model is not None and delimiter not in b"\r\n" + model:
        fields.insert(len(fields) // 2, ("model", model))
    kind = f'multipart/form-data; boundary="{boundary}"'
    body = _form(delimiter, fields)
    found = dict(fields).get("model")
    assert parse_form(kind, body).model == (None if found is None else found.decode())
    new = [(n, b"whisper" if n == "model" else c) for n, c in fields]
    if found is None:
        new.append(("model", b"whisper"))
    assert change_form(kind, body, model="whisper", set_={}, strip=()) == _form(delimiter, new)


def _form(delimiter: bytes, fields: Sequence[tuple[str, bytes]]) -> bytes:
    parts = [
        b'%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
        % (delimiter, n.encode(), c)
        for n, c in fields
    ]
    return b"".join(parts) + delimiter + b"--\r\n"


@given(st.lists(st.sampled_from([b"--b", b"\r\n", b"--", b"name=", b'"model"', b";", b":", b"a"])))
def test_any_form_is_refused_or_read(pieces: list[bytes]) -> None:
    """Forms put together of any parts are refused or read."""
    for body in (b"".join(pieces), b"--b\r\n" + b"".join(pieces) + b"\r\n--b--"):
        try:
            form = parse_form("multipart/form-data; boundary=b", body)
        except BodyError:
            continue
        assert form.model is None or form.model.encode() in body


@pytest.mark.parametrize("depth", [10, 100, 900, 100_000])
def test_nesting_is_read_as_deep_as_it_goes_and_then_refused(depth: int) -> None:
    """Deep nesting crashes nothing, and no body is half read."""
    check(b'{"x":%b1%b,"model":"a"}' % (b"[" * depth, b"]" * depth))
