"""Requests to addresses with secrets: a hard deadline, and errors without an address.

Names are looked up in threads that no end of the process waits for, and the addresses tried one after the other.
httpx takes 65 ms to import, so the first request imports it: boxes without ntfy and heartbeat never do.
"""

import asyncio
import email.utils
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from appliance.system.name_lookup import NameLookup, NameLookupError

DEADLINE_S: Final = 20.0
_STEP_S: Final = 10.0
"""Time for a connection, and for each read of the answer."""
_MOST_ANSWER_BYTES: Final = 64 << 10
_MOST_RETRY_AFTER_S: Final = 86_400.0
_NO_HTTP: Final = "its server does not answer in HTTP"

_lookup = NameLookup()


class WebError(Exception):
    """Request without an answer; `str()` is a phrase that shows neither address nor header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """Answer to a request; redirects are answers."""

    status: int
    body: bytes = field(repr=False)
    """The beginning of the body."""
    retry_after_s: float | None = None
    """Seconds after which the server wants the next request; None: it names none."""


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    deadline_s: float = DEADLINE_S,
) -> WebAnswer:
    """Return the answer to a request. Raises `WebError`."""
    try:
        async with asyncio.timeout(deadline_s):
            try:
                return await _exchanged(method, url, headers or {}, body)
            except Exception as error:  # noqa: BLE001 - whatever it is, the text must not be its own
                trouble = _phrase(error)
    except TimeoutError:
        trouble = f"no answer within {deadline_s:.0f} s"
    raise WebError(trouble)


async def _exchanged(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None
) -> WebAnswer:
    """Send a request to the first address of its host that can be connected.

    Raises:
        NameLookupError: the host has no address.
        OSError: there is no connection, or no response.
        WebError: the response is no HTTP.
        ValueError: the URL is none.
    """
    from appliance.system.http_client import HttpError, exchange, open_client  # noqa: PLC0415

    parts = urlsplit(url)
    host, is_encrypted = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_encrypted else 80)
    failure: Exception = WebError(_NO_HTTP)
    for address in await _lookup.addresses(host, port):
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            async with open_client(tls=_tls() if is_encrypted else None, step_s=_STEP_S) as client:
                answer = await exchange(
                    client,
                    method,
                    parts._replace(netloc=place, path=parts.path or "/", fragment="").geturl(),
                    most_bytes=_MOST_ANSWER_BYTES,
                    headers={"Host": parts.netloc.rpartition("@")[2], **headers},
                    content=body,
                    server_name=host,
                )
        except HttpError as error:
            failure = error.cause or WebError(_NO_HTTP)
            if error.connected:
                break  # the request may have arrived
        else:
            return WebAnswer(
                status=answer.status,
                body=answer.body,
                retry_after_s=retry_after(answer.headers.get("Retry-After"), time.time()),
            )
    raise failure


@cache
def _tls() -> ssl.SSLContext:
    """Return the context with the machine's certificate authorities, which takes 10 ms to make."""
    return ssl.create_default_context()


def retry_after(text: str | None, now_unix_s: float) -> float | None:
    """Return the seconds of a Retry-After header, at most a day; None: no such header, or unreadable."""
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < len(str(int(_MOST_RETRY_AFTER_S))) + 1:
        return min(float(text), _MOST_RETRY_AFTER_S)
    try:
        at_unix_s = email.utils.parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(at_unix_s - now_unix_s, 0.0), _MOST_RETRY_AFTER_S)


_PHRASES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (NameLookupError, "the name of its server is not known now"),
    (ConnectionRefusedError, "its server refuses connections"),
    (ssl.SSLCertVerificationError, "the certificate of its server is not trusted here"),
    (ssl.SSLError, "there is no TLS with its server"),
    (TimeoutError, "its server does not answer in time"),
    (ConnectionError, "its server has closed the connection"),
)


def _phrase(error: Exception) -> str:
    if isinstance(error, WebError):
        return str(error)
    for kind, phrase in _PHRASES:
        if isinstance(error, kind):
            return phrase
    if isinstance(error, OSError) and error.strerror:
        return f"its server is not reached: {error.strerror}"
    return f"its server is not reached ({type(error).__name__})"
