"""The head of a request: what it says, what is wrong with it, and how it goes on to an engine.

httptools has parsed it already. What it lets through although two readers could disagree about it
is refused here, and so is what no engine of ours understands.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from appliance.domain.gateway import Refusal
from appliance.planning.routing import paths
from appliance.planning.routing.paths import PathError, Place

Headers = Sequence[tuple[bytes, bytes]]

METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_WITH_BODY: Final = frozenset({b"POST", b"PUT", b"PATCH"})

_SPECIAL: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"content-encoding",
        b"expect",
        b"authorization",
        b"x-api-key",
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
        b"http2-settings",
        b"origin",
        b"sec-fetch-site",
    }
)
"""Headers that are read here. Of these only `_KEPT` go on to the engine."""
_KEPT: Final = frozenset({b"content-type", b"content-encoding", b"origin", b"sec-fetch-site"})
_ONCE: Final = _SPECIAL - {b"connection", b"te", b"trailer", b"keep-alive", b"proxy-connection"}

_CONTROLS: Final = bytes((*range(0x20), 0x7F))
_ORDINARY: Final = bytes(range(256)).translate(None, _CONTROLS) + b"\t\r\n"
"""Every byte that a head may hold, also in a value."""
_TARGET: Final = re.compile(rb"/[!\"$-\[\]-~]*")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?#@\\]+)((?:[/?].*)?)")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.%]+\])(?::[0-9]*)?")
_CONTINUE: Final = b"100-continue"
_CHARSETS: Final = frozenset(
    b"charset=%b%b%b" % (quote, name, quote)
    for name in (b"utf-8", b"utf8", b"us-ascii")
    for quote in (b"", b'"')
)
"""Parameters of a media type that change nothing about how a body is read."""
_DIGITS: Final = 19
"""Of a length, at most: more would not fit into 64 bits."""


@dataclass(slots=True)
class RequestHead:
    """What a request's head says. Not frozen only because that makes it slow to make."""

    method: bytes
    target: bytes
    """Path and query, as the engine gets them."""
    path: str
    """The path alone."""
    place: Place
    """What the path is about."""
    old: bool
    """The client speaks HTTP/1.0."""
    close: bool
    """The client wants no second request on this connection."""
    length: int
    """Of the body; -1: it comes in chunks. Of the first one, where a head is `Known`."""
    expects: bool
    """The client waits for a word before it sends the body."""
    websocket: bool
    authorization: bytes | None
    api_key: bytes | None
    form: str | None
    """The media type of a form of several parts, with its boundary; None: the body is none."""
    lines: bytes
    """The headers that go on to the engine unchanged."""
    host: bytes | None = None
    origin: bytes | None = None
    """The page of which a browser asks."""
    site: bytes | None = None
    """``Sec-Fetch-Site``: how that page is related to us."""
    keyless: Refusal | None = None
    """Why it needs a key even on loopback, when somebody has looked; None: it needs none."""
    sent: tuple[bytes | None, bytes] = (None, b"")
    """What `outgoing` was given as `host`, and how the head began that it made of that."""


def read(method: bytes, target: bytes, headers: Headers, raw: bytes) -> RequestHead | Refusal:
    """A parsed head, checked.

    Args:
        method: As the parser read it.
        target: As the parser read it.
        headers: As the parser read them, in order.
        raw: The head's bytes, from the method to the empty line.
    """
    old = _is_old(method, target, raw)
    if old is None or raw.translate(None, _ORDINARY) or _folded(raw):
        return _bad("the request's head is malformed")
    if method not in METHODS:
        return Refusal(status=501, code="method_not_implemented", message="no such method here")
    seen: dict[bytes, bytes] = {}
    lines: list[bytes] = []
    for name, value in headers:
        low = name.lower()
        if low in _SPECIAL:
            if low in seen:
                if low in _ONCE:
                    return _bad(f"more than one header {low.decode('ascii')}")
                value = seen[low] + b"," + value  # noqa: PLW2901  # as one list
            seen[low] = value
            if low not in _KEPT:
                continue
        lines += (name, b": ", value, b"\r\n")
    return _read(method, target, seen, lines, old=old)


def _read(
    method: bytes, target: bytes, seen: dict[bytes, bytes], lines: list[bytes], *, old: bool
) -> RequestHead | Refusal:
    length = _length(seen.get(b"transfer-encoding"), seen.get(b"content-length"), old=old)
    if isinstance(length, Refusal):
        return length
    origin = _host_fault(seen.get(b"host"), old=old) or _origin(method, target, seen.get(b"host"))
    if isinstance(origin, Refusal):
        return origin
    refused = _refused(seen, old=old)
    if refused is not None:
        return refused
    close, websocket = old, False
    if b"connection" in seen:
        tokens = _tokens(seen[b"connection"])
        close = close or b"close" in tokens
        websocket = (
            not old
            and b"upgrade" in tokens
            and _tokens(seen.get(b"upgrade", b"")) == {b"websocket"}
        )
        lines = _without(lines, tokens)
    if websocket and (length or method != b"GET"):
        return _bad("a websocket begins with GET and has no body")
    path = origin.partition(b"?")[0].decode("ascii")
    try:
        place = Place() if path == "*" else paths.place(method.decode("ascii"), path)
    except PathError as error:
        return _bad(str(error))
    return RequestHead(
        method,
        origin,
        path,
        place,
        old,
        close,
        length,
        not old and b"expect" in seen,
        websocket,
        seen.get(b"authorization"),
        seen.get(b"x-api-key"),
        _form(seen.get(b"content-type", b"")),
        b"".join(lines),
        seen.get(b"host"),
        seen.get(b"origin"),
        seen.get(b"sec-fetch-site"),
    )


def outgoing(head: RequestHead, length: int, host: bytes, *, plain: bool = False) -> bytes:
    """The head as an engine gets it: always with the body's length, never for chunks.

    Args:
        head: The client's.
        length: Of the body that the engine gets.
        host: The lines ``Host`` and, where the engine has a key, ``Authorization``.
        plain: Ask for an answer that is not compressed.
    """
    before, start = head.sent
    if before is not host or plain:
        lines = _without_coding(head.lines) if plain else head.lines
        start = b"%b %b HTTP/1.1\r\n%b%b" % (head.method, head.target, host, lines)
        if not plain:
            head.sent = host, start
    if length or head.method in _WITH_BODY:
        return b"%bContent-Length: %d\r\n\r\n" % (start, length)
    if head.websocket:
        return start + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    return start + b"\r\n"


def may_become(raw: bytes) -> bool:
    """Whether these bytes can be the beginning of a head; cheap, and says yes in doubt."""
    return raw[:1].isupper() and raw.count(b"\n") == raw.count(b"\r\n") and b"\0" not in raw


def _is_old(method: bytes, target: bytes, raw: bytes) -> bool | None:
    """Whether it is HTTP/1.0; None: the first line is not what the parser made of it."""
    line = b"%b %b HTTP/1." % (method, target)
    if raw.startswith(line):
        rest = raw[len(line) : len(line) + 3]
        if rest == b"1\r\n":
            return False
        if rest == b"0\r\n":
            return True
    return None


def _folded(raw: bytes) -> bool:
    """Whether a line is folded, or ends with anything but CR LF."""
    ends = raw.count(b"\r\n")
    return raw.count(b"\n") != ends or raw.count(b"\r") != ends or b"\n " in raw or b"\n\t" in raw


def _length(coding: bytes | None, length: bytes | None, *, old: bool) -> int | Refusal:
    """Of the body; -1: it comes in chunks."""
    if coding is not None:
        return _fault(coding, length, old=old) or -1
    if length is None:
        return 0
    digits = length.strip(b" \t")
    if not digits.isdigit() or len(digits) > _DIGITS:
        return _bad("Content-Length is no number")
    return int(digits)


def _fault(coding: bytes, length: bytes | None, *, old: bool) -> Refusal | None:
    """What is wrong with a transfer coding."""
    if old:
        return _bad("HTTP/1.0 knows no Transfer-Encoding")
    if length is not None:
        return _bad("Transfer-Encoding and Content-Length exclude each other")
    if coding.strip(b" \t").lower() != b"chunked":
        return _bad("the only Transfer-Encoding is chunked")
    return None


def _host_fault(host: bytes | None, *, old: bool) -> Refusal | None:
    if host is None:
        return None if old else _bad("there is no header Host")
    if _HOST.fullmatch(host.strip(b" \t")) is None:
        return _bad("the header Host is malformed")
    return None


def _origin(method: bytes, target: bytes, host: bytes | None) -> bytes | Refusal:
    """Path and query of what a request is for."""
    if _TARGET.fullmatch(target) is not None or (target == b"*" and method == b"OPTIONS"):
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return _bad("the request's target is malformed")
    authority, rest = absolute.groups()
    if host is not None and authority.lower() != host.strip(b" \t").lower():
        return Refusal(status=421, code="misdirected", message="the target names another host")
    origin: bytes = rest if rest.startswith(b"/") else b"/" + rest
    return origin if _TARGET.fullmatch(origin) else _bad("the request's target is malformed")


def _refused(seen: dict[bytes, bytes], *, old: bool) -> Refusal | None:
    """What is understood, and not done."""
    if seen.get(b"content-encoding", b"identity").strip(b" \t").lower() != b"identity":
        message = "a request's body must not be compressed"
        return Refusal(status=415, code="compressed_body", message=message)
    media_type = seen.get(b"content-type", b"").lower()
    if not media_type.isascii():
        return _bad("the header Content-Type is malformed")
    if b"charset" in media_type and not _is_utf8(media_type):
        message = "a request's body must be UTF-8"
        return Refusal(status=415, code="unsupported_charset", message=message)
    if not old and seen.get(b"expect", _CONTINUE).strip(b" \t").lower() != _CONTINUE:
        return Refusal(status=417, code="expectation_failed", message="only 100-continue is known")
    return None


def _is_utf8(media_type: bytes) -> bool:
    """Whether every parameter that some reader may take for the charset says UTF-8.

    Starlette decodes the names and the values of a form by it, aiohttp JSON too; in UTF-7 both look
    like other ASCII text.
    """
    parameters = media_type.split(b";")[1:]
    return all(
        parameter.translate(None, b" \t") in _CHARSETS
        for parameter in parameters
        if b"charset" in parameter
    )


def _form(media_type: bytes) -> str | None:
    is_form = media_type[:10].lower() == b"multipart/"
    return media_type.decode("latin-1") if is_form else None


def _tokens(value: bytes) -> set[bytes]:
    """The words of a list, in lower case."""
    return {token.strip(b" \t").lower() for token in value.split(b",")}


def _without(lines: list[bytes], tokens: set[bytes]) -> list[bytes]:
    """Headers without those that `Connection` names; lines come in fours."""
    if tokens <= {b"close", b"keep-alive", b"upgrade", b"te", b""}:
        return lines
    kept: list[bytes] = []
    for at in range(0, len(lines), 4):
        low = lines[at].lower()
        if low not in tokens or low in _KEPT:
            kept += lines[at : at + 4]
    return kept


def _without_coding(lines: bytes) -> bytes:
    kept = [
        line
        for line in lines.splitlines(keepends=True)
        if not line.lower().startswith(b"accept-encoding:")
    ]
    return b"".join(kept)


def _bad(message: str) -> Refusal:
    return Refusal(status=400, code="bad_request", message=message)
