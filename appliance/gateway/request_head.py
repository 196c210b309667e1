"""Head of a request: its parser and checks, the head that goes on to an engine, and the cache of a checked head.

Refused are heads that httptools lets through although two parsers could disagree about them, and
heads that no engine of ours understands.

A client's second request has the head of its first one, but for the length of its body; so have
an engine's responses. A head that differs from one that was checked in nothing but the digits of
its length says the same, and need not be parsed again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self
from urllib.parse import unquote_plus

import httptools

from appliance.model.gateway import Refusal
from appliance.routing import refusals
from appliance.routing.refusals import bad_request
from appliance.routing.url_paths import PathClass, PathError, classify_path
from appliance.wire.lane import TOKEN_HEADER

Headers = Sequence[tuple[bytes, bytes]]

# --- checked head -------------------------------------------------------------------------

METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_WITH_BODY: Final = frozenset({b"POST", b"PUT", b"PATCH"})

_LEASE: Final = TOKEN_HEADER.lower().encode("ascii")
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
        b"access-control-request-method",
        b"access-control-request-headers",
        b"access-control-request-private-network",
        _LEASE,
    }
)
"""Headers on which the gateway itself acts. Of these only `_KEPT` go on to the engine."""
_KEPT: Final = frozenset({b"content-type", b"origin", b"sec-fetch-site"})
_READS: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_IGNORABLE: Final = re.compile(rb"(?:h2c|http/.*|tls/.*)?")
"""Protocols of ``Upgrade`` whose clients go on in HTTP/1.1 when the offer is ignored (RFC 9110, 7.8)."""
_ORIGIN_LINE: Final = re.compile(rb"\r\n(?i:origin):[ \t]*([!-~]{1,300})[ \t]*\r\n")
_ONCE: Final = _SPECIAL - {b"connection", b"te", b"trailer", b"keep-alive", b"proxy-connection"}

_CONTROLS: Final = bytes((*range(0x20), 0x7F))
_ORDINARY: Final = bytes(range(256)).translate(None, _CONTROLS) + b"\t\r\n"
"""Bytes that a head may contain, values included."""
_TARGET: Final = re.compile(rb"/[!\"$-\[\]-~]*")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?#@\\]+)((?:[/?].*)?)")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.%]+\])(?::[0-9]*)?")
_CONTINUE: Final = b"100-continue"
_CHARSETS: Final = frozenset(
    b"charset=%b%b%b" % (quote, name, quote)
    for name in (b"utf-8", b"utf8", b"us-ascii")
    for quote in (b"", b'"')
)
"""Parameters of a media type that do not change how a body is parsed."""
_DIGITS: Final = 19
"""Most digits of a length: more would not fit into 64 bits."""


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


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """Question of a browser whether a web page may send a request (Fetch standard, CORS-preflight)."""

    headers: bytes
    """Headers that the page sets, as the browser lists them; empty: none."""
    is_private: bool
    """Whether the page is of a public network, and asks for this address on a private one."""


@dataclass(slots=True)
class RequestHead:
    """Checked head of a request. Not frozen, because a frozen one is slow to construct."""

    method: bytes
    target: bytes
    """Path and query, as the engine receives them."""
    path: str
    """Path without the query."""
    path_class: PathClass
    old: bool
    """Whether the client speaks HTTP/1.0."""
    close: bool
    """Whether the client wants the connection closed after the response."""
    length: int
    """Length of the body; -1: sent in chunks. For a head from the cache: of its first body."""
    expects: bool
    """Whether the client waits for 100 Continue before it sends the body."""
    websocket: bool
    authorization: bytes | None
    api_key: bytes | None
    coding: Coding | None
    """Coding of the body; None: it is plain."""
    form: str | None
    """Media type of a multipart form, with its boundary; None: no form."""
    lines: bytes
    """Header lines that go on to the engine unchanged."""
    host: bytes | None = None
    origin: bytes | None = None
    """Header ``Origin``: the web page from which a browser sends the request; None: absent."""
    site: bytes | None = None
    """Header ``Sec-Fetch-Site``: how that page is related to this address; None: absent."""
    lease: bytes | None = None
    """Header ``X-Appliance-Lease``; None: absent."""
    preflight: PreflightRequest | None = None
    """Question of a browser that the gateway answers; None: the request is an ordinary one."""
    model: str | None = None
    """Model that the query of the target names; None: it names none."""
    is_read: bool = False
    """Whether the method is one of those that read, and no websocket begins: without a body such a
    request is no work for a model."""
    head_first: bool = False
    """Whether the response's head decides if its body is wanted."""
    is_answered_here: bool = False
    """Whether the gateway itself answers: the list of models, or a `preflight`."""
    cors: bytes = b""
    """Header lines of every response to the request, once `Relay.examine` ran: whether a web page may
    read it."""
    keyless: Refusal | None = None
    """Reason why the request needs a key even on loopback, once `Relay.examine` ran; None: it needs
    none."""
    needs_no_key: bool = False
    """Whether the request has no key and needs none on loopback, once `Relay.examine` ran."""
    sent: tuple[bytes | None, bytes] = (None, b"")
    """Argument `own_lines` of the last `build_engine_head`, and the beginning of its result."""


def check_request_head(
    method: bytes, target: bytes, headers: Headers, raw: bytes
) -> RequestHead | Refusal:
    """Check a parsed head.

    Args:
        method: As parsed.
        target: As parsed.
        headers: As parsed, in order.
        raw: Bytes of the head, from the method to the empty line.
    """
    old = _is_old(method, target, raw)
    if old is None or raw.translate(None, _ORDINARY) or _has_folded_line(raw):
        return bad_request("the request's head is malformed")
    if method not in METHODS:
        return refusals.METHOD_NOT_IMPLEMENTED
    seen: dict[bytes, bytes] = {}
    lines: list[bytes] = []
    for name, value in headers:
        low = name.lower()
        if low in _SPECIAL:
            if low in seen:
                if low in _ONCE:
                    return bad_request(f"more than one header {low.decode('ascii')}")
                value = seen[low] + b"," + value  # noqa: PLW2901  # as one list
            seen[low] = value
            if low not in _KEPT:
                continue
        lines += (name, b": ", value, b"\r\n")
    return _check(method, target, seen, lines, old=old)


def _check(
    method: bytes, target: bytes, seen: dict[bytes, bytes], lines: list[bytes], *, old: bool
) -> RequestHead | Refusal:
    length = _length(seen.get(b"transfer-encoding"), seen.get(b"content-length"), old=old)
    if isinstance(length, Refusal):
        return length
    host = seen.get(b"host")
    origin_form = _check_host(host, old=old) or _origin_form(method, target, host)
    if isinstance(origin_form, Refusal):
        return origin_form
    unsupported = _check_supported(seen, old=old)
    if unsupported is not None:
        return unsupported
    close, websocket = old, False
    if b"connection" in seen:
        tokens = _tokens(seen[b"connection"])
        close = close or b"close" in tokens
        if b"upgrade" in tokens and not old:
            offer = _check_upgrade(method, length, _tokens(seen.get(b"upgrade", b"")))
            if isinstance(offer, Refusal):
                return offer
            websocket = offer
        lines = _without(lines, tokens)
    path = origin_form.partition(b"?")[0].decode("ascii")
    try:
        path_class = PathClass() if path == "*" else classify_path(method.decode("ascii"), path)
    except PathError as error:
        return bad_request(str(error))
    preflight = _preflight(method, seen)
    return RequestHead(
        method,
        origin_form,
        path,
        path_class,
        old,
        close,
        length,
        not old and b"expect" in seen,
        websocket,
        seen.get(b"authorization"),
        seen.get(b"x-api-key"),
        CODINGS[_coding(seen)],
        _form(seen.get(b"content-type", b"")),
        b"".join(lines),
        host,
        seen.get(b"origin"),
        seen.get(b"sec-fetch-site"),
        seen.get(_LEASE),
        preflight,
        _model_of_query(origin_form),
        method in _READS and not websocket,
        websocket or method == b"HEAD",
        path_class.is_model_list or preflight is not None,
    )


def build_engine_head(
    head: RequestHead, length: int, own_lines: bytes, *, plain: bool = False
) -> bytes:
    """Return the head for an engine: always with the body's length, never for chunks.

    Args:
        head: Head of the client's request.
        length: Length of the body that the engine gets.
        own_lines: Lines ``Host`` and, where the engine has a key, ``Authorization``.
        plain: Ask for a response that is not compressed.
    """
    before, start = head.sent
    if before is not own_lines or plain:
        lines = _without_coding(head.lines) if plain else head.lines
        # Not every engine answers HEAD: the exchange takes the head of the response to GET.
        method = b"GET" if head.method == b"HEAD" else head.method
        start = b"%b %b HTTP/1.1\r\n%b%b" % (method, head.target, own_lines, lines)
        if not plain:
            head.sent = own_lines, start
    if length or head.method in _WITH_BODY:
        return b"%bContent-Length: %d\r\n\r\n" % (start, length)
    if head.websocket:
        return start + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    return start + b"\r\n"


def find_origin(raw: bytes) -> bytes | None:
    """Return the header ``Origin`` of a head that was refused or is incomplete; None: absent, or not one."""
    found = _ORIGIN_LINE.findall(raw)
    return found[0] if len(found) == 1 else None


def may_begin_head(raw: bytes) -> bool:
    """Tell whether these bytes can begin a head; a cheap test, True in doubt."""
    return raw[:1].isupper() and raw.count(b"\n") == raw.count(b"\r\n") and b"\0" not in raw


def _is_old(method: bytes, target: bytes, raw: bytes) -> bool | None:
    """Tell whether the request is HTTP/1.0; None: the first line is not what the parser saw."""
    line = b"%b %b HTTP/1." % (method, target)
    if raw.startswith(line):
        rest = raw[len(line) : len(line) + 3]
        if rest == b"1\r\n":
            return False
        if rest == b"0\r\n":
            return True
    return None


def _has_folded_line(raw: bytes) -> bool:
    """Tell whether a line is folded, or ends with anything but CR LF."""
    ends = raw.count(b"\r\n")
    return raw.count(b"\n") != ends or raw.count(b"\r") != ends or b"\n " in raw or b"\n\t" in raw


def _length(coding: bytes | None, length: bytes | None, *, old: bool) -> int | Refusal:
    """Return the length of the body; -1: sent in chunks."""
    if coding is not None:
        return _check_coding(coding, length, old=old) or -1
    if length is None:
        return 0
    digits = length.strip(b" \t")
    if not digits.isdigit() or len(digits) > _DIGITS:
        return bad_request("Content-Length is no number")
    return int(digits)


def _check_coding(coding: bytes, length: bytes | None, *, old: bool) -> Refusal | None:
    if old:
        return bad_request("HTTP/1.0 knows no Transfer-Encoding")
    if length is not None:
        return bad_request("Transfer-Encoding and Content-Length exclude each other")
    if coding.strip(b" \t").lower() != b"chunked":
        return bad_request("the only Transfer-Encoding is chunked")
    return None


def _check_host(host: bytes | None, *, old: bool) -> Refusal | None:
    if host is None:
        return None if old else bad_request("there is no header Host")
    if _HOST.fullmatch(host.strip(b" \t")) is None:
        return bad_request("the header Host is malformed")
    return None


def _origin_form(method: bytes, target: bytes, host: bytes | None) -> bytes | Refusal:
    """Return the path and query of a target, which may be an absolute URI (RFC 9112, 3.2)."""
    if _TARGET.fullmatch(target) is not None or (target == b"*" and method == b"OPTIONS"):
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return bad_request("the request's target is malformed")
    authority, rest = absolute.groups()
    if host is not None and authority.lower() != host.strip(b" \t").lower():
        return refusals.OTHER_HOST_IN_TARGET
    found: bytes = rest if rest.startswith(b"/") else b"/" + rest
    return found if _TARGET.fullmatch(found) else bad_request("the request's target is malformed")


def _check_supported(seen: dict[bytes, bytes], *, old: bool) -> Refusal | None:
    """Refuse well-formed headers that ask for features that the gateway does not have."""
    if _coding(seen) not in CODINGS:
        return refusals.COMPRESSED_BODY
    media_type = seen.get(b"content-type", b"").lower()
    if not media_type.isascii():
        return bad_request("the header Content-Type is malformed")
    if b"charset" in media_type and not _is_utf8(media_type):
        return refusals.UNSUPPORTED_CHARSET
    if not old and seen.get(b"expect", _CONTINUE).strip(b" \t").lower() != _CONTINUE:
        return refusals.EXPECTATION_FAILED
    return None


def _check_upgrade(method: bytes, length: int, offered: set[bytes]) -> bool | Refusal:
    """Tell whether a websocket begins; False: nothing is offered that would have to be refused."""
    if offered != {b"websocket"}:
        is_ignorable = all(map(_IGNORABLE.fullmatch, offered))
        return False if is_ignorable else refusals.UPGRADE_NOT_SUPPORTED
    if length or method != b"GET":
        return bad_request("a websocket begins with GET and has no body")
    return True


def _preflight(method: bytes, seen: dict[bytes, bytes]) -> PreflightRequest | None:
    if (
        method != b"OPTIONS"
        or b"origin" not in seen
        or b"access-control-request-method" not in seen
    ):
        return None
    return PreflightRequest(
        seen.get(b"access-control-request-headers", b""),
        seen.get(b"access-control-request-private-network", b"").strip(b" \t") == b"true",
    )


def _model_of_query(target: bytes) -> str | None:
    """Return the first model that a query names, as llama-server's ``/props?model=`` does."""
    query = target.partition(b"?")[2]
    named = (part for part in query.split(b"&") if part.startswith(b"model="))
    value = next(named, b"")[len(b"model=") :]
    return unquote_plus(value.decode("ascii")) or None


def _coding(seen: Mapping[bytes, bytes]) -> bytes:
    return seen.get(b"content-encoding", b"").strip(b" \t").lower()


def _is_utf8(media_type: bytes) -> bool:
    """Tell whether every parameter that a parser may take for the charset names UTF-8.

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
    """Return the tokens of a list, in lower case."""
    return {token.strip(b" \t").lower() for token in value.split(b",")}


def _without(lines: list[bytes], tokens: set[bytes]) -> list[bytes]:
    """Return lines without the headers that `Connection` names; each line is four items."""
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


# --- parser -------------------------------------------------------------------------------

_OTHER_LINES: Final = 2
"""Lines of a head that are no headers: the first and the last one."""


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


# --- cache --------------------------------------------------------------------------------

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,15})\r\n")
_NAME: Final = b"content-length"
_MOST_DIGITS: Final = 15


class CachedHead:
    """Bytes of a head around the digits of its length."""

    __slots__ = ("_after", "_after_size", "_before", "_most", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._start = len(before)
        """Position where the digits begin."""
        self._most = self._start + _MOST_DIGITS + 1
        """Position where the digits have ended."""
        self._after = after
        self._after_size = len(after)

    @classmethod
    def of(cls, raw: bytes) -> Self | None:
        """Return the cached form of a head; None: its length is not in the usual place.

        Args:
            raw: Head of a message without a body, or with a length; with its last empty line.
        """
        found = _LENGTH.search(raw)
        if raw.lower().count(_NAME) != (found is not None):
            return None
        if found is None:
            return cls(raw, b"")
        return cls(raw[: found.start(1)], raw[found.end(1) :])

    def match(self, data: bytes) -> tuple[int, int] | None:
        """Return the length of the body, and of the head, if data begins with it; else None."""
        if not data.startswith(self._before):
            return None
        start = self._start
        if not self._after_size:
            return 0, start
        end = data.find(b"\r", start, self._most)
        digits = data[start:end]
        if digits.isdigit() and data.startswith(self._after, end):
            return int(digits), end + self._after_size
        return None
