"""Parser of requests: the head, and the body as it is received."""

from math import inf
from typing import Final

import httptools

from appliance.gateway.http.request_head import RequestHead, check_request_head
from appliance.model.gateway import Limits, Refusal
from appliance.routing import refusals
from appliance.routing.refusals import bad_request

_CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nHost: -\r\nTransfer-Encoding: chunked\r\n\r\n"
_OTHER_LINES: Final = 2
"""Lines of a head that are no headers: the first and the last one."""
_SLICE_BYTES: Final = 16 << 10
_FRAMING_SHARE: Final = 4
"""Bytes of body that allow one byte of framing; chunks of 24 bytes or more have enough."""


class _HeadCallbacks:
    """Callbacks of httptools for a head."""

    __slots__ = ("headers", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, target: bytes) -> None:
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


def parse_request_head(raw: bytes, most: int) -> RequestHead | Refusal:
    """Parse and check a request head.

    Args:
        raw: Bytes from the method to the empty line.
        most: Number of headers allowed.
    """
    if raw.count(b"\n") > most + _OTHER_LINES:
        # Counted here, because the parser calls back for every header.
        return refusals.HEAD_TOO_LARGE
    found = _HeadCallbacks()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        # The parser would take the bytes that follow for another protocol; the gateway reads them.
        pass
    except httptools.HttpParserError:
        return refusals.MALFORMED_REQUEST
    if len(found.headers) > most:
        return refusals.HEAD_TOO_LARGE
    return check_request_head(parser.get_method(), found.target, found.headers, raw)


BODY_TURN_BYTES: Final = 256 << 10
"""Bytes of a body that are received at once: libuv reads up to 2 MiB of one connection before it goes on, 5 ms."""


class IncomingBody:
    """Request body as it is received.

    Args:
        length: Length of the body; -1: it comes in chunks.
        end_s: When the body has to be complete, by the event loop's clock.
    """

    __slots__ = (
        "_chunks",
        "_end_s",
        "_missing",
        "_sampled",
        "_size_at_deadline",
        "complete",
        "data",
        "overrun",
        "pace",
        "pause_at",
    )

    def __init__(self, length: int, *, end_s: float) -> None:
        self._end_s = end_s
        self._sampled = -1
        """Bytes at the last `sample_pace`; -1: no sample yet."""
        self._size_at_deadline = 0
        """Bytes when the deadline was last extended."""
        self.pace = inf
        """Bytes that were received between the last two samples."""
        self._chunks = ChunkedDecoder() if length < 0 else None
        self._missing = length
        self.data = bytearray()
        self.pause_at = BODY_TURN_BYTES
        """Bytes at which other clients have their turn."""
        self.complete = False
        self.overrun = False
        """Whether bytes of the next request were read, which cannot be given back."""

    def sample_pace(self) -> None:
        size = len(self.data)
        if self._sampled >= 0:
            self.pace = size - self._sampled
        self._sampled = size

    def may_continue(self, now_s: float, limits: Limits) -> bool:
        """Tell whether enough was received since the last deadline, within the whole time."""
        came = len(self.data) - self._size_at_deadline
        self._size_at_deadline = len(self.data)
        return came >= limits.body_rate * limits.body_s and now_s < self._end_s

    def feed(self, data: bytes, limits: Limits) -> bytes:
        """Take bytes, up to a fault; return those that follow the body."""
        chunks = self._chunks
        if chunks is not None:
            for at in range(0, len(data), _SLICE_BYTES):
                chunks.feed(data[at : at + _SLICE_BYTES])
                self.data += chunks.pieces
                chunks.pieces.clear()
                if chunks.overrun or self.refusal(limits) is not None:
                    break
            self.complete, self.overrun = chunks.complete, chunks.overrun
            return b""
        missing = self._missing
        self._missing = missing - len(data)
        self.complete = self._missing <= 0
        if self._missing >= 0:
            self.data += data
            return b""
        self.data += data[:missing]
        return data[missing:]

    def refusal(self, limits: Limits) -> Refusal | None:
        """Return why the body is refused; None: not refused so far."""
        chunks = self._chunks
        size = len(self.data)
        if size > limits.body_bytes:
            return refusals.body_too_large(limits.body_bytes)
        if chunks is None:
            return None
        if chunks.bad:
            return refusals.MALFORMED_REQUEST
        if chunks.since_body > limits.head_bytes and not chunks.complete:
            return refusals.HEAD_TOO_LARGE
        if chunks.framing > limits.head_bytes + size // _FRAMING_SHARE:
            return bad_request("the body comes in chunks that are too small")
        return None


class ChunkedDecoder:
    """Decoder of a body that is sent in chunks."""

    __slots__ = ("_parser", "bad", "complete", "framing", "overrun", "pieces", "since_body")

    def __init__(self) -> None:
        self.complete = False
        self.bad = False
        """Whether the bytes are not chunks."""
        self.overrun = False
        """Whether bytes that follow the body were read."""
        self.since_body = 0
        """Bytes since the last one of the body: framing, and trailers, which are dropped."""
        self.framing = 0
        """Bytes of framing: each chunk costs a call, even a chunk of one byte."""
        self.pieces = bytearray()
        """Bytes of the body, until the caller takes them out."""
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKED_HEAD)

    def feed(self, data: bytes) -> None:
        self.since_body += len(data)
        self.framing += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # The request may be complete; what follows is no request, and is not read.
            self.overrun = True
            self.bad = not self.complete

    def on_message_begin(self) -> None:
        """Handle the first byte of a request: of the next one, when this one is complete."""
        self.overrun = self.complete

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.since_body = 0
            self.framing -= len(data)
            self.pieces += data

    def on_message_complete(self) -> None:
        self.complete = True
