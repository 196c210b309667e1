"""Heads of engines' responses for clients, and responses of the gateway itself."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

from appliance.gateway.http.request_head import PreflightRequest

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
