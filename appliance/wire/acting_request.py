"""Request of an operator by a token, over a socket of a process that has no such right itself.

On the wire it is the request as on the operators' socket with two more arguments, `operator_token` and
`request_key`. Their names are those of no field, since `act` has a token of its own kind.
"""

from typing import Final

from appliance.model.errors import BadRequestError
from appliance.model.record import Record
from appliance.wire.json_values import Json

OPERATOR_TOKEN: Final = "operator_token"  # noqa: S105 - the name of an argument
REQUEST_KEY: Final = "request_key"
MOST_KEY_CHARACTERS: Final = 255


class ActingRequest(Record):
    """Request that is made for the operator whose token it has."""

    token: str
    request: Record
    key: str = ""
    """Text of the client's choice that is the same when it asks for the same again; empty: none."""

    def __repr__(self) -> str:
        """Return the request without its token."""
        return f"ActingRequest({self.request!r})"

    def extra_arguments(self) -> dict[str, str]:
        """Return the arguments beside those of the request."""
        key = {REQUEST_KEY: self.key} if self.key else {}
        return {OPERATOR_TOKEN: self.token, **key}


def acting_request(request: Record, args: Json) -> ActingRequest | None:
    """Return a decoded request with the token and the key of its arguments; None: it has no token.

    Raises:
        BadRequestError: token or key is no text, or too long.
    """
    token, key = args.get(OPERATOR_TOKEN), args.get(REQUEST_KEY) or ""
    if token is None:
        return None
    if not isinstance(token, str) or not token:
        raise BadRequestError(f"{OPERATOR_TOKEN} is none")
    if not isinstance(key, str) or len(key) > MOST_KEY_CHARACTERS:
        raise BadRequestError(
            f"{REQUEST_KEY} is no text of at most {MOST_KEY_CHARACTERS} characters"
        )
    return ActingRequest(token, request, key)
