"""Guards of the web process: which connections and requests are let in, and as whom they may act.

Connections, on which clients are let in (`OpenAddresses`):

===================================  ===========================================================
a socket at                          is served
===================================  ===========================================================
an address of loopback               always
an address that the settings name    while the supervisor says that somebody can act by a token
any other address or port            never: a drop-in that is not apply's, or no longer
===================================  ===========================================================

A connection that is not let in is closed before a byte of it is read. Which requests are answered on one that
is, `ReaderGuard` decides: each needs a token of its own.

Requests, in front of every route (`RequestGuard`):

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

Readers on other machines, who get nothing without an operator's token (`ReaderGuard`):

===============================================  ====================================================
a request                                        gets
===============================================  ====================================================
by loopback                                      its route's answer
for the form to sign in, or a file of the page   the same: neither tells anything of the box
for a button of a message                        the same: its address has a token of its own
with the bearer token of an operator             the same
with the cookie of somebody who has signed in    the same, while the token is accepted
for the page or by its forms, with neither       303 to the form to sign in
else                                             401; 429 after many wrong secrets of the token's id
===============================================  ====================================================

A response that goes on, such as a stream, ends when its token is not accepted any more. Routes that change
something ask for the operator themselves, wherever a request comes from.

Operators of requests of the API, by a bearer token and by nothing else (`RequestOperators`):

====================================  ==========================================================
a request                             acts as
====================================  ==========================================================
``Authorization: Bearer TOKEN``       the token's operator
with a token of nobody                nobody (401)
with one of many wrong secrets of an id nobody (429)
with a cookie, or without anything    nobody (401): sessions are for the forms of the page
====================================  ==========================================================

A token in an address is never looked at: addresses are kept in histories and logs.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.model.errors import ApplianceError, BusyError, PermissionDeniedError
from appliance.model.gateway import is_loopback
from appliance.model.names import WEB_SOCKET_UNIT
from appliance.model.operators import TokenOperator
from appliance.model.web_addresses import WebAddresses
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.actions import BoxActions
from appliance.web.api.buttons import BUTTONS
from appliance.web.page.routes import ASK, FORMS, LOGIN, LOGOUT, PAGE, SignedIn
from appliance.web.problem import (
    ProblemDocument,
    ProblemError,
    problem_of,
    problem_of_error,
    problem_response,
)

_log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 5.0

Endpoint = Sequence[Any] | None
"""Address and port of one end of a connection, as ASGI and uvicorn tell it; None: not known."""


def is_of_this_machine(server: Endpoint, client: Endpoint) -> bool:
    """Tell whether both ends of a connection are loopback addresses, which no other machine can have.

    A client's alone would not do: packets may be forwarded to 127.0.0.1 (route_localnet, ip-sysctl).
    """
    return all(end is not None and is_loopback(str(end[0])) for end in (server, client))


class OpenAddresses:
    """Addresses that are open now.

    Args:
        named: Addresses of the settings.
        bound: Address and port of each listening socket.
        is_any_token_usable: Asks whether somebody can act by a token. Raises `ApplianceError`.
    """

    def __init__(
        self,
        named: WebAddresses,
        bound: Iterable[tuple[str, int]],
        is_any_token_usable: Callable[[], Awaitable[bool]],
    ) -> None:
        bound = frozenset(bound)
        strangers = frozenset(named.strangers(bound))
        self._beyond = frozenset(one for one in bound - strangers if not is_loopback(one[0]))
        self._is_any_token_usable = is_any_token_usable
        self._is_open: bool | None = None
        """Whether `_beyond` is open; None: nobody has said yet, so it is not."""
        for address, port in sorted(strangers):
            _log.error(
                "%s listens on %s port %d, which the settings do not name, so clients there are not let in:"
                " list it in web.listen, then sudo appliance apply",
                WEB_SOCKET_UNIT,
                address,
                port,
            )

    def admits(self, address: str, port: int) -> bool:
        """Tell whether clients of a listening socket are let in now."""
        if is_loopback(address):
            return True
        return self._is_open is True and (address, port) in self._beyond

    async def follow(self) -> None:
        """Ask about tokens again and again; return at once where no address depends on them."""
        while self._beyond:
            await asyncio.sleep(ASK_EVERY_S)
            await self.ask()

    async def ask(self) -> None:
        """Ask once. Without an answer everything stays as it is: then nobody's token is accepted either."""
        if not self._beyond:
            return
        try:
            is_open = await self._is_any_token_usable()
        except ApplianceError as error:
            _log.debug("%s", error)
            return
        if is_open is not self._is_open:
            self._is_open = is_open
            _log.info("%s", _OPEN if is_open else _CLOSED)


_OPEN: Final = "open to other machines, for requests with an operator's token"
_CLOSED: Final = "closed to other machines: no operator has a token: appliance token add NAME"


MOST_TOKEN_CHARACTERS: Final = 256
_CHALLENGE: Final = 'Bearer realm="appliance"'
_NO_TOKEN: Final = "this wants an operator's token"  # noqa: S105 - a sentence
_HINT: Final = "appliance token add NAME; then send Authorization: Bearer TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOperator:
    """Operator that a request acts as, and the token that proves it to the daemons."""

    operator: TokenOperator
    token: str = field(repr=False)


class RequestOperators:
    """Finder of the operators of requests.

    Args:
        actions: Know whose token it is.
    """

    def __init__(self, actions: BoxActions) -> None:
        self._actions = actions

    async def of_request(self, request: Request) -> RequestOperator:
        """Return the operator of a request of the API.

        Raises:
            ProblemError: nobody, so it is refused: 401 or 429.
            ApplianceError: the supervisor does not answer.
        """
        given = request.headers.getlist("authorization")
        scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized(_NO_TOKEN)
        return await self.of_token(token)

    async def of_token(self, token: str) -> RequestOperator:
        """Return the operator for whom a token stands. Raises as `of_request`."""
        if len(token) > MOST_TOKEN_CHARACTERS:
            raise _unauthorized("the token is not known", error=True)
        try:
            operator = await self._actions.operator_of(token)
        except PermissionDeniedError as error:
            raise _unauthorized(str(error).partition(": ")[0], error=True) from None
        except BusyError as error:
            raise ProblemError(429, str(error), headers={"retry-after": "60"}) from None
        return RequestOperator(operator=operator, token=token)


async def operator_of_request(request: Request) -> RequestOperator:
    """Return the operator of a request, by the finder of the application. Raises as `of_request`."""
    operators: RequestOperators = request.app.state.operators
    return await operators.of_request(request)


def _unauthorized(detail: str, *, error: bool = False) -> ProblemError:
    challenge = f'{_CHALLENGE}, error="invalid_token"' if error else _CHALLENGE
    return ProblemError(401, detail, hint=_HINT, headers={"www-authenticate": challenge})


CHECK_EVERY_S: Final = 30.0
"""Time between two checks of the token of a response that goes on."""
_OPEN_PATHS: Final = ("/static/", f"{BUTTONS}/")
"""Begins of paths that need no token."""


class ReaderGuard:
    """ASGI application in front of another one.

    Args:
        application: Answers what is let through.
        operators: Know whose a request is.
        signed_in: Sessions of the page.
    """

    def __init__(
        self, application: ASGIApp, *, operators: RequestOperators, signed_in: SignedIn
    ) -> None:
        self._application = application
        self._operators = operators
        self._signed_in = signed_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or _is_open(scope):
            await self._application(scope, receive, send)
            return
        request = Request(scope)
        try:
            await self._check(request)
        except ProblemError as error:
            if error.problem.status == HTTPStatus.UNAUTHORIZED and _is_of_page(scope["path"]):
                response: Response = RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
            else:
                response = problem_response(error.problem, error.headers)
            await response(scope, receive, send)
        except ApplianceError as error:
            await problem_response(problem_of_error(error))(scope, receive, send)
        else:
            await self._application(scope, receive, self._checked(request, send))

    async def _check(self, request: Request) -> None:
        """Check that somebody may read. Raises `ProblemError`, or another `ApplianceError`: not known now."""
        session = self._signed_in.session(request)
        if session is None:
            await self._operators.of_request(request)
        else:
            await self._operators.of_token(session.token)

    def _checked(self, request: Request, send: Send) -> Send:
        """Return a sender that ends the response once its token is not accepted any more."""
        loop = asyncio.get_running_loop()
        checked_s, is_over = loop.time(), False

        async def send_checked(message: Message) -> None:
            nonlocal checked_s, is_over
            if is_over:
                return
            if loop.time() - checked_s >= CHECK_EVERY_S:
                checked_s = loop.time()
                try:
                    await self._check(request)
                except (ProblemError, PermissionDeniedError):
                    is_over = True
                    message = {"type": "http.response.body", "body": b"", "more_body": False}
                except ApplianceError:
                    pass  # The supervisor is away, and the stream is what tells so.
            await send(message)

        return send_checked


def _is_open(scope: Scope) -> bool:
    """Tell whether a request needs no token to read."""
    if is_of_this_machine(scope.get("server"), scope.get("client")):
        return True
    path: str = scope["path"]
    return path == LOGIN or path.startswith(_OPEN_PATHS)


def _is_of_page(path: str) -> bool:
    return path in {PAGE, ASK, LOGOUT} or path.startswith(FORMS)


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
