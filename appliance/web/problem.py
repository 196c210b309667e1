"""Errors of the web process: problem+json (RFC 9457) with the next command as `hint`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from appliance.model.errors import ApplianceError, PermissionDeniedError
from appliance.wire.conversation import ErrorKind, RequestRefusedError, error_kind

PROBLEM_TYPE: Final = "application/problem+json"
_STATUSES: Final[Mapping[ErrorKind, int]] = {
    "bad-request": 422,
    "unknown-profile": 404,
    "not-found": 404,
    "busy": 409,
    "denied": 403,
    "precondition": 409,
    "unreachable": 503,
    "failed": 502,
}
"""Status of an error by its kind, of the supervisor, of the health agent or of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDocument:
    """Body of an error."""

    status: int
    title: str
    """Short phrase, the same for all errors of a kind."""
    detail: str
    """Sentence about this one."""
    hint: str
    """Next step, mostly a command; empty: nothing helps."""
    type: str = "about:blank"


class ProblemError(Exception):
    """Error that a route answers with."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = problem_of(status, detail, hint)
        self.headers = dict(headers or {})


def problem_of(status: int, detail: str, hint: str = "") -> ProblemDocument:
    """Return the problem of a status; its title is the phrase of RFC 9110."""
    return ProblemDocument(status=status, title=HTTPStatus(status).phrase, detail=detail, hint=hint)


def problem_body(problem: ProblemDocument) -> bytes:
    """Return the body, with every key."""
    return json.dumps(asdict(problem), ensure_ascii=False).encode()


def problem_response(
    problem: ProblemDocument, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response."""
    return Response(
        problem_body(problem),
        status_code=problem.status,
        headers=None if headers is None else dict(headers),
        media_type=PROBLEM_TYPE,
    )


def problem_of_error(error: ApplianceError) -> ProblemDocument:
    """Return the problem for a daemon that refuses a request, or does not answer.

    Their messages are sentences with the next command after a colon.
    """
    match error:
        case PermissionDeniedError():
            status = 503  # of this process's own user, which the socket's group should hold
        case RequestRefusedError():
            status = _STATUSES[error.kind]
        case _:
            status = _STATUSES[error_kind(error)]
    fact, colon, command = str(error).partition(": ")
    return problem_of(status, fact, command) if colon else problem_of(status, str(error))
