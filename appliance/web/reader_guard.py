"""Guard of what other machines may read: nothing without an operator's token.

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
"""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.model.errors import ApplianceError, PermissionDeniedError
from appliance.web.acting.request_operator import RequestOperators
from appliance.web.api.buttons import BUTTONS
from appliance.web.open_addresses import is_of_this_machine
from appliance.web.page.form_routes import FORMS, LOGIN, LOGOUT, PAGE, SignedIn
from appliance.web.page.prompt_routes import ASK
from appliance.web.problem import ProblemError, problem_of_error, problem_response

CHECK_EVERY_S: Final = 30.0
"""Time between two checks of the token of a response that goes on."""
_OPEN: Final = ("/static/", f"{BUTTONS}/")
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
    return path == LOGIN or path.startswith(_OPEN)


def _is_of_page(path: str) -> bool:
    return path in {PAGE, ASK, LOGOUT} or path.startswith(FORMS)
