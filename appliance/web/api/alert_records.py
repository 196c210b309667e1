"""Resources of the status API about alerts: those that are not over, one of them, the outbox."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import JSONResponse

from appliance.web.api.answers import (
    AlertDocument,
    AlertsDocument,
    AnswerExample,
    OutboxDocument,
    responses_of,
)
from appliance.web.box_documents import BoxSource
from appliance.web.problem import ProblemError
from appliance.wire.alert_requests import (
    MOST_RECORDS,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
)
from appliance.wire.conversation import RequestRefusedError

AlertId = Annotated[
    str, Path(description="Short id of an alert.", examples=["A17"], pattern=r"^A[0-9]{1,9}$")
]


def alert_records_router(box: BoxSource) -> APIRouter:
    """Return the router of these resources.

    Args:
        box: Where the answers come from.
    """
    router = APIRouter(prefix="/api/v1", tags=["alerts"])

    messages = AnswerExample(OutboxDocument, "The rows, newest first.")

    @router.get("/outbox", responses=responses_of(messages))
    async def outbox(
        most: Annotated[int, Query(description="Most rows.", ge=1, le=MOST_RECORDS)] = 20,
    ) -> JSONResponse:
        """Return the newest messages to targets and what became of them, and figures of the delivery."""
        return JSONResponse(dict(await box.ask_agent(OutboxRequest(most))))

    firing = AnswerExample(AlertsDocument, "The alerts, the most severe first.")

    @router.get("/alerts", responses=responses_of(firing))
    async def alerts() -> JSONResponse:
        """Return the alerts that are not over, silences, planned windows, and figures of the delivery."""
        return JSONResponse(dict(await box.ask_agent(AlertsRequest())))

    known = AnswerExample(AlertDocument, "The alert.")

    @router.get("/alerts/{alert}", responses=responses_of(known))
    async def alert(alert: AlertId) -> JSONResponse:
        """Return one alert with its transitions, and the messages about it."""
        try:
            answer = await box.ask_agent(AlertRequest(alert))
        except RequestRefusedError as error:
            if error.kind == "not-found":
                detail = f"{alert} is not on record"
                raise ProblemError(404, detail, hint="appliance alerts") from None
            raise
        return JSONResponse(dict(answer))

    return router
