"""Responses: heads of engines' responses for clients, their parser, and responses of the gateway itself.

Usage (output tokens, speed and cached prompt tokens) is parsed from the last bytes of a response.
The response itself is passed on unread; searching its last kilobytes costs a microsecond. In JSON
a quotation mark inside a text is escaped, so that nothing a model writes is taken for a key.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

import httptools

from appliance.gateway.request_head import PreflightRequest

# --- heads, and responses of the gateway itself -------------------------------------------

_SPECIAL: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"access-control-allow-credentials",
        b"access-control-allow-headers",
        b"access-control-allow-methods",
        b"access-control-allow-origin",
        b"access-control-allow-private-network",
        b"access-control-expose-headers",
        b"access-control-max-age",
    }
)
"""Headers on which the gateway itself acts. Of these only those of the content's type and coding go on unchanged."""
_PREFLIGHT_S: Final = 600
"""Time for which a browser may go by the answer to a preflight."""
_HEADER_LIST: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]+")

LAST_CHUNK: Final = b"0\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_NO_BODY: Final = frozenset({204, 304})


class Framing(Enum):
    """Framing: how the end of a response body is marked."""

    LENGTH = 1
    CHUNKED = 2
    CLOSE = 3
    """End marked by the end of the connection."""
    NONE = 4
    """No body."""


@dataclass(slots=True)
class ResponseHead:
    """Checked head of an engine's response. Not frozen, because a frozen one is slow to construct."""

    status: int
    lines: bytes
    """Status line and headers for the client, without those that frame the body."""
    framing: Framing
    length: bytes
    """Value of ``Content-Length``; empty: absent."""
    events: bool
    """Whether the body is a stream of server-sent events, as plain text: none can be added to a coded
    one."""
    keeps: bool
    """Whether the engine takes another request on the connection."""
    websocket: bool


_ENDS: Final = frozenset({Framing.CLOSE, Framing.CHUNKED})
"""Framings after which a connection takes no other request. llama.cpp's server ends the connection after each
stream without saying so, a moment later: a request that was written in between would be lost, and none is
sent twice. A new connection costs 0.1 ms, a stream seconds."""


def check_response_head(
    status: int, reason: bytes, headers: Sequence[tuple[bytes, bytes]], *, new: bool
) -> ResponseHead | None:
    """Return a checked head; None: the end of its body cannot be determined.

    Args:
        status: Status code.
        reason: Reason phrase.
        headers: Headers, in order.
        new: The engine speaks HTTP/1.1.
    """
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, reason)]
    seen: dict[bytes, bytes] = {}
    lists: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        low = name.lower()
        if low in _SPECIAL:
            if low in seen:
                lists.setdefault(low, [seen[low]]).append(value)
            else:
                seen[low] = value
            if low not in {b"content-type", b"content-encoding"}:
                continue
        lines += (name, b": ", value, b"\r\n")
    for low, values in lists.items():
        seen[low] = b",".join(values)
    framing = _framing(status, seen)
    if framing is None:
        return None
    options = seen.get(b"connection", b"").lower()
    return ResponseHead(
        status,
        b"".join(lines),
        framing,
        seen.get(b"content-length", b"").strip(b" \t"),
        _has_events(seen),
        new and b"close" not in options and framing not in _ENDS,
        status == HTTPStatus.SWITCHING_PROTOCOLS and b"upgrade" in options,
    )


def _has_events(seen: dict[bytes, bytes]) -> bool:
    if not seen.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
        return False
    return seen.get(b"content-encoding", b"identity").strip(b" \t").lower() == b"identity"


def _framing(status: int, seen: dict[bytes, bytes]) -> Framing | None:
    if status in _NO_BODY or status < HTTPStatus.OK:
        return Framing.NONE
    coding = seen.get(b"transfer-encoding")
    if coding is not None:
        return Framing.CHUNKED if coding.strip(b" \t").lower() == b"chunked" else None
    return Framing.LENGTH if b"content-length" in seen else Framing.CLOSE


def build_relayed_head(head: ResponseHead, *, headers: bytes, chunked: bool, close: bool) -> bytes:
    """Return an engine's head in the form for a client.

    Args:
        head: Head of the engine's response.
        headers: Further header lines, each with CR LF.
        chunked: A body of unknown length goes out in chunks; else until the connection closes.
        close: The connection ends with this response.
    """
    end = headers + (b"Connection: close\r\n\r\n" if close else b"\r\n")
    if head.framing is Framing.LENGTH:
        return b"%bContent-Length: %b\r\n%b" % (head.lines, head.length, end)
    if head.framing is Framing.NONE:
        if head.status == HTTPStatus.NOT_MODIFIED and head.length:
            return b"%bContent-Length: %b\r\n%b" % (head.lines, head.length, end)
        return head.lines + end
    if chunked:
        return b"%bTransfer-Encoding: chunked\r\n%b" % (head.lines, end)
    return head.lines + end


def build_relayed_response(
    head: ResponseHead, payload: bytes, *, headers: bytes, close: bool
) -> bytes:
    """Return an engine's whole response in the form for a client.

    Args:
        head: Head of the engine's response; its length is ignored.
        payload: Body.
        headers: Further header lines, each with CR LF.
        close: The connection ends with this response.
    """
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    return b"%b%bContent-Length: %d\r\n%b%b" % (head.lines, headers, len(payload), end, payload)


def build_switch_head(head: ResponseHead) -> bytes:
    """Return the head after which both sides use the websocket protocol."""
    return head.lines + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def build_json_response(
    status: int, body: bytes, *, headers: bytes = b"", close: bool, head_only: bool = False
) -> bytes:
    """Return a response of the gateway itself.

    Args:
        status: Status code.
        body: JSON.
        headers: Further header lines, each with CR LF.
        close: The connection ends with this response.
        head_only: The request was HEAD.
    """
    reason = _REASONS.get(status, b"Error")
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    head = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b%b" % (
        status,
        reason,
        len(body),
        headers,
        end,
    )
    return head if head_only else head + body


def build_cors_lines(origin: bytes) -> bytes:
    """Return the lines that let a web page of this origin read a response (Fetch standard)."""
    return (
        b"Access-Control-Allow-Origin: %b\r\nAccess-Control-Expose-Headers: *\r\nVary: Origin\r\n"
        % origin.strip(b" \t")
    )


def build_preflight_response(preflight: PreflightRequest, *, headers: bytes, close: bool) -> bytes:
    """Return the answer that lets a web page send its request, with the headers that it asks for."""
    lines = b"Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
    if _HEADER_LIST.fullmatch(preflight.headers):
        lines += b"Access-Control-Allow-Headers: %b\r\n" % preflight.headers
    if preflight.is_private:
        lines += b"Access-Control-Allow-Private-Network: true\r\n"
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    return b"HTTP/1.1 204 No Content\r\n%b%bAccess-Control-Max-Age: %d\r\n%b" % (
        headers,
        lines,
        _PREFLIGHT_S,
        end,
    )


def build_stream_head(*, headers: bytes, chunked: bool, close: bool) -> bytes:
    """Return the head of a stream that begins before the engine responds."""
    lines = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    if chunked:
        lines += b"Transfer-Encoding: chunked\r\n"
    return lines + headers + (b"Connection: close\r\n\r\n" if close else b"\r\n")


def encode_chunk(data: bytes) -> bytes:
    """Return a chunk of a body; data must not be empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


# --- parser -------------------------------------------------------------------------------

_PART_BYTES: Final = 64 << 10
"""Size from which a chunk is relayed before its end has been received."""
_BETWEEN_BYTES: Final = 256 << 10
"""Limit of a head, and of all bytes between pieces of body."""
_CONTINUE: Final = 100
_OK: Final = 200
_SWITCHING: Final = 101


class ResponseParser:
    """Parser fed with bytes as they are received."""

    __slots__ = (
        "_begun",
        "_complete_pieces",
        "_counted",
        "_headers",
        "_parser",
        "_part_bytes",
        "_pieces",
        "_reason",
        "_since_body",
        "bad",
        "complete",
        "head",
        "rest",
    )

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        """Response head; None: not complete yet."""
        self.bad = False
        """Whether the bytes are no response that can be relayed."""
        self.complete = False
        self.rest = b""
        """Bytes that follow a change of protocol."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._pieces: list[bytes] = []
        self._complete_pieces = 0
        """Number of `_pieces` that belong to complete chunks."""
        self._part_bytes = 0
        """Bytes of the pieces after them, up to `_counted`: counted only when needed."""
        self._counted = 0
        self._begun = 0
        """Responses that have begun, interim ones apart."""
        self._since_body = 0
        """Bytes since the head or the last piece of body."""

    def feed(self, data: bytes) -> None:
        self._since_body += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
            self.bad |= self.head is None or not self.head.websocket
        except httptools.HttpParserError:
            # Invalid bytes after a complete response make only the connection unusable.
            self._begun += 1
            self.bad |= not self.complete
        if self._since_body > _BETWEEN_BYTES + len(data):
            self.bad = True

    def take_body(self) -> bytes:
        """Take the bytes that may be relayed: complete chunks, large parts of one, or all."""
        pieces = self._pieces
        count = len(pieces)
        if self._complete_pieces < count and not self.complete and self._waits():
            count = self._complete_pieces
        self._complete_pieces = 0
        if count == len(pieces):
            self._pieces = []
            if self._counted:
                self._counted = self._part_bytes = 0
            return pieces[0] if count == 1 else b"".join(pieces)
        payload = b"".join(pieces[:count])
        del pieces[:count]
        self._counted -= count
        return payload

    def _waits(self) -> bool:
        """Tell whether an incomplete chunk waits for its rest."""
        if self.head is None or self.head.framing is not Framing.CHUNKED:
            return False
        if self._complete_pieces:
            self._counted, self._part_bytes = self._complete_pieces, 0
        # Each piece is counted once, however many there are.
        self._part_bytes += sum(map(len, self._pieces[self._counted :]))
        self._counted = len(self._pieces)
        return self._part_bytes < _PART_BYTES

    @property
    def ends_with_connection(self) -> bool:
        """Tell whether the end of the connection is the proper end of the response."""
        return self.head is not None and self.head.framing is Framing.CLOSE

    @property
    def keeps(self) -> bool:
        """Tell whether the connection is good for another request."""
        return self.complete and self._begun == 1 and self.head is not None and self.head.keeps

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; drop a trailer."""
        if self.head is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Handle the end of a head, also of an interim one.

        A bad response stays bad: httptools goes on, and a good one may follow at once.
        """
        if self.head is not None or self.bad:
            return
        status = self._parser.get_status_code()
        if status < _CONTINUE:
            self.bad = True
        elif status < _OK and status != _SWITCHING:
            # `_since_body` goes on: a response of interim heads alone would otherwise never end.
            self._headers, self._reason = [], b""
        else:
            self._since_body = 0
            new = self._parser.get_http_version() == "1.1"
            self.head = check_response_head(status, self._reason, self._headers, new=new)
            self.bad = self.head is None

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body; drop that of a further response. Interim ones have none."""
        if self.head is None:
            self.bad = True
        elif not self.complete:
            self._since_body = 0
            self._pieces.append(data)

    def on_chunk_complete(self) -> None:
        self._complete_pieces = len(self._pieces)

    def on_message_complete(self) -> None:
        """Handle the end of a response, also of an interim one."""
        if self.head is None:
            self._begun = 0
        else:
            self.complete = True


# --- usage --------------------------------------------------------------------------------

_TOKENS: Final = (b'"completion_tokens"', b'"output_tokens"', b'"predicted_n"')
"""Keys of OpenAI's completions and responses, of Anthropic's messages, and of llama.cpp."""
_CACHED: Final = b'"cached_tokens"'
_PROMPT: Final = (b'"prompt_tokens"', b'"input_tokens"')
"""Keys of OpenAI's completions and responses; the cached tokens are among these."""
_EVALUATED: Final = b'"prompt_n"'
_REUSED: Final = b'"cache_n"'
"""Keys of llama.cpp's timings; the reused tokens are beside those that were evaluated."""
_SPEED: Final = b'"predicted_per_second"'
"""Key of llama.cpp's timings, which all have."""
_INTEGER: Final = re.compile(rb'"\s*:\s*([0-9]{1,9})(?![0-9.eE])')
_NUMBER: Final = re.compile(rb'"\s*:\s*([0-9]{1,9}(?:\.[0-9]{1,17})?)')
Usage = tuple[int | None, float | None, tuple[int, int | None] | None]
"""Output tokens; decoding speed in tokens/s; prompt tokens, and how many of them the engine's prefix cache held."""
_LINES: Final = (b"data:", b"event:", b"\ndata:", b"\nevent:")
"""Beginnings of events; a newline within a JSON string is escaped as well."""


def is_stream(tail: bytes) -> bool:
    """Tell whether these are the last bytes of server-sent events."""
    head = tail[:1]
    if head in {b"{", b"["}:
        return False
    return tail.startswith(_LINES[:2]) or tail.rfind(_LINES[2]) >= 0 or tail.rfind(_LINES[3]) >= 0


def parse_output_tokens(tail: bytes) -> int | None:
    """Return the number of output tokens; None: not reported."""
    return _parse_first(tail, _TOKENS)


def parse_usage(tail: bytes) -> Usage:
    """Return everything that is reported, each None where it is not."""
    tokens, prompt = _parse_first(tail, _TOKENS), _parse_first(tail, _PROMPT)
    cached, speed = _parse_count(tail, _CACHED), None
    # A search that finds nothing reads the whole tail: only as many as are needed.
    if (at := tail.rfind(_SPEED)) >= 0:
        found = _NUMBER.match(tail, at + len(_SPEED) - 1)
        speed = (float(found[1]) or None) if found else None
        if cached is None and (evaluated := _parse_count(tail, _EVALUATED)) is not None:
            cached = _parse_count(tail, _REUSED)
            prompt = prompt if cached is None else evaluated + cached
    if prompt is None:
        return tokens, speed, None
    return tokens, speed, (prompt, cached if cached is not None and cached <= prompt else None)


def _parse_first(tail: bytes, keys: Sequence[bytes]) -> int | None:
    """Return the last number under the first of the keys that is there."""
    for key in keys:
        if (found := _parse_count(tail, key)) is not None:
            return found
    return None


def _parse_count(tail: bytes, key: bytes) -> int | None:
    at = tail.rfind(key)
    if at >= 0 and (found := _INTEGER.match(tail, at + len(key) - 1)):
        return int(found[1])
    return None
