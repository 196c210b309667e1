"""Application of the web process: API, metrics and page behind the guards of all requests and of readers.

A part is a router; `make_application` has the list of them. Parts get the box as a `BoxSource`, and raise
`ProblemError` or any `ApplianceError` for what goes wrong.
"""

from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from appliance import __version__
from appliance.model.errors import ApplianceError
from appliance.model.wording import short
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.actions import BoxActions, PromptTrials
from appliance.web.api.answers import openapi_document, problems
from appliance.web.api.buttons import button_router
from appliance.web.api.changes import changes_router
from appliance.web.api.records import alert_records_router, records_router
from appliance.web.api.resources import api_router
from appliance.web.api.stream import stream_router
from appliance.web.box_documents import BoxSource
from appliance.web.box_stream import BoxStream
from appliance.web.guards import ReaderGuard, RequestGuard, RequestOperators
from appliance.web.metrics.pages import metrics_router
from appliance.web.page.routes import SignedIn, page_router
from appliance.web.page.view import FocusSource
from appliance.web.problem import ProblemError, problem_of, problem_of_error, problem_response

OPENAPI_PATH: Final = "/api/v1/openapi.json"
_DESCRIPTION: Final = (
    "State of the box, for people and programs. Reading needs no credential on this machine, and an operator's"
    " bearer token from another one; errors are problem+json (RFC 9457) with a `hint`. HEAD is answered wherever GET is."
)


def make_application(
    box: BoxSource,
    focus: FocusSource,
    actions: BoxActions,
    policy: SameOriginPolicy,
    *,
    trials: PromptTrials | None = None,
    enabled: bool = True,
) -> FastAPI:
    """Return the application.

    Args:
        box: Where the documents come from.
        focus: Where those about one profile come from.
        actions: What operators do.
        policy: Of hosts and origins.
        trials: Prompts that operators try; None: the page has no box for them.
        enabled: Whether requests are answered; False: each is refused.
    """
    operators, signed_in = RequestOperators(actions), SignedIn()
    application = FastAPI(
        title="Status API of the appliance",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(RequestGuard, policy=policy, enabled=enabled),
            Middleware(ReaderGuard, operators=operators, signed_in=signed_in),
        ],
    )
    routers = (
        api_router(box),
        records_router(box),
        alert_records_router(box),
        button_router(box),
        stream_router(BoxStream(box)),
        metrics_router(box),
        page_router(box, focus, actions, signed_in, trials),
    )
    for router in routers:
        application.include_router(router, responses=problems())
    application.state.operators = operators
    application.include_router(changes_router(actions), responses=problems())
    application.add_exception_handler(ProblemError, _answer_problem)
    application.add_exception_handler(ApplianceError, _answer_appliance_error)
    application.add_exception_handler(HTTPException, _answer_http_exception)
    application.add_exception_handler(RequestValidationError, _answer_invalid)
    application.openapi = lambda: openapi_document(application)  # type: ignore[method-assign]
    return application


async def _answer_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101 - the handler of this class
    return problem_response(error.problem, error.headers)


async def _answer_appliance_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApplianceError)  # noqa: S101 - as above
    return problem_response(problem_of_error(error))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    status = error.status_code
    match status:
        case HTTPStatus.BAD_REQUEST:
            status = 422  # the framework's parser gives up, as for a body that is nested too deeply
            text, hint = "body: it cannot be read as JSON", f"GET {OPENAPI_PATH}"
        case HTTPStatus.NOT_FOUND:
            text, hint = "there is nothing at this path", f"GET {OPENAPI_PATH}"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            text, hint = f"this path does not take {short(request.method)}", f"GET {OPENAPI_PATH}"
            # The guard answers HEAD wherever GET is.
            allow = (error.headers or {}).get("Allow", "")
            headers = {"Allow": f"{allow}, HEAD" if "GET" in allow else allow}
            return problem_response(problem_of(status, text, hint), headers)
        case _:
            text, hint = "the request cannot be answered", ""
    return problem_response(problem_of(status, text, hint), error.headers)


async def _answer_invalid(_request: Request, error: Exception) -> Response:
    """Answer values that the OpenAPI document does not allow; their text is not repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    places = [
        f"{'.'.join(short(str(part)) for part in one['loc'])}: {short(one['msg'])}"
        for one in error.errors()
    ]
    return problem_response(problem_of(422, "; ".join(places[:8]), f"GET {OPENAPI_PATH}"))
