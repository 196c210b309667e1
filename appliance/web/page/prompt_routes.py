"""Route of the box to try one prompt: an answer in pieces for the script, a page for a browser without it.

A prompt comes in the body of a form, and is asked only with the session's field and a token that still
stands for an operator. Neither it nor the answer is in an address, a header, a log or the session.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from appliance.model.errors import ApplianceError, BadRequestError
from appliance.model.names import is_profile_name
from appliance.model.wording import printable
from appliance.web.actions import MOST_PROMPT, BoxActions, PromptTrials
from appliance.web.page.form_routes import LOGIN, Fields, SignedIn, own_form
from appliance.web.page.page_renderer import PageRenderer

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
        return HTMLResponse(renderer.answer(*await _whole(pieces)))

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


async def _whole(pieces: AsyncGenerator[str, None]) -> tuple[str, str]:
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
