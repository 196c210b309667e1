"""Desk for operators: whose a token is, and requests in the name of its operator.

The web process has no right to change anything. Supervisor and health agent carry a request out for the operator whose
token comes with it, by the rules that the operator has at a terminal.
"""

import asyncio
from pathlib import Path
from typing import Any, Final, Protocol

from appliance.adapters.token_client import TokenOwners
from appliance.domain.errors import UnreachableError
from appliance.protocol.acting_request import ActingRequest
from appliance.protocol.alert_requests import AckRequest, SilenceRequest
from appliance.protocol.control_events import AcceptedEvent
from appliance.protocol.control_requests import (
    CancelRequest,
    MarkRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
)
from appliance.protocol.conversation.async_client import details_of, open_conversation
from appliance.protocol.conversation.codec import ErrorEvent, RequestRefusedError
from appliance.protocol.token_socket import TOKEN
from appliance.protocol.view_socket import VIEW

BoxRequest = SwitchRequest | StartRequest | StopRequest | CancelRequest | MarkRequest
AlertChange = AckRequest | SilenceRequest
_WITHIN_S: Final = 10.0


class OperatorDesk(Protocol):
    """Carries out what operators ask for on the page. Each raises `ApplianceError` where it cannot."""

    async def operator_of(self, token: str) -> str:
        """Return the operator for whom a token stands, with its name, for people."""
        ...

    async def change_box(self, token: str, request: BoxRequest) -> None:
        """Have the supervisor take a request; an operation goes on after it was accepted."""
        ...

    async def change_alerts(self, token: str, request: AlertChange) -> None:
        """Have the health agent carry out a request."""
        ...


class LiveOperatorDesk:
    """Desk at the daemons' sockets.

    Args:
        status_socket: The supervisor's, which knows whose a token is.
        token_socket: The supervisor's, for requests with a token.
        view_socket: The health agent's.
    """

    def __init__(self, status_socket: Path, token_socket: Path, view_socket: Path) -> None:
        self._owners = TokenOwners(status_socket)
        self._token_socket = token_socket
        self._view_socket = view_socket

    async def operator_of(self, token: str) -> str:
        """Return the operator for whom a token stands."""
        return str(await self._owners.operator_of(token))

    async def change_box(self, token: str, request: BoxRequest) -> None:
        """Have the supervisor take a request."""
        acting = ActingRequest(token, request)
        try:
            async with (
                asyncio.timeout(_WITHIN_S),
                open_conversation(TOKEN, self._token_socket, acting) as events,
            ):
                async for event in events:
                    if isinstance(event, AcceptedEvent):
                        return
                    _check(event)
        except TimeoutError as error:
            raise UnreachableError("the supervisor does not answer in time") from error

    async def change_alerts(self, token: str, request: AlertChange) -> None:
        """Have the health agent carry out a request."""
        acting = ActingRequest(token, request)
        await details_of(VIEW, self._view_socket, acting, within_s=_WITHIN_S)


def _check(event: Any) -> None:
    """Raise `RequestRefusedError` for an event that tells a refusal."""
    if isinstance(event, ErrorEvent):
        raise RequestRefusedError(event)
