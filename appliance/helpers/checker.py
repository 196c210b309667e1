"""Checker: finds out by one GET whether a service is up, on other machines too.

It holds no credential and no state: ``python -m appliance.helpers.checker`` answers on check.sock
(`appliance.wire.helpers`), and leaves when no question comes any more.

Redirects are not followed: a service that only points elsewhere is not up, and an answer must not choose
an address that is asked. Certificates are verified by the authorities of the box. Of an answer the status
line alone is looked at, other than a library for HTTP would (docs/decisions/080); up to `_MOST_BYTES` of the
rest are read and dropped, so that the other side can end in good order.
"""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from appliance import __version__
from appliance.model.errors import BadRequestError
from appliance.model.names import CHECK_SOCKET_UNIT
from appliance.model.service_lines import CheckTally
from appliance.system.name_lookup import NameLookup, NameLookupError
from appliance.system.systemd.activation import serve_activated
from appliance.system.systemd.daemon import Readiness
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import CHECK, CheckEvent, CheckRequest, CheckResult
from appliance.wire.server import Peer

_MOST_BYTES: Final = 64 << 10
_MOST_URL: Final = 1024
_LONGEST_S: Final = 60.0
_REST_S: Final = 0.5
"""Time to read the rest of an answer."""
_PORTS: Final = {"http": 80, "https": 443}
_UP: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
_FINAL: Final = 200
"""Lowest status that is no interim one."""
_VERSIONS: Final = (b"HTTP/1.0 ", b"HTTP/1.1 ")
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})
"""Codes X509_V_ERR_… of openssl's x509_vfy.h."""
_CERTIFICATE: Final = "certificate not trusted"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Address to ask, and the request."""

    host: str
    port: int
    is_tls: bool
    request: bytes


class _NoHttpError(Exception):
    """Answer that is no HTTP."""


_PHRASES: Final[Sequence[tuple[type[Exception], str]]] = (
    (ssl.SSLError, "TLS failed"),
    (_NoHttpError, "no HTTP answer"),
    (ConnectionRefusedError, "connection refused"),
    (ConnectionError, "connection closed without an answer"),
)
"""Phrases of failures by their type, the first that fits."""


class UrlChecker:
    """Checker of URLs.

    Args:
        lookup: Of host names.
        tls: Context for TLS; None: that of the box, read when it is first needed.
    """

    def __init__(self, lookup: NameLookup, tls: ssl.SSLContext | None = None) -> None:
        self._lookup = lookup
        self._tls = tls

    async def check(self, url: str, timeout_s: float) -> CheckResult:
        """GET a URL once. Raises `BadRequestError` for what is no URL, or too long a time."""
        place = _parsed(url)
        if not 0 < timeout_s <= _LONGEST_S:
            raise BadRequestError(f"timeout_s is not between 0 and {_LONGEST_S:.0f}")
        began_s = asyncio.get_running_loop().time()
        try:
            with contextlib.ExitStack() as ending:
                async with asyncio.timeout_at(began_s + timeout_s):
                    reader, writer = await self._connected(place, began_s + timeout_s)
                    ending.callback(writer.transport.abort)
                    writer.write(place.request)
                    status = await _final_status(reader)
                ms = _ms_since(began_s)
                await _drop_rest(reader)
        except (OSError, NameLookupError, _NoHttpError) as error:
            return CheckResult(up=False, ms=_ms_since(began_s), detail=_phrase(error, timeout_s))
        detail = "" if status in _UP else f"status {status}"
        if status in _REDIRECTS:
            detail += ", a redirect"
        return CheckResult(up=status in _UP, status=status, ms=ms, detail=detail)

    async def _connected(
        self, place: _Place, deadline_s: float
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers; each has its share of the time."""
        tls = self._context() if place.is_tls else None
        addresses = await self._lookup.addresses(place.host, place.port)
        failure: OSError = TimeoutError()
        for left in range(len(addresses), 0, -1):
            now_s = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout((deadline_s - now_s) / left):
                    return await asyncio.open_connection(
                        addresses[-left],
                        place.port,
                        limit=_MOST_BYTES,
                        ssl=tls,
                        server_hostname=place.host if tls else None,
                    )
            except OSError as error:
                failure = error
        raise failure

    def _context(self) -> ssl.SSLContext:
        self._tls = self._tls or ssl.create_default_context()
        return self._tls


def _ms_since(began_s: float) -> int:
    return round((asyncio.get_running_loop().time() - began_s) * 1000)


def _parsed(url: str) -> _Place:
    """Return the place of a URL. Raises `BadRequestError`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise BadRequestError("url is no URL") from error
    usable = len(url) <= _MOST_URL and url.isascii() and url.isprintable() and " " not in url
    if not (usable and host and parts.scheme in _PORTS) or "@" in parts.netloc:
        raise BadRequestError("url is not an address of http or https without a user")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = (
        f"GET {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"User-Agent: appliance/{__version__}",
        "Accept: */*",
        "Connection: close",
    )
    return _Place(
        host=host,
        port=port,
        is_tls=parts.scheme == "https",
        request="\r\n".join((*head, "", "")).encode(),
    )


async def _final_status(reader: asyncio.StreamReader) -> int:
    """Return the status of the answer, after interim ones. Raises `_NoHttpError`."""
    left_bytes = _MOST_BYTES
    is_status_line = True
    while left_bytes > 0:
        line = await _line(reader)
        left_bytes -= len(line)
        if is_status_line and (status := _status_in(line)) >= _FINAL:
            return status
        is_status_line = not line.strip()
    raise _NoHttpError


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError as error:
        raise _NoHttpError from error
    if not line.endswith(b"\n"):
        raise ConnectionResetError
    return line


def _status_in(line: bytes) -> int:
    digits = line[9:12]
    if not line.startswith(_VERSIONS) or not digits.isdigit() or line[12:13].isdigit():
        raise _NoHttpError
    return int(digits)


async def _drop_rest(reader: asyncio.StreamReader) -> None:
    left_bytes = _MOST_BYTES
    with contextlib.suppress(OSError):
        async with asyncio.timeout(_REST_S):
            while left_bytes > 0 and (piece := await reader.read(left_bytes)):
                left_bytes -= len(piece)


def _phrase(error: Exception, timeout_s: float) -> str:
    """Return a failure in our own words."""
    if isinstance(error, TimeoutError):
        return f"no answer in {timeout_s:g} s"
    if isinstance(error, NameLookupError):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_phrase(error.verify_code)
    return next((text for kind, text in _PHRASES if isinstance(error, kind)), "not reachable")


def _certificate_phrase(code: int) -> str:
    if code == _EXPIRED:
        return "certificate expired"
    return "certificate of another name" if code in _OTHER_NAME else _CERTIFICATE


_checker = UrlChecker(NameLookup())
_tally = CheckTally()
_readiness = Readiness()


async def answer(request: CheckRequest, _: Peer) -> AsyncGenerator[CheckEvent, None]:
    """Yield the outcome of a check. Raises `BadRequestError`."""
    result = await _checker.check(request.url, request.timeout_s)
    _tally.count(request.url, is_up=result.up)
    _readiness.tell(_tally.line())
    yield ResultEvent(details=result.fields())


def main() -> int:
    """Run the checker; returns its exit status."""
    return serve_activated(CHECK_SOCKET_UNIT, CHECK, answer)


if __name__ == "__main__":
    sys.exit(main())
