"""Body of a request: its framing, its coding, the choice of its parser, and the queue of long bodies.

**Coding.** Bodies that are coded with gzip or zstd are decoded (RFC 9110, 8.4; RFC 1952; RFC 8878).
Coding agents send zstd by themselves. Decoded are bodies of one coding, in steps between which all
other clients are served; the engine gets the plain body. The other codings are refused:
``deflate`` has two formats that senders confuse, and no client of ours sends it or ``br``.

A short coded body can stand for a huge one, or cost much time for nothing. Therefore its plain form
is bounded in bytes as plain bodies are, and in relation to the bytes that were read for it; and a
body that is longer coded than plain is refused, since it holds blocks that stand for nothing.

**Parser.** A body is parsed as JSON or as a form, or relayed unread.

**Scan queue.** Bodies are decoded or scanned one step in each turn of the event loop.
Between two steps all other connections are served. Owners take turns, however many bodies one has
sent.
"""

import asyncio
import re
import sys
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from math import inf
from typing import Final, Generic, Protocol, TypeVar

import httptools

from appliance.gateway.event_loop import end_faulty
from appliance.gateway.request_head import Coding, RequestHead
from appliance.model.gateway import Api, Limits, Refusal
from appliance.routing import refusals
from appliance.routing.form_body import FormBody, parse_form, parse_form_in_steps
from appliance.routing.json_body import LONG_BYTES, JsonBody, parse_json_in_steps
from appliance.routing.json_scanner import BodyError
from appliance.routing.refusals import GATEWAY_FAULT, bad_request

# --- framing ------------------------------------------------------------------------------

_CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nHost: -\r\nTransfer-Encoding: chunked\r\n\r\n"
_FED_BYTES: Final = 16 << 10
_FRAMING_SHARE: Final = 4
"""Bytes of body that allow one byte of framing; chunks of 24 bytes or more have enough."""
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
            for at in range(0, len(data), _FED_BYTES):
                chunks.feed(data[at : at + _FED_BYTES])
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


# --- coding -------------------------------------------------------------------------------

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


# --- parser -------------------------------------------------------------------------------

_OTHER: Final = Api.OTHER
"""Member by name: looking one up in its Enum is slow in Python 3.11."""
_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{(?!\0)")
"""Beginning of a body that every engine reads as JSON, whatever its headers say."""


def _object_in(encoding: str) -> bytes:
    """Return a pattern of the same beginning in another encoding, with or without a BOM."""
    blanks = b"|".join(re.escape(blank.encode(encoding)) for blank in " \t\r\n")
    mark, brace = "\ufeff".encode(encoding), re.escape("{".encode(encoding))
    return b"(?:%b)?(?:%b)*%b" % (re.escape(mark), blanks, brace)


_OBJECT_ELSE: Final = re.compile(
    b"|".join(
        (
            rb"\xef\xbb\xbf[ \t\r\n]*\{",
            *map(_object_in, ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")),
        )
    )
)
"""Beginning of a body that some engines read as JSON: Python's `json.loads` detects encodings."""
_BLANKS: Final = b" \t\r\n"
_PADDING: Final = _BLANKS + b"\0\xef\xbb\xbf\xff\xfe"
"""Padding: blanks in any of these encodings, and byte order marks."""


def parse_body_in_steps(
    head: RequestHead, body: bytes
) -> Generator[None, None, JsonBody | FormBody | None]:
    """Parse a long body as `parse_body` does, in steps of some milliseconds.

    Raises:
        BodyError: The body has to be read, and cannot be.
    """
    if head.form is not None:
        return (yield from parse_form_in_steps(head.form, body))
    start = body[:LONG_BYTES]
    if not start.strip(_PADDING) and start.translate(None, _BLANKS) != start:
        raise BodyError("the body begins with too many blanks")
    if _OBJECT.match(start) is not None or _has_to_be_json(head, start):
        return (yield from parse_json_in_steps(body))
    return None


def parse_body(head: RequestHead, body: bytes) -> JsonBody | FormBody | None:
    """Parse a short body that is not plain; None: the body is relayed unread.

    The headers do not decide alone: engines do not ask either, and what is not read here is not
    changed.

    Raises:
        BodyError: The body has to be read, and cannot be.
    """
    if head.form is not None:
        return parse_form(head.form, body)
    if _OBJECT.match(body) is not None or _has_to_be_json(head, body):
        return JsonBody(body)
    return None


def _has_to_be_json(head: RequestHead, start: bytes) -> bool:
    """Tell whether a body is read although it begins with no brace; raises `BodyError`."""
    if _OBJECT_ELSE.match(start) is not None:
        raise BodyError("the body is not plain UTF-8: send JSON so, without a byte order mark")
    return head.path_class.api is not _OTHER


def body_refusal(error: BodyError) -> Refusal:
    return bad_request(str(error), error.param)


# --- scan queue ---------------------------------------------------------------------------

_Result_co = TypeVar("_Result_co", covariant=True)


class Scan(Generic[_Result_co]):
    """Scan of one body.

    Args:
        steps: Steps of the scan.
        done: Called with the result; a guarded callback.
    """

    __slots__ = ("_done", "_steps")

    def __init__(
        self,
        steps: Generator[None, None, _Result_co | Refusal],
        done: Callable[[_Result_co | Refusal], None],
    ) -> None:
        self._steps: Final = steps
        self._done: Callable[[_Result_co | Refusal], None] | None = done
        """Callback for the result; None: the scan was cancelled."""

    def cancel(self) -> None:
        """Stop the scan without calling `done`."""
        self._done = None

    def advance(self) -> Callable[[], None] | None:
        """Take a step; return what is to be called at the end, or None while there are more."""
        if self._done is None:
            return _nothing
        result: _Result_co | Refusal
        try:
            next(self._steps)
        except StopIteration as end:
            result = end.value
        except BodyError as error:
            # Not the error itself, whose frames hold the body until the next garbage collection.
            result = body_refusal(error)
        except Exception as error:  # noqa: BLE001 - the guard of the others in the queue
            end_faulty(error)
            result = GATEWAY_FAULT
        else:
            return None
        return partial(self._finish, result)

    def _finish(self, result: _Result_co | Refusal) -> None:
        if self._done is not None:
            self._done(result)


def _nothing() -> None:
    """End a scan that was cancelled."""


class ScanQueue:
    """Scans of all clients."""

    def __init__(self) -> None:
        self._scans: OrderedDict[str, deque[Scan[object]]] = OrderedDict()
        """Scans by owner, the next one first."""

    @property
    def busy(self) -> bool:
        return bool(self._scans)

    def add(
        self,
        owner: str,
        steps: Generator[None, None, _Result_co | Refusal],
        done: Callable[[_Result_co | Refusal], None],
    ) -> Scan[_Result_co]:
        """Scan a body in steps, then call `done`, from the event loop."""
        scan = Scan(steps, done)
        if not self._scans:
            asyncio.get_running_loop().call_soon(self._step)
        self._scans.setdefault(owner, deque()).append(scan)
        return scan

    def _step(self) -> None:
        owner, scans = self._scans.popitem(last=False)
        finish = scans[0].advance()
        if finish is not None:
            scans.popleft()
        if scans:
            self._scans[owner] = scans
        if self._scans:
            asyncio.get_running_loop().call_soon(self._step)
        # Last, because it may add another scan.
        if finish is not None:
            finish()
