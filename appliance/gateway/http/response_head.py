"""The head of an engine's answer, and answers of our own."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

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
    }
)
"""Headers that are read here. Of these only `content-type` goes on as it is."""

END: Final = b"0\r\n\r\n"
"""Of a body in chunks."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_NO_BODY: Final = frozenset({204, 304})


class Framing(Enum):
    """How the end of an engine's body is told."""

    LENGTH = 1
    CHUNKED = 2
    CLOSE = 3
    """The engine closes the connection."""
    NONE = 4
    """There is no body."""


@dataclass(slots=True)
class AnswerHead:
    """What an engine's head says. One is made for every request, so it is not frozen."""

    status: int
    lines: bytes
    """Status line and headers for the client, without those that tell the body's end."""
    framing: Framing
    length: bytes
    """As the engine says it; empty: it does not."""
    events: bool
    """The body is a stream of server-sent events."""
    keeps: bool
    """The engine takes another request on the connection."""
    websocket: bool


def read(
    status: int, reason: bytes, headers: Sequence[tuple[bytes, bytes]], *, new: bool
) -> AnswerHead | None:
    """An engine's parsed head; None: its body cannot be told from what follows.

    Args:
        status: HTTP's.
        reason: What the engine says beside it.
        headers: In order.
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
            if low != b"content-type":
                continue
        lines += (name, b": ", value, b"\r\n")
    for low, values in lists.items():
        seen[low] = b",".join(values)
    framing = _framing(status, seen)
    if framing is None:
        return None
    options = seen.get(b"connection", b"").lower()
    return AnswerHead(
        status,
        b"".join(lines),
        framing,
        seen.get(b"content-length", b"").strip(b" \t"),
        seen.get(b"content-type", b"").lower().startswith(b"text/event-stream"),
        new and b"close" not in options and framing is not Framing.CLOSE,
        status == HTTPStatus.SWITCHING_PROTOCOLS and b"upgrade" in options,
    )


def _framing(status: int, seen: dict[bytes, bytes]) -> Framing | None:
    if status in _NO_BODY or status < HTTPStatus.OK:
        return Framing.NONE
    coding = seen.get(b"transfer-encoding")
    if coding is not None:
        return Framing.CHUNKED if coding.strip(b" \t").lower() == b"chunked" else None
    return Framing.LENGTH if b"content-length" in seen else Framing.CLOSE


def relayed(answer: AnswerHead, *, chunks: bool, close: bool) -> bytes:
    """An engine's head as a client gets it.

    Args:
        answer: The engine's.
        chunks: The client is given a body of unknown length in chunks; else until it is closed.
        close: The connection ends with this answer.
    """
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    if answer.framing is Framing.LENGTH:
        return b"%bContent-Length: %b\r\n%b" % (answer.lines, answer.length, end)
    if answer.framing is Framing.NONE:
        if answer.status == HTTPStatus.NOT_MODIFIED and answer.length:
            return b"%bContent-Length: %b\r\n%b" % (answer.lines, answer.length, end)
        return answer.lines + end
    if chunks:
        return b"%bTransfer-Encoding: chunked\r\n%b" % (answer.lines, end)
    return answer.lines + end


def complete(answer: AnswerHead, payload: bytes, *, close: bool) -> bytes:
    """An engine's whole answer as a client gets it.

    Args:
        answer: Its head, of which the length does not count.
        payload: Its body.
        close: The connection ends with it.
    """
    end = b"\r\nConnection: close" if close else b""
    return b"%bContent-Length: %d%b\r\n\r\n%b" % (answer.lines, len(payload), end, payload)


def switched(answer: AnswerHead) -> bytes:
    """The head after which both sides speak websocket."""
    return answer.lines + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def whole(
    status: int, body: bytes, *, headers: bytes = b"", close: bool, head_only: bool = False
) -> bytes:
    """An answer of our own, in JSON.

    Args:
        status: HTTP's.
        body: The whole of it.
        headers: Further lines, each with its end.
        close: The connection ends with it.
        head_only: The client asked for the head alone.
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


def stream(*, chunks: bool, close: bool) -> bytes:
    """The head of a stream that begins before its engine answers."""
    lines = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    if chunks:
        lines += b"Transfer-Encoding: chunked\r\n"
    return lines + (b"Connection: close\r\n\r\n" if close else b"\r\n")


def chunk(data: bytes) -> bytes:
    """A chunk of a body; there must be something in it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
