"""Buttons of messages: POST does what a token is for, once; GET asks first, and never changes anything."""

from html import escape
from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.responses import HTMLResponse, JSONResponse

from appliance.alerts.action_tokens import (
    MOST_TOKEN_CHARACTERS,
    ButtonAction,
    present_token,
)
from appliance.model.errors import ApplianceError
from appliance.web.api.answers import ActionDocument, AnswerExample, problems, responses_of
from appliance.web.box_documents import BoxSource
from appliance.web.problem import ProblemError
from appliance.wire.alert_requests import ActRequest
from appliance.wire.conversation import RequestRefusedError

BUTTONS: Final = "/api/v1/act"
_QUESTIONS: Final = {
    ButtonAction.ACK: "Ack {alert}: end its reminders?",
    ButtonAction.SILENCE: "Silence what {alert} is about for 2 hours?",
}
_PAGE: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>appliance</title></head>'
    '<body><main><h1>{question}</h1><form method="post"><button>Yes</button></form></main></body></html>'
)
_REFUSED: Final = "the button was used, is older than a day, or is none of this box"
_HINT: Final = "appliance alerts"
Token = Annotated[
    str,
    Path(
        description="Token of a button, which works once.",
        min_length=1,
        max_length=MOST_TOKEN_CHARACTERS,
    ),
]


def button_router(box: BoxSource) -> APIRouter:
    """Return the router of the buttons.

    Args:
        box: Whose health agent acts.
    """
    router = APIRouter(prefix=BUTTONS, tags=["alerts"])
    page = {
        200: {"description": "A page with one button.", "content": {"text/html": {}}},
        **problems(),
    }

    @router.get("/{token}", responses=page, response_class=HTMLResponse)
    async def confirm(token: Token) -> HTMLResponse:
        """Ask whether to do what a token is for; whether it still works shows when it is used."""
        told = present_token(token)
        if told is None:
            raise ProblemError(404, _REFUSED, hint=_HINT)
        question = _QUESTIONS[told.action].format(alert=told.alert)
        return HTMLResponse(_PAGE.format(question=escape(question)))

    done = AnswerExample(ActionDocument, "What was done.", {"message": "A17 is acked"})

    @router.post("/{token}", responses=responses_of(done))
    async def act(token: Token) -> JSONResponse:
        """Do what a token is for, once: ack or silence the alert that its message was about."""
        if present_token(token) is None:
            raise ProblemError(404, _REFUSED, hint=_HINT)
        try:
            message = await box.act(ActRequest(token))
        except RequestRefusedError as error:
            raise _refusal(error) from None
        return JSONResponse({"message": message})

    return router


def _refusal(error: RequestRefusedError) -> ApplianceError | ProblemError:
    """Return the error for a token that is refused; each reason has the same one."""
    if error.kind == "denied":
        return ProblemError(404, _REFUSED, hint=_HINT)
    return error
