"""Guard in front of every route: hosts, origins, sizes, times, and the headers of each response.

=================================  =========================================================
a request                          gets
=================================  =========================================================
with a strange or no ``Host``      403: a web page elsewhere may have made a name resolve here
that changes, from another page    403
with a body above `MOST_BODY`      413
whose body does not come in time   408
while the process is off           503
that fails by a fault of our own   500, and the journal has the fault
by HEAD                            the head of its route's answer to GET, also of a stream
else                               its route's answer
=================================  =========================================================

Each has the headers of `SECURITY_HEADERS`, an error of a route too; none has a header of CORS.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.problem import ProblemDocument, problem_of, problem_response

_log = logging.getLogger(__name__)

MOST_BODY: Final = 64 << 10
"""Bytes of a body: the longest request to a socket of ours."""
BODY_WITHIN_S: Final = 10.0
SAFE: Final = frozenset({"GET", "HEAD"})
"""Methods that change nothing here."""
_CONTENT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SECURITY_HEADERS: Final = {
    "content-security-policy": _CONTENT,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: a browser then sends the origin "null" with the page's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Headers of every response; a route may set its own `cache-control`."""
_STRANGE_HOST: Final = problem_of(
    403, "this host name is none of this machine", "web.names in appliance.toml lists further names"
)
_STRANGE_PAGE: Final = problem_of(
    403, "a page of another origin may change nothing here", "use the page of this box"
)
_TOO_LARGE: Final = problem_of(413, f"a body may have {MOST_BODY >> 10} KiB", "send less")
_TOO_SLOW: Final = problem_of(408, f"the body did not come within {BODY_WITHIN_S:.0f} s", "")
_FAULT: Final = problem_of(500, "this is a fault of the appliance", "journalctl -u appliance-web")
_OFF: Final = problem_of(503, "the status API is off", "web.enabled in appliance.toml")


class _HeadSentError(Exception):
    """End of the answer to HEAD, raised by its sender once the head is sent: nothing of a body is made."""


class RequestGuard:
    """ASGI application in front of another one.

    Args:
        application: Answers what is let through.
        policy: Of hosts and origins.
        enabled: Whether anything is let through.
    """

    def __init__(
        self, application: ASGIApp, *, policy: SameOriginPolicy, enabled: bool = True
    ) -> None:
        self._application = application
        self._policy = policy
        self._enabled = enabled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        is_begun, is_head = False, scope["method"] == "HEAD"

        async def send_guarded(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)
            if is_head and message["type"] == "http.response.start":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadSentError

        with contextlib.suppress(_HeadSentError):
            await self._answer(scope, receive, send_guarded, lambda: is_begun)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, is_begun: Callable[[], bool]
    ) -> None:
        problem = self._refusal(scope)
        if problem is None and scope["method"] not in SAFE:
            body = await _body(receive)
            if isinstance(body, ProblemDocument):
                problem = body
            else:
                receive = _Replay(body, receive)
        if problem is not None:
            await problem_response(problem)(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # Routes need not know of it, so that none can forget it.
            scope = {**scope, "method": "GET"}
        try:
            await self._application(scope, receive, send)
        except _HeadSentError:
            raise
        except Exception:
            # The route, not the path: that of a button holds its token.
            route = getattr(scope.get("route"), "path", "no route")
            _log.exception("%s of %s failed", scope["method"], route)
            if is_begun():
                raise
            await problem_response(_FAULT)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ProblemDocument | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._policy.knows(hosts[0]):
            return _STRANGE_HOST
        if scope["method"] not in SAFE and not self._policy.may_change(
            hosts[0], _joined(headers.getlist("origin")), _joined(headers.getlist("sec-fetch-site"))
        ):
            return _STRANGE_PAGE
        length = headers.get("content-length", "0")
        # The server has checked that it is a number.
        if len(length) > len(str(MOST_BODY)) or int(length) > MOST_BODY:
            return _TOO_LARGE
        return None if self._enabled else _OFF


class _Replay:
    """Receiver that gives a body which was read already, then what comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _body(receive: Receive) -> bytes | ProblemDocument:
    """Return the body of a request, or why it is not taken."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BODY:
                    return _TOO_LARGE
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return _TOO_SLOW


def _joined(values: Iterable[str]) -> str | None:
    """Return the value of a header; several are one that nothing is equal to; None: absent."""
    return ", ".join(values) or None
