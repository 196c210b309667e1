"""Answers as a client reads them that trusts nothing: all of those in some bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A final answer."""

    status: int
    body: bytes
    whole: bool
    """Whether the answer has its proper end."""
    close: bool
    """Whether the answer says that it is the last one."""


class NonsenseError(Exception):
    """Bytes that are no answer."""


def read_answers(raw: bytes, *, head_only: bool = False, closed: bool = True) -> list[Told]:
    """The final answers in what came on a connection, interim ones left out.

    Args:
        raw: Everything that came.
        head_only: The first one is to HEAD.
        closed: The connection is closed behind it: also a proper end.

    Raises:
        NonsenseError: Something there is no answer.
    """
    answers: list[Told] = []
    at = 0
    while at < len(raw):
        end = raw.find(b"\r\n\r\n", at)
        if end < 0:
            raise NonsenseError(f"no end of a head: {raw[at : at + 100]!r}")
        status, headers = _head(raw[at:end])
        at = end + 4
        if 100 <= status < 200 and status != 101:
            continue
        bodyless = (head_only and not answers) or status in (204, 304)
        body, at, whole = (b"", at, True) if bodyless else _body(raw, at, headers, closed=closed)
        close = b"close" in headers.get(b"connection", b"")
        answers.append(Told(status=status, body=body, whole=whole, close=close))
        if status == 101:
            break
    return answers


def _head(text: bytes) -> tuple[int, dict[bytes, bytes]]:
    first, *lines = text.split(b"\r\n")
    parts = first.split(b" ", 2)
    if parts[0] != b"HTTP/1.1" or len(parts) < 2 or not parts[1].isdigit():
        raise NonsenseError(f"no status line: {first!r}")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or b"\n" in line or b"\r" in line:
            raise NonsenseError(f"no header: {line!r}")
        low = name.lower()
        if low in headers and low in (b"content-length", b"transfer-encoding"):
            raise NonsenseError(f"two of {low!r}")
        headers[low] = value.strip()
    return int(parts[1]), headers


def _body(
    raw: bytes, at: int, headers: dict[bytes, bytes], *, closed: bool
) -> tuple[bytes, int, bool]:
    """The body, where it ends, and whether it does so properly."""
    if headers.get(b"transfer-encoding") == b"chunked":
        if b"content-length" in headers:
            raise NonsenseError("a length and chunks")
        return _chunks(raw, at)
    if b"content-length" in headers:
        length = int(headers[b"content-length"])
        body = raw[at : at + length]
        return body, at + length, len(body) == length
    return raw[at:], len(raw), closed


def _chunks(raw: bytes, at: int) -> tuple[bytes, int, bool]:
    body = b""
    while (end := raw.find(b"\r\n", at)) >= 0:
        size = int(raw[at:end], 16)
        piece = raw[end + 2 : end + 2 + size]
        at = end + 2 + size
        if len(raw) < at + 2:
            return body + piece, len(raw), False
        if raw[at : at + 2] != b"\r\n":
            raise NonsenseError("no end of a chunk")
        at += 2
        if not size:
            return body, at, True
        body += piece
    return body, len(raw), False
