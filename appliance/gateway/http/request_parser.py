"""What httptools makes of a request: its head, and its body where that comes in chunks."""

from math import inf
from typing import Final

import httptools

from appliance.domain.gateway import Limits, Refusal
from appliance.gateway.http import request_head
from appliance.gateway.http.request_head import RequestHead

_CHUNKS_FOLLOW: Final = b"POST / HTTP/1.1\r\nHost: -\r\nTransfer-Encoding: chunked\r\n\r\n"


_OTHER_LINES: Final = 2
"""Of a head: the first and the last."""
_SLICE_BYTES: Final = 16 << 10
_WORTH: Final = 4
"""As many bytes of a body as framing costs; a chunk of 24 bytes or more has them."""
TOO_SLOW: Final = Refusal(status=408, code="too_slow", message="the request came too slowly")


class _Head:
    """Hears what the parser finds in a head."""

    __slots__ = ("headers", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, target: bytes) -> None:
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


def head(raw: bytes, most: int) -> RequestHead | Refusal:
    """A request's head, parsed and checked.

    Args:
        raw: From the method to the empty line.
        most: Headers it may have.
    """
    if raw.count(b"\n") > most + _OTHER_LINES:
        # Each would be a call of ours before they could be counted.
        return large_head()
    found = _Head()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        # What follows is ours to read: the parser would take it for another protocol.
        pass
    except httptools.HttpParserError:
        return malformed()
    if len(found.headers) > most:
        return large_head()
    return request_head.read(parser.get_method(), found.target, found.headers, raw)


class Body:
    """A request's body while it comes.

    Args:
        length: Its length; -1: it comes in chunks.
        end_s: When it has to be complete, by the event loop's clock.
    """

    __slots__ = (
        "_chunks",
        "_end_s",
        "_looked_at",
        "_missing",
        "_patience",
        "complete",
        "data",
        "overrun",
        "pace",
    )

    def __init__(self, length: int, *, end_s: float) -> None:
        self._end_s = end_s
        self._looked_at = -1
        """How much was there at the last look; -1: nobody has looked."""
        self._patience = 0
        """How much was there when it was last allowed to go on."""
        self.pace = inf
        """What came between the last two looks."""
        self._chunks = Chunks() if length < 0 else None
        self._missing = length
        self.data = bytearray()
        self.complete = False
        self.overrun = False
        """Something of the next request has been read, and cannot be given back."""

    def look(self) -> None:
        """See how fast it comes."""
        size = len(self.data)
        if self._looked_at >= 0:
            self.pace = size - self._looked_at
        self._looked_at = size

    def goes_on(self, now_s: float, limits: Limits) -> bool:
        """Whether enough has come since this was last asked, and it may take longer yet."""
        came = len(self.data) - self._patience
        self._patience = len(self.data)
        return came >= limits.body_rate * limits.body_s and now_s < self._end_s

    def feed(self, data: bytes, limits: Limits) -> bytes:
        """Read on, not beyond a fault; what follows the body comes back."""
        chunks = self._chunks
        if chunks is not None:
            for at in range(0, len(data), _SLICE_BYTES):
                chunks.feed(data[at : at + _SLICE_BYTES])
                self.data += chunks.pieces
                chunks.pieces.clear()
                if chunks.overrun or self.fault(limits) is not None:
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

    def fault(self, limits: Limits) -> Refusal | None:
        """Why it is refused, so far."""
        chunks = self._chunks
        if len(self.data) > limits.body_bytes:
            return large_body(limits)
        if chunks is not None and chunks.bad:
            return malformed()
        if chunks is not None and chunks.dry > limits.head_bytes and not chunks.complete:
            return large_head()
        if chunks is not None and chunks.framing > limits.head_bytes + len(self.data) // _WORTH:
            message = "the body comes in chunks that are too small"
            return Refusal(status=400, code="bad_request", message=message)
        return None


class Chunks:
    """A body that comes in chunks, out of them."""

    __slots__ = ("_parser", "bad", "complete", "dry", "framing", "overrun", "pieces")

    def __init__(self) -> None:
        self.complete = False
        self.bad = False
        """These are no chunks."""
        self.overrun = False
        """Something follows the body, of which the beginning has been read."""
        self.dry = 0
        """Bytes since the last one of the body: framing, and trailers, which go no further."""
        self.framing = 0
        """Bytes that are none of the body: each chunk costs a call, also one of a byte."""
        self.pieces = bytearray()
        """Of the body, until they are taken out."""
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKS_FOLLOW)

    def feed(self, data: bytes) -> None:
        """Read on."""
        self.dry += len(data)
        self.framing += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # The request may be whole; what follows it is not, and is not read.
            self.overrun = True
            self.bad = not self.complete

    def on_message_begin(self) -> None:
        """The first byte of a request; of the next one, when this one is complete."""
        self.overrun = self.complete

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self.complete:
            self.dry = 0
            self.framing -= len(data)
            self.pieces += data

    def on_message_complete(self) -> None:
        """The end of the body."""
        self.complete = True


def malformed() -> Refusal:
    """The refusal of what is no HTTP."""
    return Refusal(status=400, code="bad_request", message="the request is malformed")


def large_head() -> Refusal:
    """The refusal of a head that is too large."""
    message = "the request's headers are too large or too many"
    return Refusal(status=431, code="head_too_large", message=message)


def large_body(limits: Limits) -> Refusal:
    """The refusal of a body that is too large."""
    message = f"a request's body may have {limits.body_bytes} bytes"
    return Refusal(status=413, code="body_too_large", message=message)
