"""The decoder of coded bodies: short steps, bounded memory, and time in proportion to what is read and made."""

import base64
import gzip
import os
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from appliance.gateway.http import body_coding
from appliance.gateway.http.body_coding import BodyDecoder, Coding
from tests.fakes.zstd import zstd

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
        assert decoder.kept_bytes - before < 2 * body_coding._STEP_BYTES
        before = decoder.kept_bytes
    assert decoder.kept_bytes - len(body) <= most + body_coding._STEP_BYTES
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
    read = min(len(body), plain + body_coding._WASTE_BYTES + body_coding._SLICE_BYTES)
    assert steps <= plain // body_coding._STEP_BYTES + read // body_coding._SLICE_BYTES + 2


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
