"""Operator of a request of the API: by its bearer token, and by nothing else.

====================================  ==========================================================
a request                             acts as
====================================  ==========================================================
``Authorization: Bearer TOKEN``       the token's operator
with a token of nobody                nobody (401)
with one of many wrong secrets of an id nobody (429)
with a cookie, or without anything    nobody (401): sessions are for the forms of the page
====================================  ==========================================================

A token in an address is never looked at: addresses are kept in histories and logs.
"""

from dataclasses import dataclass, field
from typing import Final

from fastapi import Request

from appliance.model.errors import BusyError, PermissionDeniedError
from appliance.model.operators import TokenOperator
from appliance.web.acting.box_actions import BoxActions
from appliance.web.problem import ProblemError

MOST_TOKEN_CHARACTERS: Final = 256
_CHALLENGE: Final = 'Bearer realm="appliance"'
_NO_TOKEN: Final = "this wants an operator's token"  # noqa: S105 - a sentence
_HINT: Final = "appliance token add NAME; then send Authorization: Bearer TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOperator:
    """Operator that a request acts as, and the token that proves it to the daemons."""

    operator: TokenOperator
    token: str = field(repr=False)


class RequestOperators:
    """Finder of the operators of requests.

    Args:
        actions: Know whose token it is.
    """

    def __init__(self, actions: BoxActions) -> None:
        self._actions = actions

    async def of_request(self, request: Request) -> RequestOperator:
        """Return the operator of a request of the API.

        Raises:
            ProblemError: nobody, so it is refused: 401 or 429.
            ApplianceError: the supervisor does not answer.
        """
        given = request.headers.getlist("authorization")
        scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized(_NO_TOKEN)
        return await self.of_token(token)

    async def of_token(self, token: str) -> RequestOperator:
        """Return the operator for whom a token stands. Raises as `of_request`."""
        if len(token) > MOST_TOKEN_CHARACTERS:
            raise _unauthorized("the token is not known", error=True)
        try:
            operator = await self._actions.operator_of(token)
        except PermissionDeniedError as error:
            raise _unauthorized(str(error).partition(": ")[0], error=True) from None
        except BusyError as error:
            raise ProblemError(429, str(error), headers={"retry-after": "60"}) from None
        return RequestOperator(operator=operator, token=token)


async def operator_of_request(request: Request) -> RequestOperator:
    """Return the operator of a request, by the finder of the application. Raises as `of_request`."""
    operators: RequestOperators = request.app.state.operators
    return await operators.of_request(request)


def _unauthorized(detail: str, *, error: bool = False) -> ProblemError:
    challenge = f'{_CHALLENGE}, error="invalid_token"' if error else _CHALLENGE
    return ProblemError(401, detail, hint=_HINT, headers={"www-authenticate": challenge})
