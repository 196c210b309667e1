"""Routes of the page's forms: signing in and out, and what an operator may ask for.

======================================  ==================================================
a form                                  leads to
======================================  ==================================================
of a browser that has not signed in     the form to sign in
without the session's field             403
that names no action, or a faulty one   the page, with a notice
else                                    the page, with a notice where it was refused
======================================  ==================================================

A form changes at most one thing, and answers 303, so that a reload of the page repeats nothing.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from appliance.model.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    PermissionDeniedError,
)
from appliance.model.names import is_request_id
from appliance.model.wording import printable
from appliance.model.words import Mark
from appliance.web.actions import BoxActions
from appliance.web.page.page_renderer import OperatorView, PageRenderer
from appliance.web.page.page_sessions import LASTS_S, Session, Sessions
from appliance.wire.alert_requests import AckRequest, SilenceRequest
from appliance.wire.control_requests import (
    CancelRequest,
    CutRequest,
    MarkRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
)
from appliance.wire.conversation import ActingRequest, ResultEvent

COOKIE: Final = "appliance-session"
PAGE: Final = "/"
LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
FORMS: Final = "/do/"
"""Begin of the paths of forms that ask for something."""
_MOST_FIELDS: Final = 8
_LONGEST_NUMBER: Final = 12
_LONGEST_NOTICE: Final = 300
_REASON: Final = "from the page"

Fields = Mapping[str, str]


class SignedIn:
    """Sessions as a browser's cookie names them."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.sessions = Sessions()
        self.now_s = now_s

    def session(self, request: Request) -> Session | None:
        """Return the session of a request; None: the browser has not signed in."""
        return self.sessions.find(request.cookies.get(COOKIE, ""), self.now_s())


def operator_view(session: Session | None, *, ask_path: str = "") -> OperatorView:
    """Return who looks at the page; `ask_path`: address of the form for a prompt, or empty."""
    if session is None:
        return OperatorView(login_path=LOGIN)
    return OperatorView(name=session.name, csrf=session.csrf, logout_path=LOGOUT, ask_path=ask_path)


def form_router(actions: BoxActions, signed_in: SignedIn, renderer: PageRenderer) -> APIRouter:
    """Return the router of the forms.

    Args:
        actions: Carry requests out.
        signed_in: Has the sessions.
        renderer: Renders the form to sign in.
    """
    router = APIRouter(include_in_schema=False)

    @router.get(LOGIN)
    async def login_form() -> HTMLResponse:
        return HTMLResponse(renderer.login(""))

    @router.post(LOGIN)
    async def login(request: Request) -> Response:
        token = (await _fields(request)).get("token", "").strip()
        try:
            name = str(await actions.operator_of(token))
        except (PermissionDeniedError, BusyError, BadRequestError) as error:
            return HTMLResponse(renderer.login(_notice(error)), HTTPStatus.FORBIDDEN)
        session_id = signed_in.sessions.begin(token, name, signed_in.now_s())
        answer = _to_page()
        answer.set_cookie(
            COOKIE, session_id, max_age=int(LASTS_S), path="/", httponly=True, samesite="strict"
        )
        return answer

    @router.post(LOGOUT)
    async def logout(request: Request) -> Response:
        session, _ = await own_form(request, signed_in)
        if session is not None:
            signed_in.sessions.end(request.cookies.get(COOKIE, ""))
        answer = _to_page()
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    @router.post(FORMS + "{action}")
    async def act(action: str, request: Request) -> Response:
        session, fields = await own_form(request, signed_in)
        if session is None:
            return RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
        try:
            await _carry_out(action, fields, session.token, actions)
        except ApplianceError as error:
            session.notice = _notice(error)
        return _to_page()

    return router


async def _carry_out(action: str, fields: Fields, token: str, actions: BoxActions) -> None:
    """Carry out the request of a form. Raises `ApplianceError`."""
    profile, alert = fields.get("profile", ""), fields.get("alert", "")
    work: Awaitable[object]
    match action, fields.get("action", ""):
        case "profile", "switch":
            work = actions.operate(ActingRequest(token, SwitchRequest(profile)))
        case "profile", "start" if profile:
            work = actions.operate(ActingRequest(token, StartRequest((profile,))))
        case "profile", "stop" if profile:
            work = actions.operate(ActingRequest(token, StopRequest((profile,))))
        case "mark", _:
            work = actions.operate(
                ActingRequest(token, MarkRequest(profile, _mark(fields.get("mark", ""))))
            )
        case "cancel", _:
            work = actions.operate(
                ActingRequest(token, CancelRequest(_number(fields.get("operation", ""))))
            )
        case "cut", _:
            work = actions.operate(
                ActingRequest(token, CutRequest(_request_id(fields.get("request", ""))))
            )
        case "ack", _:
            work = actions.ask_agent(ActingRequest(token, AckRequest(alert)))
        case "silence", _:
            work = actions.ask_agent(ActingRequest(token, SilenceRequest(alert, reason=_REASON)))
        case _:
            raise BadRequestError("the form asks for nothing that is known")
    told = await work
    if isinstance(told, ResultEvent) and told.exit:
        raise BadRequestError(told.message)


def _request_id(text: str) -> str:
    if not is_request_id(text):
        raise BadRequestError("the form names no request")
    return text


def _mark(text: str) -> Mark:
    try:
        return Mark(text)
    except ValueError:
        raise BadRequestError("the form names no mark") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise BadRequestError("the form names no operation")
    return int(text)


async def own_form(request: Request, signed_in: SignedIn) -> tuple[Session | None, Fields]:
    """Return the session and the fields of a form. Raises `HTTPException` where it is not the session's."""
    fields, session = await _fields(request), signed_in.session(request)
    if session is not None and not session.owns(fields.get("csrf", "")):
        raise HTTPException(HTTPStatus.FORBIDDEN)
    return session, fields


async def _fields(request: Request) -> Fields:
    """Return the fields of a form; the guard has bounded its size. Raises `HTTPException`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    try:
        text = (await request.body()).decode("ascii")
        return dict(parse_qsl(text, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY) from error


def _notice(error: ApplianceError) -> str:
    return printable(str(error)[:_LONGEST_NOTICE])


def _to_page() -> RedirectResponse:
    return RedirectResponse(PAGE, HTTPStatus.SEE_OTHER)
