"""Bodies in other encodings than UTF-8, which engines would parse and the gateway not change."""

import asyncio
import base64
import gc
import gzip
import json
import os
import weakref
import zlib
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final

import pytest

from appliance.gateway import request_body, request_head
from appliance.gateway.request_body import BodyDecoder, ScanQueue
from appliance.gateway.request_head import Coding, RequestHead
from appliance.model.gateway import Refusal
from appliance.routing.json_scanner import BodyError
from tests.fakes.zstd import zstd
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


MOST: Final = 2 << 20
GZIP, ZSTD = Coding.GZIP, Coding.ZSTD
TEXT: Final = base64.b64encode(os.urandom(1 << 20))
"""Text that is a third shorter in either coding."""
EMPTY_BLOCK: Final = b"\0\0\0\xff\xff"
"""A stored block of deflate without a byte (RFC 1951, 3.2.4)."""
SKIPPABLE: Final = b"\x50\x2a\x4d\x18\0\0\0\0"
"""A frame of zstd that stands for nothing (RFC 8878, 3.1.2)."""
RLE_BLOCK: Final = (1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + b"x"
"""A block of zstd: four bytes for 128 KiB (RFC 8878, 3.1.1.2)."""
FRAME_HEAD: Final = b"\x28\xb5\x2f\xfd\x00\x58"
"""Head of a zstd frame of unknown length, with a window of 2 MiB."""


def with_window(log: int) -> bytes:
    """Return a frame with a window of so many bytes, as a power of two."""
    coder = zstd.ZstdCompressor(options={int(zstd.CompressionParameter.window_log): log})
    return coder.compress(TEXT[:100_000], mode=coder.FLUSH_BLOCK) + coder.flush()


def decode(coding: Coding, body: bytes, most: int = MOST) -> tuple[BodyDecoder, int]:
    """Decode a body; return the decoder and the number of steps, after checking each."""
    decoder, steps, before = BodyDecoder(coding, body, most), 0, len(body)
    for _ in decoder.steps():
        steps += 1
        # A step ends with the piece that fills it.
        assert decoder.kept_bytes - before < 2 * request_body._STEP_BYTES
        before = decoder.kept_bytes
    assert decoder.kept_bytes - len(body) <= most + request_body._STEP_BYTES
    return decoder, steps


GOOD: Final[Mapping[str, tuple[Coding, bytes, bytes]]] = {
    "gzip": (GZIP, gzip.compress(TEXT), TEXT),
    "gzip, fastest": (GZIP, gzip.compress(TEXT, 1), TEXT),
    "gzip, of nothing": (GZIP, gzip.compress(b""), b""),
    "gzip, with a name": (
        GZIP,
        gzip.compress(b"")[:3]
        + b"\x08"
        + gzip.compress(b"")[4:10]
        + b"a\0"
        + gzip.compress(TEXT)[10:],
        TEXT,
    ),
    "gzip, two members": (GZIP, gzip.compress(b"a") + gzip.compress(TEXT), b"a" + TEXT),
    "gzip, a megabyte of blanks": (GZIP, gzip.compress(b" " * (1 << 20)), b" " * (1 << 20)),
    "zstd": (ZSTD, zstd.compress(TEXT), TEXT),
    "zstd, level 19": (ZSTD, zstd.compress(TEXT, 19), TEXT),
    "zstd, of nothing": (ZSTD, zstd.compress(b""), b""),
    "zstd, two frames": (ZSTD, zstd.compress(b"a") + zstd.compress(TEXT), b"a" + TEXT),
    "zstd, one to be skipped": (ZSTD, SKIPPABLE + zstd.compress(TEXT), TEXT),
    "zstd, a window of 8 MiB": (ZSTD, with_window(23), TEXT[:100_000]),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_coded_body_is_decoded(name: str) -> None:
    """Every usual form of both codings has its plain body, however its steps fall."""
    coding, body, plain = GOOD[name]
    decoder, _ = decode(coding, body)
    assert decoder.refusal is None
    assert decoder.take_plain() == plain


BAD: Final[Mapping[str, tuple[Coding, Callable[[], bytes], int, str]]] = {
    "not gzip": (GZIP, lambda: b'{"model":"m"}', 400, "is not gzip"),
    "not zstd": (ZSTD, lambda: b'{"model":"m"}', 400, "is not zstd"),
    "zstd as gzip": (GZIP, lambda: zstd.compress(TEXT), 400, "is not gzip"),
    "gzip as zstd": (ZSTD, lambda: gzip.compress(TEXT), 400, "is not zstd"),
    "zlib as gzip": (GZIP, lambda: zlib.compress(TEXT), 400, "is not gzip"),
    "half of gzip": (GZIP, lambda: gzip.compress(TEXT)[:-9], 400, "ends too soon"),
    "a head of gzip": (GZIP, lambda: gzip.compress(TEXT)[:9], 400, "ends too soon"),
    "half of zstd": (ZSTD, lambda: zstd.compress(TEXT)[:-9], 400, "ends too soon"),
    "a wrong checksum": (GZIP, lambda: gzip.compress(TEXT)[:-8] + b"12345678", 400, "is not gzip"),
    "something behind gzip": (GZIP, lambda: gzip.compress(TEXT) + b"{}", 400, "is not gzip"),
    "something behind zstd": (ZSTD, lambda: zstd.compress(TEXT) + b"{}x{}", 400, "is not zstd"),
    "a bomb of gzip": (GZIP, lambda: gzip.compress(b"0" * MOST), 413, "250 times"),
    "a bomb of zstd": (ZSTD, lambda: zstd.compress(b"0" * MOST), 413, "250 times"),
    "many bombs of gzip": (GZIP, lambda: gzip.compress(b"0" * (256 << 10)) * 8, 413, "250 times"),
    "blocks of one byte": (
        ZSTD,
        lambda: FRAME_HEAD + RLE_BLOCK * 100_000,
        413,
        "may have 2097152 bytes",
    ),
    "more text than may be": (
        GZIP,
        lambda: gzip.compress(TEXT * 2, 1),
        413,
        "may have 2097152 bytes",
    ),
    "empty blocks of gzip": (
        GZIP,
        lambda: gzip.compress(b"")[:10] + EMPTY_BLOCK * 2_000_000,
        400,
        "longer coded than plain",
    ),
    "empty blocks of zstd": (
        ZSTD,
        lambda: FRAME_HEAD + b"\0\0\0" * 2_000_000,
        400,
        "longer coded than plain",
    ),
    "empty members": (GZIP, lambda: gzip.compress(b"") * 100_000, 400, "too many frames"),
    "members of a byte": (GZIP, lambda: gzip.compress(b"x") * 100_000, 400, "too many frames"),
    "frames of a byte": (ZSTD, lambda: zstd.compress(b"x") * 100_000, 400, "too many frames"),
    "frames to be skipped": (ZSTD, lambda: SKIPPABLE * 100_000, 400, "too many frames"),
    "one huge frame to be skipped": (
        ZSTD,
        lambda: SKIPPABLE[:4] + (4 << 20).to_bytes(4, "little") + bytes(4 << 20),
        400,
        "longer coded than plain",
    ),
    "a huge comment": (
        GZIP,
        lambda: gzip.compress(b"")[:3] + b"\x10" + gzip.compress(b"")[4:10] + b"x" * (4 << 20),
        400,
        "longer coded than plain",
    ),
    "a window of 16 MiB": (ZSTD, lambda: with_window(24), 400, "windows above 8 MiB"),
    "a window of 128 MiB": (ZSTD, lambda: with_window(27), 400, "windows above 8 MiB"),
    "a length that is a lie": (
        ZSTD,
        lambda: b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + RLE_BLOCK,
        400,
        "windows above 8 MiB",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_body_costs_little(name: str) -> None:
    """Bodies that are not so coded, or stand for too much or nothing, are refused in short steps and little memory."""
    coding, make, status, text = BAD[name]
    body = make()
    decoder, steps = decode(coding, body)
    assert decoder.refusal is not None
    assert decoder.refusal.status == status
    assert text in decoder.refusal.message
    plain = decoder.kept_bytes - len(body)
    read = min(len(body), plain + request_body._WASTE_BYTES + request_body._SLICE_BYTES)
    assert steps <= plain // request_body._STEP_BYTES + read // request_body._SLICE_BYTES + 2


def test_a_body_is_decoded_once() -> None:
    """A bomb in a bomb stays one: what the outer coding holds is no request."""
    inner = gzip.compress(b"0" * MOST)
    decoder, _ = decode(GZIP, gzip.compress(inner))
    assert decoder.take_plain() == inner


@pytest.mark.parametrize("coding", Coding)
def test_time_grows_with_the_body(coding: Coding) -> None:
    """Twice the body takes twice the steps."""
    code = gzip.compress if coding is GZIP else zstd.compress
    _, once = decode(coding, code(TEXT))
    _, twice = decode(coding, code(TEXT * 2))
    assert once > 10
    assert twice <= 2 * once + 1


class Large:
    """Stand-in for a body."""


def steps(
    count: int, log: list[str], name: str, fails: Large | None = None
) -> Generator[None, None, None]:
    """Return a scan of so many steps, which fails when it holds an error."""
    body = fails
    for _ in range(count):
        log.append(name)
        yield
    if body is not None:
        raise BodyError(name)
    return None


def note(ended: list[str], name: str, _: Refusal | None) -> None:
    """Record the end of a scan."""
    ended.append(name)


async def turns(queue: ScanQueue) -> None:
    """Run the queue to its end."""
    while queue.busy:
        await asyncio.sleep(0)


async def test_owners_take_turns() -> None:
    """An owner of many bodies does not come before an owner of one."""
    queue, log, ended = ScanQueue(), list[str](), list[str]()
    for name in ("a1", "a2", "a3"):
        queue.add("a", steps(2, log, name), partial(note, ended, name))
    queue.add("b", steps(2, log, "b1"), lambda _: ended.append("b1"))
    await turns(queue)
    assert log == ["a1", "b1", "a1", "b1", "a2", "a2", "a3", "a3"]
    assert ended == ["a1", "b1", "a2", "a3"]


async def test_cancelled_bodies_are_not_read_on() -> None:
    """A cancelled scan calls nothing, and the others go on."""
    queue, log, ended = ScanQueue(), list[str](), list[str]()
    first = queue.add("a", steps(5, log, "a1"), lambda _: ended.append("a1"))
    queue.add("a", steps(1, log, "a2"), lambda _: ended.append("a2"))
    await asyncio.sleep(0)
    first.cancel()
    await turns(queue)
    assert log == ["a1", "a2"]
    assert ended == ["a2"]


async def test_refused_bodies_are_let_go_at_once() -> None:
    """The refusal holds no reference to the body."""
    queue, told = ScanQueue(), list[str]()
    body = Large()
    alive = weakref.ref(body)
    gc.disable()
    try:
        scan = steps(1, [], "refused", body)
        queue.add("a", scan, lambda found: told.append(getattr(found, "message", "")))
        del scan, body
        await turns(queue)
        assert told == ["refused"]
        assert alive() is None
    finally:
        gc.enable()
