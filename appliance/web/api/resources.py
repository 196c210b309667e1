"""Resources of the status API about the box of now: checks, status, profiles, GPUs."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from starlette.responses import JSONResponse

from appliance.model.status import ProfileRow, StatusDocument
from appliance.model.wording import no_such_profile, short
from appliance.presentation.alert_texts import alerts_of
from appliance.presentation.health_sections import speed_section, without_speeds
from appliance.web.api.answers import (
    AnswerExample,
    GpusDocument,
    LivenessDocument,
    ProfileDocument,
    ProfilesDocument,
    responses_of,
)
from appliance.web.box_documents import BoxDocuments, BoxSource
from appliance.web.problem import ProblemError
from appliance.wire.gateway import ClientRequestsDocument
from appliance.wire.status_socket import ClientRequestsRequest

_AGENT_AWAY = "the health agent does not answer: sudo systemctl start appliance-health"
MOST_NAME = 48
"""Characters of the longest name of a profile."""
ProfileName = Annotated[
    str,
    Path(description="Name of a profile.", examples=["smol"], min_length=1, max_length=MOST_NAME),
]


def api_router(box: BoxSource) -> APIRouter:
    """Return the router of these resources.

    Args:
        box: Where the documents come from.
    """
    router = APIRouter()

    alive = AnswerExample(LivenessDocument, "The web process answers.", {"status": "ok"})

    @router.get("/livez", tags=["checks"], responses=responses_of(alive))
    async def livez() -> JSONResponse:
        """Tell that the web process answers."""
        return JSONResponse({"status": "ok"})

    ready = AnswerExample(
        LivenessDocument, "Each profile that should serve does.", {"status": "ok"}
    )

    @router.get("/readyz", tags=["checks"], responses=responses_of(ready))
    async def readyz() -> JSONResponse:
        """Tell whether the profiles that this box should serve, serve; 503 with the reason if not."""
        status = whole_status(await box.look(with_gpus=False))
        if faults := unready(status):
            raise ProblemError(503, "; ".join(faults), hint="appliance status")
        return JSONResponse({"status": "ok"})

    whole = AnswerExample(StatusDocument, "The status document.")

    @router.get("/api/v1/status", tags=["box"], responses=responses_of(whole))
    async def status() -> JSONResponse:
        """Return the status document, as `appliance status --json` prints it."""
        return _json(whole_status(await box.look(with_gpus=False)))

    every = AnswerExample(ProfilesDocument, "The profiles, in the order of their names.")

    @router.get("/api/v1/profiles", tags=["profiles"], responses=responses_of(every))
    async def profiles() -> JSONResponse:
        """Return every profile with its state, speed and alerts."""
        document = whole_status(await box.look(with_gpus=False))
        return _json({"profiles": [profile_row(row, document) for row in document.profiles]})

    one = AnswerExample(ProfileDocument, "The profile.")

    @router.get("/api/v1/profiles/{name}", tags=["profiles"], responses=responses_of(one))
    async def profile(name: ProfileName) -> JSONResponse:
        """Return one profile, as `appliance status NAME --json` prints it."""
        document = whole_status(await box.look(with_gpus=False))
        rows = {row.name: row for row in document.profiles}
        if name not in rows:
            raise ProblemError(404, no_such_profile(short(name), rows), hint="appliance list")
        return _json(profile_row(rows[name], document))

    devices = AnswerExample(GpusDocument, "The GPUs; none on a box without.", {"gpus": []})

    @router.get("/api/v1/gpus", tags=["box"], responses=responses_of(devices))
    async def gpus() -> JSONResponse:
        """Return clocks, power, heat, errors and memory of each GPU, and who holds memory."""
        documents = await box.look()
        if documents.gpus is None:
            raise _supervisor_away()
        return JSONResponse(dict(documents.gpus))

    _add_requests(router, box)
    return router


def _add_requests(router: APIRouter, box: BoxSource) -> None:
    """Add the resource of the requests of clients."""
    listed = AnswerExample(ClientRequestsDocument, "The requests.", {"requests": [], "left_off": 0})

    @router.get("/api/v1/requests", tags=["requests"], responses=responses_of(listed))
    async def requests() -> JSONResponse:
        """Return the requests of clients that are in flight or held, without their texts."""
        return JSONResponse(dict(await box.ask_supervisor(ClientRequestsRequest())))


def unready(status: StatusDocument) -> list[str]:
    """Return why the box is not ready, as sentences; none: each committed profile serves."""
    states = {row.name: row.state for row in status.profiles}
    if status.hold is not None:
        return ["an operator holds the box"]
    if not status.committed:
        return ["no profile is to serve"]
    return [
        f"{name} is {states.get(name, 'not applied')}"
        for name in status.committed
        if states.get(name) != "serving"
    ]


def whole_status(documents: BoxDocuments) -> StatusDocument:
    """Return the status document with its sections on speeds and alerts. Raises `ProblemError`."""
    if documents.status is None:
        raise _supervisor_away()
    speeds = documents.speeds
    speed = without_speeds(_AGENT_AWAY) if speeds is None else speed_section(speeds)
    return documents.judged(documents.status.replaced(speed=speed))


def profile_row(row: ProfileRow, document: StatusDocument) -> dict[str, Any]:
    """Return the row of a profile with its speed and its alerts."""
    alerts = document.alerts or None
    return {
        **row.fields(),
        "speed": document.speed.profiles.get(row.name) if document.speed else None,
        "alerts": None if alerts is None else alerts_of(alerts, row.name),
    }


def _json(document: object) -> JSONResponse:
    return JSONResponse(msgspec.to_builtins(document))


def _supervisor_away() -> ProblemError:
    hint = "sudo systemctl start appliance-supervisor"
    return ProblemError(503, "the supervisor does not answer", hint=hint)
