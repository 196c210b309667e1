"""Routes of the page: the page and its files, its forms with the sessions of operators, and trials of prompts.

======================================  ==================================================
a form                                  leads to
======================================  ==================================================
of a browser that has not signed in     the form to sign in
without the session's field             403
that names no action, or a faulty one   the page, with a notice
else                                    the page, with a notice where it was refused
======================================  ==================================================

A form changes at most one thing, and answers 303, so that a reload of the page repeats nothing.

A session begins with an operator's token and keeps it in the memory of this process alone, because every request that
changes something is made with it: a token that was removed or has expired changes nothing, whatever its
sessions are.

A prompt comes in the body of a form, and is asked only with the session's field and a token that still
stands for an operator. Neither it nor the answer is in an address, a header, a log or the session.
"""

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from appliance.model.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    PermissionDeniedError,
)
from appliance.model.names import is_profile_name, is_request_id
from appliance.model.wording import printable
from appliance.model.words import Mark
from appliance.presentation.box_texts import by_interest
from appliance.web.actions import MOST_PROMPT, BoxActions, PromptTrials
from appliance.web.box_documents import BoxDocuments, BoxSource
from appliance.web.page.view import (
    FocusSource,
    OperatorView,
    PageDocuments,
    PageRenderer,
    page_view,
    static_file,
    status_document,
)
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

LASTS_S: Final = 12 * 3600.0
MOST_SESSIONS: Final = 32
"""Sessions that are kept; a further one ends the oldest."""
_ID_BYTES: Final = 32
LONGEST_ID: Final = 64


@dataclass(slots=True, kw_only=True)
class Session:
    """One browser that has signed in."""

    name: str
    """Operator and token, for people."""
    token: str = field(repr=False)
    csrf: str = field(repr=False)
    """Value of a field in each form of the page."""
    until_s: float
    notice: str = ""
    """Sentence about the last form, which the next page shows once."""

    def owns(self, csrf: str) -> bool:
        """Tell whether a form with this value is of a page that the session was shown."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())

    def take_notice(self) -> str:
        """Return the notice, and forget it."""
        notice, self.notice = self.notice, ""
        return notice


class Sessions:
    """Sessions by their ids, which are in the browsers' cookies."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: str, name: str, now_s: float) -> str:
        """Begin a session; returns its id."""
        session_id = secrets.token_urlsafe(_ID_BYTES)
        self._sessions[session_id] = Session(
            name=name,
            token=token,
            csrf=secrets.token_urlsafe(_ID_BYTES),
            until_s=now_s + LASTS_S,
        )
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session_id

    def find(self, session_id: str, now_s: float) -> Session | None:
        """Return the session of an id; None: there is none, or its time is over."""
        if len(session_id) > LONGEST_ID:
            return None
        session = self._sessions.get(session_id)
        if session is not None and session.until_s <= now_s:
            del self._sessions[session_id]
            return None
        return session

    def end(self, session_id: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(session_id, None)


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


ASK: Final = "/ask"
_TEXT: Final = "text/plain"
_LONGEST_FAULT: Final = 300


def prompt_router(
    trials: PromptTrials, actions: BoxActions, signed_in: SignedIn, renderer: PageRenderer
) -> APIRouter:
    """Return the router.

    Args:
        trials: Ask the gateway.
        actions: Know whose a token is.
        signed_in: Has the sessions.
        renderer: Renders the page of an answer.
    """
    router = APIRouter(include_in_schema=False)

    @router.post(ASK)
    async def ask(request: Request) -> Response:
        session, fields = await own_form(request, signed_in)
        wants_text = _TEXT in request.headers.get("accept", "")
        if session is None and wants_text:
            return PlainTextResponse("Sign in again.", HTTPStatus.FORBIDDEN)
        if session is None:
            return RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
        try:
            await actions.operator_of(session.token)
            profile, prompt = _asked(fields)
        except ApplianceError as error:
            fault = _fault(error)
            if wants_text:
                return PlainTextResponse(fault, HTTPStatus.CONFLICT)
            return HTMLResponse(renderer.answer("", fault), HTTPStatus.CONFLICT)
        pieces = trials.answer(profile, prompt)
        if wants_text:
            # Begun before the first piece: a browser that leaves meanwhile ends the request.
            return StreamingResponse(_told(pieces), media_type=f"{_TEXT}; charset=utf-8")
        return HTMLResponse(renderer.answer(*await _whole_answer(pieces)))

    return router


def _asked(fields: Fields) -> tuple[str, str]:
    profile, prompt = fields.get("profile", ""), fields.get("prompt", "").strip()
    if not is_profile_name(profile):
        raise BadRequestError("the form names no profile")
    if not prompt:
        raise BadRequestError("there is no prompt")
    if len(prompt) > MOST_PROMPT:
        raise BadRequestError(f"a prompt may have {MOST_PROMPT} characters here")
    return profile, prompt


async def _told(pieces: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    """Yield an answer as it comes, and in the end why it is not whole."""
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
        except ApplianceError as error:
            yield f"\n[{_fault(error)}]"


async def _whole_answer(pieces: AsyncGenerator[str, None]) -> tuple[str, str]:
    """Return an answer with the reason why it is not whole, which is empty where it is."""
    found = list[str]()
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                found.append(piece)
        except ApplianceError as error:
            return "".join(found), _fault(error)
    return "".join(found), ""


def _fault(error: ApplianceError) -> str:
    return printable(str(error)[:_LONGEST_FAULT])


_LONGEST_NAME: Final = 64
_CACHED_S: Final = 3600


def page_router(
    box: BoxSource,
    focus: FocusSource,
    actions: BoxActions,
    signed_in: SignedIn,
    trials: PromptTrials | None,
) -> APIRouter:
    """Return the router of the page.

    Args:
        box: Where the documents come from.
        focus: Where those about the one profile come from that is shown in detail.
        actions: Carry out what operators ask for.
        signed_in: Has the sessions of the browsers.
        trials: Ask models the prompts that operators try; None: none can be tried.
    """
    renderer = PageRenderer()
    router = form_router(actions, signed_in, renderer)
    if trials is not None:
        router.include_router(prompt_router(trials, actions, signed_in, renderer))

    @router.get(PAGE)
    async def page(
        request: Request,
        profile: Annotated[str, Query(max_length=_LONGEST_NAME)] = "",
    ) -> HTMLResponse:
        documents = await box.look(for_person=True)
        session = signed_in.session(request)
        operator = operator_view(session, ask_path="" if trials is None else ASK)
        name = focus_name(documents, profile)
        found = PageDocuments(box=documents)
        if name is not None:
            found = await _whole_page(documents, name, focus, with_log=bool(operator.name))
        view = page_view(found)
        notice = "" if session is None else session.take_notice()
        html = renderer.page(view, operator, notice=notice)
        return HTMLResponse(html, headers={"Cache-Control": "no-store"})

    @router.get("/status.md")
    async def markdown() -> PlainTextResponse:
        documents = await box.look()
        text = page_view(PageDocuments(box=documents)).markdown
        if not text:
            raise HTTPException(503)
        return PlainTextResponse(
            text + "\n",
            media_type="text/markdown; charset=utf-8",
            headers={"Cache-Control": "no-store"},
        )

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        found = static_file(name)
        if found is None:
            raise HTTPException(404)
        body, kind = found
        return Response(
            body, media_type=kind, headers={"Cache-Control": f"max-age={_CACHED_S}, private"}
        )

    return router


async def _whole_page(
    documents: BoxDocuments, name: str, focus: FocusSource, *, with_log: bool
) -> PageDocuments:
    """Return the documents of a page that shows one profile in detail; the daemons are asked at once."""
    detail, ended, requests, states = await asyncio.gather(
        focus.look_at(name, with_log=with_log),
        focus.operations(),
        focus.requests(),
        focus.states(),
    )
    return PageDocuments(
        box=documents, focus=detail, operations=ended, requests=requests, states=states
    )


def focus_name(documents: BoxDocuments, wanted: str) -> str | None:
    """Return the profile to show in detail: the wanted one, else the one of most interest; None: there is none."""
    if documents.status is None:
        return None
    names = [row.name for row in by_interest(status_document(documents, documents.status).profiles)]
    return wanted if wanted in names else next(iter(names), None)
