"""Bodies in other encodings than UTF-8, which engines would parse and the gateway not change."""

import json

import pytest

from appliance.gateway.http import request_body, request_head
from appliance.gateway.http.request_head import RequestHead
from appliance.model.gateway import Refusal
from appliance.routing.json_scanner import BodyError
from tests.unit.routing.test_form_body import KIND, field, form

JSON = '{"model": "a", "temperature": 2}'


def head_of(path: str, media_type: bytes = b"application/json") -> RequestHead | Refusal:
    """Return the checked head of a request with a body."""
    lines = [(b"Host", b"a"), (b"Content-Type", media_type)]
    raw = b"POST %b HTTP/1.1\r\n" % path.encode()
    raw += b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n"
    return request_head.check_request_head(b"POST", path.encode(), lines, raw)


def known(path: str, media_type: bytes = b"application/json") -> RequestHead:
    """Return the same head, which must not be refused."""
    head = head_of(path, media_type)
    assert isinstance(head, RequestHead)
    return head


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/generate"])
@pytest.mark.parametrize("blank", ["", " ", "\r\n\t  "])
@pytest.mark.parametrize(
    "encoding",
    ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"],
)
def test_json_in_another_encoding_is_refused(encoding: str, blank: str, path: str) -> None:
    """A body that `json.loads` of an engine would parse is refused unless it is plain UTF-8."""
    body = (blank + JSON).encode(encoding)
    assert json.loads(body) == json.loads(JSON)
    with pytest.raises(BodyError, match="plain UTF-8"):
        request_body.parse_body(known(path), body)


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_no_object_behind_a_mark_goes_unread(mark: bytes, encoding: str) -> None:
    """A body that an engine can parse as an object is parsed or refused, never passed on unread."""
    body = mark + f" {JSON}".encode(encoding)
    try:
        readable = isinstance(json.loads(body), dict)
    except ValueError:
        readable = False
    if readable:
        with pytest.raises(BodyError):
            request_body.parse_body(known("/v1/embeddings"), body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\0"}',
        b'{"a":1}\0',
        b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}',
        b'{\0"a":1}',
        b'{"model":"a","mod\\u0065l":"b"}',
        b'{"stream":true,"str\\u0065am":false}',
    ],
)
def test_json_that_readers_take_differently_is_refused(body: bytes) -> None:
    """Broken UTF-8, encoded surrogates, NUL bytes and duplicate names are refused."""
    with pytest.raises(BodyError):
        request_body.parse_body(known("/v1/completions"), body)


@pytest.mark.parametrize(
    "body",
    [
        b"RIFF\x24\0\0\0WAVE",
        b"\0\0\0\x20ftypisom",
        b"\xff\xfbmp3",
        b"\xff\xfeno json",
        "[1]".encode("utf-16"),
        b"text",
        b"[]",
    ],
)
def test_a_body_that_no_engine_reads_as_an_object_passes(body: bytes) -> None:
    """Other media than JSON pass unread."""
    assert request_body.parse_body(known("/transcribe", b"application/octet-stream"), body) is None


@pytest.mark.parametrize(
    ("media_type", "status"),
    [
        (b"application/json; charset=utf-16", 415),
        (b"application/json; charset=utf-7", 415),
        (b"application/json;CHARSET=latin-1", 415),
        (b"application/json; charset", 415),
        (b"application/json; charset=utf-8; charset=utf-7", 415),
        (b"application/json; charset*=utf-8''utf-7", 415),
        (b"application/json; charset*0=utf-; charset*1=7", 415),
        (b'application/json; charset="utf-7"', 415),
        (b"text/plain; charset=cp037", 415),
        (b"multipart/form-data; charset=utf-7; boundary=b0", 415),
        (b"\xa0multipart/form-data; boundary=b0", 400),
        (b"multipart/form-data\x85; boundary=b0", 400),
    ],
)
def test_another_charset_is_refused(media_type: bytes, status: int) -> None:
    """Some engines decode the names and values of a body by the charset that a client declares."""
    refused = head_of("/v1/audio/transcriptions", media_type)
    assert isinstance(refused, Refusal)
    assert refused.status == status


@pytest.mark.parametrize(
    "media_type",
    [
        b"application/json; charset=utf-8",
        b'application/json ; Charset="UTF-8"',
        b"application/json; charset= utf8",
        b"multipart/form-data; charset=US-ASCII; boundary=b0",
        b"application/json",
        b"",
    ],
)
def test_a_charset_that_is_utf_8_passes(media_type: bytes) -> None:
    """UTF-8 passes in every spelling."""
    assert isinstance(head_of("/v1/chat/completions", media_type), RequestHead)


@pytest.mark.parametrize(
    "part",
    [
        field("_charset_", "utf-7"),
        field("_Charset_", "utf-8"),
        field("model", "w", "\r\nContent-Type: text/plain; charset=utf-7"),
        field("model", "w", "\r\nContent-Type: text/plain; Charset*=utf-8''utf-7"),
        field("x", "w", "; name*0=model"),
        field("x", "w", "; name*0*=utf-8''model"),
        field("x", "w", "; filename*0=a"),
    ],
)
def test_a_field_in_another_encoding_is_refused(part: bytes) -> None:
    """Neither its charset nor a name that RFC 2231 puts together hides it from `set` and `strip`."""
    with pytest.raises(BodyError):
        request_body.parse_body(known("/v1/audio/transcriptions", KIND.encode()), form(part))


@pytest.mark.parametrize(
    "part",
    [
        field("prompt", "ü", "\r\nContent-Type: text/plain; charset=UTF-8"),
        field("prompt", "w", "\r\nContent-Type: text/plain"),
        field("file", "ü", "; filename=a; filename*=utf-8''%c3%bc"),
        field("file", "w", "; filename=a\r\nContent-Type: text/plain; charset=latin-1"),
    ],
)
def test_fields_and_files_of_honest_clients_pass(part: bytes) -> None:
    """Fields with the charset UTF-8 pass, and files in any encoding."""
    assert (
        request_body.parse_body(known("/v1/audio/transcriptions", KIND.encode()), form(part))
        is not None
    )


def test_long_forms_are_read_in_steps() -> None:
    """A form that is slow to search, and one with many long heads, are parsed in steps."""
    head = known("/v1/audio/transcriptions", b"multipart/form-data; boundary=" + b"-" * 69 + b"x")
    delimiter = b"-" * 71 + b"x"
    start = b'%b\r\nContent-Disposition: form-data; name="a%d"'
    dashes = start % (delimiter, 0) + b"\r\n\r\n" + b"-" * (8 << 20) + b"\r\n" + delimiter + b"--"
    heads_ = [start % (delimiter, n) + b";x=1" + b"\r\n\r\n\r\n" for n in range(1000)]
    parameters = b"".join(b";a%d=1" % n for n in range(1000))
    long_heads = [part.replace(b";x=1", parameters) for part in heads_[:100]]
    for body, least in (
        (dashes, 16),
        (b"".join(heads_) + delimiter + b"--", 4),
        (b"".join(long_heads) + delimiter + b"--", 16),
    ):
        assert len(list(request_body.parse_body_in_steps(head, body))) >= least


def test_a_boundary_is_not_put_together() -> None:
    """A boundary of RFC 2231 beside the plain one is refused."""
    with pytest.raises(BodyError, match="proper boundary"):
        request_body.parse_body(
            known("/v1/audio/transcriptions", b"multipart/form-data; boundary=b0; boundary*0=b1"),
            form(field("model", "w")),
        )
