"""Decoder of request bodies that are coded with gzip or zstd (RFC 9110, 8.4; RFC 1952; RFC 8878).

Coding agents send zstd by themselves. Decoded are bodies of one coding, in steps between which all
other clients are served; the engine gets the plain body. The other codings are refused:
``deflate`` has two formats that senders confuse, and no client of ours sends it or ``br``.

A short coded body can stand for a huge one, or cost much time for nothing. Therefore its plain form
is bounded in bytes as plain bodies are, and in relation to the bytes that were read for it; and a
body that is longer coded than plain is refused, since it holds blocks that stand for nothing.
"""

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

from appliance.model.gateway import Refusal
from appliance.routing import refusals
from appliance.routing.refusals import bad_request

_SLICE_BYTES: Final = 64 << 10
"""Coded bytes of a step: the dearest, gzip blocks with tables of their own, take 1 ms."""
_STEP_BYTES: Final = 256 << 10
"""Plain bytes of a step: 0.8 ms at most, of gzip."""
_WINDOW_LOG: Final = 23
"""Largest window of a zstd frame, as a power of two: 8 MiB, which decoders should support and level 19 uses
(RFC 8878, 3.1.1.1.2)."""
_MOST_RATIO: Final = 250
"""Most plain bytes for each coded byte. Conversations have 3 to 30."""
_ANY_RATIO_BYTES: Final = 1 << 20
"""Plain bytes up to which any ratio is allowed."""
_WASTE_BYTES: Final = 64 << 10
"""Bytes by which the coded form may be longer than the plain one: heads, checksums, stored blocks."""
_FRAME_BYTES: Final = 16 << 10
"""Plain bytes that allow one more frame, or member of a gzip file: each costs up to 12 us to begin."""
_ANY_FRAMES: Final = 16
"""Frames that any body may have."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class Coding(StrEnum):
    GZIP = "gzip"
    ZSTD = "zstd"


CODINGS: Final[Mapping[bytes, Coding | None]] = {
    b"": None,
    b"identity": None,
    b"gzip": Coding.GZIP,
    b"x-gzip": Coding.GZIP,
    b"zstd": Coding.ZSTD,
}
"""Codings by the value of ``Content-Encoding``, in lower case; None: the body is plain."""


class _Frame(Protocol):
    """Decoder of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | bytearray, max_length: int, /) -> bytes: ...


class BodyDecoder:
    """Decoder of one body.

    Args:
        coding: Coding of the body.
        body: Whole coded body.
        most_bytes: Most bytes of the plain body.
    """

    __slots__ = (
        "_coding",
        "_frame",
        "_frames",
        "_most_bytes",
        "_pieces",
        "_size",
        "_taken_bytes",
        "coded",
        "refusal",
    )

    def __init__(self, coding: Coding, body: bytes | bytearray, most_bytes: int) -> None:
        self.coded = body
        self._pieces: list[bytes] = []
        """Plain body as far as it is decoded; a buffer that grows would be copied in long steps."""
        self._size = 0
        """Bytes of those pieces."""
        self.refusal: Refusal | None = None
        """Refusal of the body; None: not refused so far."""
        self._coding = coding
        self._most_bytes = most_bytes
        self._frame: _Frame | None = None
        """Frame that is being decoded; None: the last one is complete."""
        self._frames = 0
        """Frames that have begun."""
        self._taken_bytes = 0
        """Coded bytes that were read."""

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of both forms."""
        return len(self.coded) + self._size

    def take_plain(self) -> bytes:
        """Return the plain body, once, after all steps."""
        self.coded = b""
        plain = b"".join(self._pieces)
        self._pieces = []
        return plain

    def steps(self) -> Iterator[None]:
        """Decode the body, pausing after each step; `refusal` is set where it ends early."""
        new_frame, fault = _frames_of(self._coding)
        stepped = 0
        for at in range(0, len(self.coded), _SLICE_BYTES):
            data: bytes | bytearray | None = self.coded[at : at + _SLICE_BYTES]
            self._taken_bytes = min(at + _SLICE_BYTES, len(self.coded))
            while data is not None:
                try:
                    data = self._feed(new_frame, data)
                except fault:
                    self.refusal = bad_request(
                        f"the body is not {self._coding}, as Content-Encoding says"
                        + (", or has windows above 8 MiB" if self._coding is Coding.ZSTD else "")
                    )
                    return
                if (refusal := self._check_size()) is not None:
                    self.refusal = refusal
                    return
                if self._size - stepped >= _STEP_BYTES:
                    stepped = self._size
                    yield
            yield
        if self._frame is not None:
            self.refusal = bad_request(f"the body ends too soon for {self._coding}")

    def _feed(self, new_frame: Callable[[], _Frame], data: bytes | bytearray) -> bytes | None:
        """Decode coded bytes; return those that are left, empty if only output is; None: neither."""
        frame = self._frame
        if frame is None:
            frame = self._frame = new_frame()
            self._frames += 1
        piece = frame.decompress(data, _STEP_BYTES)
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
        if frame.eof:
            self._frame = None
            return frame.unused_data or None
        # zlib's decoder hands back what it has not read; zstd's keeps it.
        left: bytes = getattr(frame, "unconsumed_tail", b"")
        return left if left or len(piece) >= _STEP_BYTES else None

    def _check_size(self) -> Refusal | None:
        size, taken = self._size, self._taken_bytes
        if size > self._most_bytes:
            return refusals.body_too_large(self._most_bytes)
        if size > max(_ANY_RATIO_BYTES, taken * _MOST_RATIO):
            return refusals.BODY_EXPANDS
        if taken > size + _WASTE_BYTES:
            return bad_request("the body is longer coded than plain: send it plain")
        if self._frames > _ANY_FRAMES + size // _FRAME_BYTES:
            return bad_request(f"the body has too many frames of {self._coding}: send it in one")
        return None


def _frames_of(coding: Coding) -> tuple[Callable[[], _Frame], type[Exception]]:
    """Return the maker of decoders for a coding, and the exception that they raise."""
    if coding is Coding.GZIP:
        return partial(zlib.decompressobj, wbits=_GZIP), zlib.error
    # Imported for the first such body: 0.6 MiB, in 3 ms.
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    options = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG}
    return partial(zstd.ZstdDecompressor, options=options), zstd.ZstdError
