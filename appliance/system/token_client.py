"""Client for questions about operators' tokens, which the supervisor answers on status.sock."""

from pathlib import Path
from typing import Final

from appliance.model.errors import BusyError, PermissionDeniedError, UnreachableError
from appliance.model.operators import TokenOperator
from appliance.wire.async_client import details_of
from appliance.wire.conversation import RequestRefusedError
from appliance.wire.status_socket import STATUS, AnyTokenRequest, TokenOwnerRequest
from appliance.wire.typed_json import JsonValueError, from_json

WITHIN_S: Final = 3.0


class TokenOwners:
    """Operators by their tokens.

    Args:
        status_socket: The supervisor's.
    """

    def __init__(self, status_socket: Path) -> None:
        self._path = status_socket

    async def operator_of(self, token: str) -> TokenOperator:
        """Return the operator for whom a token stands at this moment.

        Raises:
            PermissionDeniedError: it stands for nobody.
            BusyError: it is wrong, and too many wrong tokens with its id came lately.
            UnreachableError: the supervisor does not answer, so nobody can act.
        """
        request = TokenOwnerRequest(token)
        try:
            return from_json(
                TokenOperator, await details_of(STATUS, self._path, request, within_s=WITHIN_S)
            )
        except PermissionDeniedError as error:  # of the socket: nothing is said of the token
            raise UnreachableError(str(error)) from error
        except RequestRefusedError as error:
            match error.kind:
                case "denied" | "bad-request":
                    raise PermissionDeniedError(str(error)) from error
                case "busy":
                    raise BusyError(str(error)) from error
                case _:
                    raise UnreachableError(str(error)) from error
        except JsonValueError as error:
            raise UnreachableError(STATUS.not_our_protocol) from error

    async def is_any_usable(self) -> bool:
        """Tell whether somebody can act by a token at this moment. Raises `ApplianceError`."""
        told = await details_of(STATUS, self._path, AnyTokenRequest(), within_s=WITHIN_S)
        return told.get("usable") is True
