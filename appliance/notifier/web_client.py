"""HTTP client for addresses with secrets: one request, a hard deadline, and errors without an address.

The standard library's client in a thread of its own. A thread that hangs, as in the resolver of names, is
left behind: it ends with the process, which waits for none.
"""

import asyncio
import contextlib
import email.utils
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from appliance.system.response_body import read_body

DEADLINE_S: Final = 20.0
_STEP_S: Final = 10.0
"""Time for a connection, and for each read of the answer."""
_MOST_ANSWER_BYTES: Final = 64 << 10
_MOST_RETRY_AFTER_S: Final = 86_400.0


class WebError(Exception):
    """Request without an answer; `str()` is a phrase that shows neither address nor header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """Request to another machine."""

    method: str
    host: str = field(repr=False)
    port: int
    is_encrypted: bool
    path: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """Answer to a request; redirects are answers."""

    status: int
    body: bytes = field(repr=False)
    """The beginning of the body."""
    retry_after_s: float | None = None
    """Seconds for which the server asked to be left alone; None: it asked for none."""


async def fetch(request: WebRequest, *, deadline_s: float = DEADLINE_S) -> WebAnswer:
    """Return the answer to a request. Raises `WebError`."""
    try:
        connection = _connection(request)
    except (http.client.HTTPException, OSError) as error:  # http.client shows the host
        trouble = _phrase(error)
    else:
        return await _fetch(connection, request, deadline_s)
    raise WebError(trouble)


async def _fetch(
    connection: http.client.HTTPConnection, request: WebRequest, deadline_s: float
) -> WebAnswer:
    """Return the answer to a request on a connection that is not open yet. Raises `WebError`."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[WebAnswer] = loop.create_future()
    is_over = threading.Event()

    def settle(answer: WebAnswer | None, trouble: str) -> None:
        if answered.done():
            return
        if answer is None:
            answered.set_exception(WebError(trouble))
        else:
            answered.set_result(answer)

    def run() -> None:
        answer, trouble = None, ""
        try:
            answer = _exchange(connection, request, is_over)
        except Exception as error:  # noqa: BLE001 - whatever it is, the text must not be its own
            trouble = _phrase(error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, answer, trouble)

    threading.Thread(target=run, daemon=True, name="web request").start()
    try:
        async with asyncio.timeout(deadline_s):
            return await answered
    except TimeoutError:
        raise WebError(f"no answer within {deadline_s:.0f} s") from None
    finally:
        is_over.set()
        _abort(connection)


def _connection(request: WebRequest) -> http.client.HTTPConnection:
    if request.is_encrypted:
        return http.client.HTTPSConnection(
            request.host, request.port, timeout=_STEP_S, context=_tls()
        )
    return http.client.HTTPConnection(request.host, request.port, timeout=_STEP_S)


@cache
def _tls() -> ssl.SSLContext:
    """Return the context with the machine's certificate authorities, which takes 10 ms to make."""
    return ssl.create_default_context()


def _exchange(
    connection: http.client.HTTPConnection, request: WebRequest, is_over: threading.Event
) -> WebAnswer:
    try:
        connection.connect()
        if is_over.is_set():  # it is tried again, and would be there twice
            raise TimeoutError
        connection.request(request.method, request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        return WebAnswer(
            status=response.status,
            body=read_body(response, _MOST_ANSWER_BYTES),
            retry_after_s=retry_after(response.headers.get("Retry-After"), time.time()),
        )
    finally:
        connection.close()


def _abort(connection: http.client.HTTPConnection) -> None:
    """End what a thread may still wait for."""
    open_socket: socket.socket | None = connection.sock
    if open_socket is not None:
        with contextlib.suppress(OSError):
            open_socket.shutdown(socket.SHUT_RDWR)


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
    (socket.gaierror, "the name of its server is not known now"),
    (ConnectionRefusedError, "its server refuses connections"),
    (ssl.SSLCertVerificationError, "the certificate of its server is not trusted here"),
    (ssl.SSLError, "there is no TLS with its server"),
    (TimeoutError, "its server does not answer in time"),
    (ConnectionError, "its server has closed the connection"),
    (http.client.HTTPException, "its server does not answer in HTTP"),
)


def _phrase(error: Exception) -> str:
    for kind, phrase in _PHRASES:
        if isinstance(error, kind):
            return phrase
    if isinstance(error, OSError) and error.strerror:
        return f"its server is not reached: {error.strerror}"
    return f"its server is not reached ({type(error).__name__})"
