"""Resources of the API that change something, each in the name of the operator who asks.

An operation is answered with 202 and its `Location` as soon as the supervisor has accepted it. A request
with an `Idempotency-Key` can be repeated for a day: it is the same operation.
"""

from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Body, Depends, Header, Path, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.responses import JSONResponse

from appliance.alerts.silences import LONGEST_SILENCE_S
from appliance.model.record import Record
from appliance.model.words import Mark
from appliance.web.actions import Begun, BoxActions
from appliance.web.api.answers import REHEARSAL, problems
from appliance.web.guards import RequestOperator, operator_of_request
from appliance.web.problem import ProblemError
from appliance.wire.alert_requests import (
    SILENCE_S,
    AckRequest,
    SilenceRequest,
    TestAlertRequest,
    UnsilenceRequest,
)
from appliance.wire.control_requests import (
    CancelRequest,
    CutRequest,
    MarkRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
)
from appliance.wire.conversation import MOST_KEY_CHARACTERS, ActingRequest, ResultEvent

_MOST_NAME: Final = 64
_MOST_PROFILES: Final = 64
_BEARER: Final = HTTPBearer(
    scheme_name="operatorToken",
    description="Token of an operator: `appliance token add NAME`.",
    auto_error=False,
)
Name = Annotated[
    str,
    Path(
        description="Name of a profile or of a `[[watch]]` entry.",
        min_length=1,
        max_length=_MOST_NAME,
        examples=["genesis"],
    ),
]
OperationNumber = Annotated[
    int, Path(description="Number of an operation.", ge=1, le=2**53 - 1, examples=[18])
]
AlertName = Annotated[
    str,
    Path(
        description="Short id of an alert.", min_length=1, max_length=_MOST_NAME, examples=["A17"]
    ),
]
ClientRequestId = Annotated[
    str,
    Path(
        description="Id of a client's request, as `GET /api/v1/requests` tells it.",
        min_length=1,
        max_length=48,
        pattern="^[a-z0-9][a-z0-9._-]*$",
        examples=["3f9a1c-12"],
    ),
]
RequestKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        description="Text of your choice: the same key and body within a day are the same operation.",
        max_length=MOST_KEY_CHARACTERS,
    ),
]


Asker = Annotated[RequestOperator, Depends(operator_of_request)]


class ChangeBody(BaseModel):
    """Body with no key that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SwitchBody(ChangeBody):
    """Switch to a profile, or to several together."""

    profile: str | None = Field(
        default=None,
        description="Profile to serve in place of those that conflict with it; null: `profiles` has them.",
        min_length=1,
        max_length=_MOST_NAME,
        examples=["genesis"],
    )
    profiles: list[Annotated[str, StringConstraints(min_length=1, max_length=_MOST_NAME)]] = Field(
        default_factory=list,
        description="Profiles to serve together, in the order of their start; empty: `profile` has it.",
        max_length=_MOST_PROFILES,
    )
    dry_run: bool = Field(default=False, description="Only tell what would be done.")

    @model_validator(mode="after")
    def _is_named_once(self) -> Self:
        if (self.profile is None) != bool(self.profiles):
            raise ValueError("name either profile or profiles")
        return self


class RehearsalBody(ChangeBody):
    """Options of a start or a stop."""

    dry_run: bool = Field(default=False, description="Only tell what would be done.")


class MarkBody(ChangeBody):
    """Mark of a profile."""

    mark: Mark = Field(description="Who is told about it.")


class SilenceBody(ChangeBody):
    """Silence of a subject."""

    name: str = Field(
        description="Profile, watch, GPU, `box`, or the id of an alert.",
        min_length=1,
        max_length=_MOST_NAME,
        examples=["genesis"],
    )
    for_s: float = Field(
        default=SILENCE_S, description="Length in seconds.", gt=0, le=LONGEST_SILENCE_S
    )
    reason: str = Field(default="", description="For the record.", max_length=200)


class TrialBody(ChangeBody):
    """Test alert."""

    target: str | None = Field(
        default=None, description="One target; null: all of them.", max_length=_MOST_NAME
    )


class OperationStarted(BaseModel):
    """Operation that was begun, or joined."""

    operation: int = Field(description="Its number.", examples=[18])
    kind: str = Field(examples=["switch"])
    target: list[str] = Field(examples=[["genesis"]])


class Rehearsal(BaseModel):
    """Outcome of a rehearsal."""

    model_config = ConfigDict(json_schema_extra={"examples": [dict(REHEARSAL)]})

    refused: bool = Field(description="Whether the operation would be refused.")
    message: str
    plan: dict[str, Any] = Field(description="What would be stopped, started and committed.")
    findings: list[dict[str, Any]]
    estimates: dict[str, Any] = Field(
        default_factory=dict, description="By profile the parts of its estimated need."
    )


class ActionDone(BaseModel):
    """Outcome of an action that is no operation."""

    message: str = Field(examples=["genesis is marked standby"])
    targets: dict[str, Any] | None = Field(
        default=None, description="Of a test: by target what became of it."
    )


_DOCUMENTED: Final = problems(
    http_401="No operator's token, or one that is not known, was removed or has expired.",
    http_403="The operator may not do this, or the request comes from another page.",
    http_404="There is no such profile, operation, alert or target.",
    http_409="Something else runs, an operator holds the box, or it is not in the state that this needs.",
    http_422="The request makes no sense, or its key was used for another one.",
    http_429="Too many wrong tokens came lately.",
    http_502="The daemon that is asked has failed.",
    http_503="The daemon that is asked does not answer.",
)
_LOCATION: Final = {
    "description": "Accepted; the operation goes on by itself.",
    "headers": {"Location": {"description": "The operation.", "schema": {"type": "string"}}},
}
_OPERATION: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The rehearsal.", "model": Rehearsal},
    202: {**_LOCATION, "model": OperationStarted},
    **_DOCUMENTED,
}
_OVER: Final = "the operation does not run: it is over, or never began"


def changes_router(actions: BoxActions) -> APIRouter:
    """Return the router of the changes.

    Args:
        actions: Carry them out.
    """
    router = APIRouter(prefix="/api/v1", dependencies=[Depends(_BEARER)], responses=_DOCUMENTED)
    _add_operations(router, actions)
    _add_measurements_and_alerts(router, actions)
    return router


def _add_operations(router: APIRouter, actions: BoxActions) -> None:
    """Add the resources that the supervisor changes."""

    async def begin(asker: RequestOperator, request: Record, key: str = "") -> Response:
        return _begun(await actions.operate(ActingRequest(asker.token, request, key)))

    @router.post("/switch", tags=["operations"], responses=_OPERATION, status_code=202)
    async def switch(body: SwitchBody, asker: Asker, key: RequestKey = "") -> Response:
        """Switch to a profile, or to several together: they serve in the end, or what served before does."""
        names = tuple(body.profiles)
        return await begin(asker, SwitchRequest(body.profile, body.dry_run, names=names), key)

    @router.delete(
        "/operations/{number}", tags=["operations"], responses=_OPERATION, status_code=202
    )
    async def cancel(number: OperationNumber, asker: Asker) -> Response:
        """Cancel an operation that runs, which is then rolled back."""
        return await begin(asker, CancelRequest(number))

    @router.post("/profiles/{name}/start", tags=["profiles"], responses=_OPERATION, status_code=202)
    async def start(
        name: Name,
        asker: Asker,
        body: Annotated[RehearsalBody, Body()] = RehearsalBody(),  # noqa: B008 - frozen
        key: RequestKey = "",
    ) -> Response:
        """Start a profile beside those that run; none is evicted."""
        return await begin(asker, StartRequest((name,), body.dry_run), key)

    @router.post("/profiles/{name}/stop", tags=["profiles"], responses=_OPERATION, status_code=202)
    async def stop(
        name: Name,
        asker: Asker,
        body: Annotated[RehearsalBody, Body()] = RehearsalBody(),  # noqa: B008 - frozen
        key: RequestKey = "",
    ) -> Response:
        """Stop a profile until the next start, switch or boot."""
        return await begin(asker, StopRequest((name,), body.dry_run), key)

    @router.put("/profiles/{name}/mark", tags=["profiles"])
    async def mark(name: Name, body: MarkBody, asker: Asker) -> ActionDone:
        """Set the mark of a profile or watch."""
        request = MarkRequest(name, body.mark)
        done = await actions.operate(ActingRequest(asker.token, request))
        return ActionDone(message=done.message if isinstance(done, ResultEvent) else "")

    @router.delete("/requests/{request}", tags=["requests"])
    async def cancel_request(request: ClientRequestId, asker: Asker) -> ActionDone:
        """Cancel one request of a client, which gets an error; 404 where it is over."""
        done = await actions.operate(ActingRequest(asker.token, CutRequest(request)))
        if not isinstance(done, ResultEvent) or done.exit:
            raise ProblemError(404, f"request {request} is over", hint="GET /api/v1/requests")
        return ActionDone(message=done.message)


def _add_measurements_and_alerts(router: APIRouter, actions: BoxActions) -> None:
    """Add the resources that the health agent changes."""

    async def tell_agent(asker: RequestOperator, request: Record) -> ActionDone:
        done = await actions.ask_agent(ActingRequest(asker.token, request))
        targets = done.details.get("targets")
        return ActionDone(
            message=done.message, targets=targets if isinstance(targets, dict) else None
        )

    @router.post("/profiles/{name}/probe", tags=["profiles"], status_code=202)
    async def probe(name: Name, asker: Asker) -> ActionDone:
        """Measure the speed of a profile now; the result comes with the next status and history."""
        await actions.begin_probe(asker.token, name)
        return ActionDone(message=f"{name} is probed")

    @router.post("/alerts/test", tags=["alerts"])
    async def test(
        asker: Asker,
        body: Annotated[TrialBody, Body()] = TrialBody(),  # noqa: B008 - frozen
    ) -> ActionDone:
        """Send a test alert the way of every alert, and tell what became of it within half a minute."""
        return await tell_agent(asker, TestAlertRequest(body.target))

    @router.post("/alerts/{alert}/ack", tags=["alerts"])
    async def ack(alert: AlertName, asker: Asker) -> ActionDone:
        """End the reminders of an alert; its end is told."""
        return await tell_agent(asker, AckRequest(alert))

    @router.post("/silences", tags=["alerts"])
    async def silence(body: SilenceBody, asker: Asker) -> ActionDone:
        """Tell nobody of a subject for a while."""
        return await tell_agent(asker, SilenceRequest(body.name, body.for_s, body.reason))

    @router.delete("/silences/{name}", tags=["alerts"])
    async def unsilence(name: Name, asker: Asker) -> ActionDone:
        """End the silences of a subject."""
        return await tell_agent(asker, UnsilenceRequest(name))


def _begun(event: Begun) -> Response:
    """Return the response to the supervisor's first word on an operation."""
    if isinstance(event, ResultEvent):
        if "plan" not in event.details:
            raise ProblemError(409, _OVER, hint="appliance status")
        return JSONResponse(
            {
                "refused": event.exit != 0,
                "message": event.message,
                "plan": event.details["plan"],
                "findings": event.details.get("findings", []),
                "estimates": event.details.get("estimates", {}),
            }
        )
    started = {"operation": event.operation, "kind": event.kind, "target": list(event.target)}
    headers = {"location": f"/api/v1/operations/{event.operation}"}
    return JSONResponse(started, status_code=202, headers=headers)
