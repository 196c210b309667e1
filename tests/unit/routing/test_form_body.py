"""Forms: their model, and changes of their fields."""

from collections.abc import Mapping

import pytest

from appliance.routing.form_body import parse_form
from appliance.routing.json_scanner import BodyError
from tests.fakes.body_parsing import change_form

KIND = "multipart/form-data; boundary=b0"
AUDIO = bytes(range(256)) * 4
FILE = (
    b'--b0\r\nContent-Disposition: form-data; name="file"; filename="a \\"b\\".wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\n" + AUDIO + b"\r\n"
)


def field(name: str, value: str, more: str = "") -> bytes:
    """A field of the form."""
    head = f'--b0\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return f"{head}{value}\r\n".encode()


def form(*parts: bytes, end: bytes = b"--b0--\r\n") -> bytes:
    """Return the whole form."""
    return b"".join(parts) + end


@pytest.mark.parametrize(
    ("kind", "body", "model"),
    [
        (KIND, form(FILE, field("model", "whisper-1")), "whisper-1"),
        (KIND, form(field("model", "whisper-1"), FILE, end=b"--b0--"), "whisper-1"),
        (KIND, form(FILE), None),
        (KIND, form(), None),
        (KIND, form(field("model", "")), ""),
        (KIND, form(field("model", "ü")), "ü"),
        (KIND, form(field("model", "a\r\nb--b0")), "a\r\nb--b0"),
        ('Multipart/Form-Data ; charset=utf-8;Boundary="b0"', form(field("model", "w")), "w"),
        (KIND, b"--b0\r\ncontent-disposition:form-data;name=model\r\n\r\nw\r\n--b0--", "w"),
        (
            KIND,
            b"--b0\r\nX:\r\nContent-Transfer-Encoding: 8bit\r\n"
            + field("model", "w").removeprefix(b"--b0\r\n")
            + b"--b0--",
            "w",
        ),
        (
            'multipart/form-data; boundary="a b?"',
            b'--a b?\r\nContent-Disposition: form-data; name="model"\r\n\r\nw\r\n--a b?--',
            "w",
        ),
    ],
)
def test_the_model_is_a_field(kind: str, body: bytes, model: str | None) -> None:
    """The model is found wherever its field stands, whatever the file beside it holds."""
    assert parse_form(kind, body).model == model


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("", False), ("no", False)],
)
def test_a_stream_is_asked_for_in_a_field(value: str, expected: bool) -> None:  # noqa: FBT001
    """Every value that engines take for true asks for a stream."""
    assert parse_form(KIND, form(field("stream", value))).streams is expected


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "application/json",
        "multipart/mixed; boundary=b0",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=b0; boundary=b1",
        "multipart/form-data; boundary=b0; Boundary=b0",
        'multipart/form-data; x="; boundary=b1"; boundary="b0',
        'multipart/form-data; boundary="b0\\0"',
        f"multipart/form-data; boundary={'b' * 71}",
        'multipart/form-data; boundary="b0 "',
        "multipart/form-data; boundary=b0 b1",
        "multipart/form-data; boundary=b0;",
    ],
)
def test_a_form_has_one_proper_boundary(kind: str) -> None:
    """A form with two boundaries, or with one that has to be guessed, is refused."""
    with pytest.raises(BodyError):
        parse_form(kind, form(field("model", "w")))


NAMED = b'Content-Disposition: form-data; name="a"\r\n'
AMBIGUOUS: Mapping[str, bytes] = {
    "no content": b"",
    "a line before it": b"\r\n" + form(),
    "a preamble": b"preamble\r\n" + form(field("model", "w")),
    "no end": field("model", "w"),
    "half an end": field("model", "w") + b"--b0",
    "text behind it": form(field("model", "w"), end=b"--b0--x"),
    "lines behind it": form(field("model", "w"), end=b"--b0--\r\n\r\n"),
    "a longer boundary": form(field("model", "w\r\n--b0x")),
    "a padded boundary": form(field("model", "w\r\n--b0 ")),
    "a boundary that goes on": form(b"--b0xx" + NAMED + b"\r\nw\r\n"),
    "two models": form(field("model", "w"), field("model", "w")),
    "two streams": form(field("stream", "true"), field("stream", "false")),
    "a file as a model": form(field("model", "w", '; filename="x"')),
    "an encoded file name": form(field("model", "w", "; filename*=UTF-8''x")),
    "an encoded name": form(field("model", "w", "; name*=UTF-8''x")),
    "two names": form(field("model", "w", '; name="x"')),
    "a backslash": form(field("mo\\del", "w")),
    "half a parameter": form(field("model", "w", "; x")),
    "no head": form(b"--b0\r\n\r\nw\r\n"),
    "no disposition": form(b"--b0\r\nX: y\r\n\r\nw\r\n"),
    "no name": form(b"--b0\r\nContent-Disposition: form-data\r\n\r\nw\r\n"),
    "another disposition": form(b"--b0\r\n" + NAMED.replace(b"form-data", b"file") + b"\r\nw\r\n"),
    "a folded head": form(b"--b0\r\n" + NAMED.replace(b"; ", b";\r\n ") + b"\r\nw\r\n"),
    "a space before the colon": form(b"--b0\r\n" + NAMED.replace(b":", b" :") + b"\r\nw\r\n"),
    "bare line ends": form(b"--b0\r\n" + NAMED.replace(b"\r", b"") + b"\nw\r\n"),
    "a bare line end in the head": form(b"--b0\r\nX: a\n" + NAMED + b"\r\nw\r\n"),
    "no end of the head": form(b"--b0\r\n" + NAMED + b"w\r\n"),
    "a header twice": form(b"--b0\r\n" + NAMED + NAMED + b"\r\nw\r\n"),
    "an encoding": form(b"--b0\r\nContent-Transfer-Encoding: base64\r\n" + NAMED + b"\r\ndw==\r\n"),
    "a very long head": form(b"--b0\r\nX: " + b"x" * 8192 + b"\r\n" + NAMED + b"\r\nw\r\n"),
    "very many fields": form(*[field("a", "")] * 1001),
    "a model that is no text": form(field("model", "w").replace(b"w", b"\xff")),
}


@pytest.mark.parametrize("body", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_a_form_that_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    """A form that engines could parse differently is refused."""
    with pytest.raises(BodyError):
        parse_form(KIND, body)


@pytest.mark.parametrize(
    ("set_", "strip", "body", "expected"),
    [
        ({}, (), form(FILE, field("model", "w")), form(FILE, field("model", "q"))),
        ({}, (), form(field("model", "w"), FILE), form(field("model", "q"), FILE)),
        ({}, (), form(FILE), form(FILE, field("model", "q"))),
        ({}, (), form(end=b"--b0--"), form(field("model", "q"), end=b"--b0--")),
        (
            {"language": "de", "temperature": 0.5, "x": True},
            (),
            form(field("temperature", "1"), field("model", "q")),
            form(
                field("temperature", "0.5"), field("model", "q"), field("language", "de"),
                field("x", "true"),
            ),
        ),
        ({}, ("prompt",), form(field("prompt", "x"), field("model", "q")), form(field("model", "q"))),
        ({}, ("prompt",), form(field("model", "q"), field("prompt", "x")), form(field("model", "q"))),
        ({}, ("prompt",), form(field("model", "w")), form(field("model", "q"))),
        ({"a.b": 1}, ("c.d",), form(field("model", "w")), form(field("model", "q"))),
        ({'a"\n': 1}, (), form(field("model", "q")), form(field("model", "q"), field("a%22%0A", "1"))),
    ],
)  # fmt: skip
def test_fields_are_set_and_taken_out(
    set_: Mapping[str, object], strip: tuple[str, ...], body: bytes, expected: bytes
) -> None:
    """Fields change where they stand, or at the end; changes inside of objects do not apply."""
    assert change_form(KIND, body, model="q", set_=set_, strip=strip) == expected


def test_without_anything_to_do_nothing_is_copied() -> None:
    """Without changes the very same object comes back."""
    body = form(FILE, field("model", "q"))
    assert change_form(KIND, body, model="q", set_={}, strip=("prompt",)) is body


def test_what_is_put_in_cannot_end_the_field() -> None:
    """A value that contains the boundary is refused."""
    body = form(field("model", "w"))
    with pytest.raises(BodyError, match="boundary"):
        change_form(KIND, body, model="a\r\n--b0--", set_={}, strip=())


def test_what_is_changed_is_there_once() -> None:
    """A duplicate field that would be changed is refused."""
    body = form(field("prompt", "a"), field("prompt", "b"))
    assert parse_form(KIND, body).model is None
    with pytest.raises(BodyError, match="prompt is there twice"):
        change_form(KIND, body, model=None, set_={}, strip=("prompt",))


def test_a_boundary_between_two_steps_is_found() -> None:
    """Wherever the delimiter lies to where a step ends, the same parts are found."""
    step = 512 << 10
    for size in range(step - 120, step, 7):
        body = form(FILE.replace(AUDIO, b"-" * size), field("model", "w"))
        assert change_form(KIND, body, model="q", set_={}, strip=()) == body.replace(
            field("model", "w"), field("model", "q")
        )


@pytest.mark.parametrize("name", ["model", "stream"])
def test_a_long_value_is_refused(name: str) -> None:
    """A field that the form is routed by is not copied when it is as long as a file."""
    with pytest.raises(BodyError, match=f"{name} is too long"):
        parse_form(KIND, form(field(name, "x" * 5000)))


def test_the_end_of_a_long_form_is_missed() -> None:
    """A form without its last delimiter is searched to its end."""
    with pytest.raises(BodyError, match="too soon"):
        parse_form(KIND, form(FILE.replace(AUDIO, b"-" * (2 << 20)), end=b""))


def test_a_value_of_the_same_size_is_changed() -> None:
    """A value that differs in its bytes only is changed."""
    body = form(field("prompt", "ab"))
    changed = change_form(KIND, body, model=None, set_={"prompt": "cd"}, strip=())
    assert changed == form(field("prompt", "cd"))
