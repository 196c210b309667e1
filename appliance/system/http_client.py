"""Client for single requests over HTTP, on httpx: to engines, and to servers of targets.

It knows no proxy of the environment, follows no redirect, decodes no body and reads none beyond a bound. Time
is the caller's. httpx logs the address of each request and httpcore its headers, and the notifier's are
secrets: so both log warnings alone.
"""

import logging
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, cast

import h11
import httpx

from appliance import __version__

HttpClient = httpx.AsyncClient

_HEADERS: Final = {"User-Agent": f"appliance/{__version__}", "Accept-Encoding": "identity"}

_TRUSTS_NO_SERVER: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Context without an authority, made once: each client wants one, and it takes 0.14 ms to make."""

for _library in ("httpx", "httpcore"):
    logging.getLogger(_library).setLevel(logging.WARNING)


class HttpError(Exception):
    """Request without a response; `str()` shows nothing of either.

    Args:
        cause: Error of the system or of TLS; None: the response is no HTTP.
        connected: Whether there was a connection, so that the request may have arrived.
    """

    def __init__(self, cause: OSError | None, *, connected: bool) -> None:
        super().__init__("it is not as HTTP says" if cause is None else str(cause))
        self.cause = cause
        self.connected = connected


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Response to a request; redirects are responses."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    """At most as much of the beginning as was wanted."""
    is_whole: bool
    """Whether the body is all of it."""


def open_client(
    *,
    socket_path: str | None = None,
    tls: ssl.SSLContext | None = None,
    step_s: float | None = None,
) -> HttpClient:
    """Return a client, which is closed as a context manager.

    Args:
        socket_path: Unix socket of the server; None: the address says where it is.
        tls: Context for addresses of https; None: no such server is trusted.
        step_s: Time for a connection, and for each read and write; None: without limit.
    """
    transport = httpx.AsyncHTTPTransport(
        verify=tls or _TRUSTS_NO_SERVER, trust_env=False, uds=socket_path
    )
    return HttpClient(transport=transport, trust_env=False, timeout=step_s, headers=_HEADERS)


async def exchange(
    client: HttpClient,
    method: str,
    url: str,
    *,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    server_name: str = "",
) -> HttpAnswer:
    """Return the response to a request, with at most `most_bytes` of its body. Raises `HttpError`.

    Args:
        client: Client that sends it.
        method: Method of HTTP.
        url: Address.
        most_bytes: Bytes of the body to read; the connection is closed where there are more.
        headers: Headers of the request besides the usual ones.
        content: Body of the request; None: none.
        server_name: Name that the server's certificate must have; empty: the host of the address.
    """
    extensions = {"sni_hostname": server_name} if server_name else None
    try:
        async with client.stream(
            method, url, headers=headers, content=content, extensions=extensions
        ) as response:
            body = bytearray()
            parts = cast("AsyncGenerator[bytes, None]", response.aiter_raw())
            async with aclosing(parts):
                async for part in parts:
                    body += part
                    if len(body) > most_bytes:
                        break
            return HttpAnswer(
                status=response.status_code,
                headers=response.headers,
                body=bytes(body[:most_bytes]),
                is_whole=len(body) <= most_bytes,
            )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        failure = _failure(error)
    raise failure  # without the library's error, whose text may quote the response


def _failure(error: Exception) -> HttpError:
    """Return an error of the library in the terms of the system."""
    connected = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        if not isinstance(cause, Exception):
            break
        causes.append(cause)
    if any(isinstance(cause, h11.ProtocolError) for cause in causes):
        return HttpError(None, connected=connected)
    if isinstance(error, httpx.TimeoutException):
        return HttpError(TimeoutError("timed out"), connected=connected)
    for cause in reversed(causes):
        if isinstance(cause, ssl.SSLError):
            return HttpError(cause, connected=connected)
        if isinstance(cause, OSError) and cause.errno is not None:  # asyncio's text has the address
            own = OSError(cause.errno, os.strerror(cause.errno))
            return HttpError(own, connected=connected)
    closed = ConnectionResetError("Remote end closed connection without response")
    return HttpError(closed if connected else None, connected=connected)
