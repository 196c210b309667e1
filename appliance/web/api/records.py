"""Resources of the status API about the past: history, events, operations, alerts."""

import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.responses import JSONResponse

from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.status import OperationsSection, RecordedOperation
from appliance.model.words import Series
from appliance.web.api.answers import (
    AlertDocument,
    AlertsDocument,
    AnswerExample,
    EventsDocument,
    HistoryDocument,
    OutboxDocument,
    StatesDocument,
    responses_of,
)
from appliance.web.api.resources import MOST_NAME
from appliance.web.box_documents import BoxSource
from appliance.web.problem import ProblemError
from appliance.wire.alert_requests import (
    MOST_RECORDS,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
)
from appliance.wire.control_events import MOST_OPERATIONS, OperationsRequest
from appliance.wire.conversation import RequestRefusedError
from appliance.wire.health_socket import (
    HistoryRequest,
    MeasurementEventsRequest,
    StateRecordRequest,
)
from appliance.wire.json_values import object_in
from appliance.wire.status_socket import RecordedOperationRequest

_DAY_S: Final = 86_400.0
_MOST_UNIX_S: Final = 1e11
_MOST_NUMBER: Final = (1 << 53) - 1
Since = Annotated[
    float | None,
    Query(
        description="Unix seconds of the oldest one; absent: a day ago.",
        examples=[1795256172.0],
        ge=0,
        le=_MOST_UNIX_S,
        allow_inf_nan=False,
    ),
]
ProfileQuery = Annotated[
    str,
    Query(description="Name of a profile.", examples=["smol"], min_length=1, max_length=MOST_NAME),
]
OperationId = Annotated[
    int, Path(description="Number of an operation.", examples=[18], ge=1, le=_MOST_NUMBER)
]


def records_router(box: BoxSource) -> APIRouter:
    """Return the router of these resources.

    Args:
        box: Where the answers come from.
    """
    router = APIRouter(prefix="/api/v1")

    _add_profile_records(router, box)
    told = AnswerExample(EventsDocument, "The events, oldest first.")

    @router.get("/events", tags=["box"], responses=responses_of(told))
    async def events(
        since: Since = None,
        most: Annotated[
            int, Query(description="Most of each kind, the newest.", ge=1, le=MOST_RECORDS)
        ] = 200,
    ) -> JSONResponse:
        """Return measurement events and transitions of alerts, of the whole box."""
        request = MeasurementEventsRequest(name=None, most=most, alerts_after=0)
        found = await box.ask_agent_events(request)
        since_unix_s = _since(since)
        shown: dict[str, list[dict[str, Any]]] = {"measured": [], "alerts": []}
        for event in found:
            match event:
                case MeasuredEvent() if event.unix_s >= since_unix_s:
                    shown["measured"].append(event.fields())
                case AlertEvent() if event.unix_s >= since_unix_s:
                    shown["alerts"].append(event.fields())
                case _:
                    pass
        return JSONResponse(shown)

    done = AnswerExample(OperationsSection, "The operations.")

    @router.get("/operations", tags=["operations"], responses=responses_of(done))
    async def operations(
        most: Annotated[int, Query(description="Most rows.", ge=1, le=MOST_OPERATIONS)] = 50,
    ) -> JSONResponse:
        """Return the operation that runs, and the newest ones that are over."""
        return JSONResponse(dict(await box.ask_supervisor(OperationsRequest(most))))

    single = AnswerExample(RecordedOperation, "The operation.")

    @router.get("/operations/{number}", tags=["operations"], responses=responses_of(single))
    async def operation(number: OperationId) -> JSONResponse:
        """Return one operation; of the one that runs, its present phase."""
        answer = await box.ask_supervisor(RecordedOperationRequest(number))
        found = object_in(answer, "operation")
        if not found:
            detail = f"operation {number} is not on record"
            raise ProblemError(404, detail, hint="appliance operations")
        return JSONResponse(dict(found))

    return router


def _add_profile_records(router: APIRouter, box: BoxSource) -> None:
    """Add the resources of what the health agent has on record of the profiles."""
    rates = AnswerExample(HistoryDocument, "The rates of the profile.")

    @router.get("/history", tags=["profiles"], responses=responses_of(rates))
    async def history(
        profile: ProfileQuery,
        since: Since = None,
        series: Annotated[Series | None, Query(description="Series; absent: both.")] = None,
    ) -> JSONResponse:
        """Return the measured rates of one profile over time, with its baseline and events."""
        answer = await box.ask_agent(HistoryRequest(profile, _since(since), series))
        return JSONResponse(dict(answer))

    recorded = AnswerExample(StatesDocument, "The record.")

    @router.get("/states", tags=["profiles"], responses=responses_of(recorded))
    async def states() -> JSONResponse:
        """Return the states of every profile over the last eight days."""
        return JSONResponse(dict(await box.ask_agent(StateRecordRequest())))


def _since(unix_s: float | None) -> float:
    return max(0.0, time.time() - _DAY_S) if unix_s is None else unix_s


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
