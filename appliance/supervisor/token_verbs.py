"""Verbs of token.sock: operators' requests through a process that has no rights of its own.

Each request is carried out as if its operator had made it on the control socket, and recorded as such, with
the name of the token.
"""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from appliance.model.errors import PermissionDeniedError
from appliance.model.operators import TokenOperator
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.request_keys import RequestKeys
from appliance.wire.control_events import AcceptedEvent, ControlEvent
from appliance.wire.control_requests import AttachRequest, ControlRequest
from appliance.wire.conversation import ActingRequest
from appliance.wire.server import FEW, Peer, ReadRequest, serve_conversations
from appliance.wire.token_socket import OFFERED, TOKEN


class TokenVerbs:
    """Handler of the requests by token.

    Args:
        control: Carries the requests out.
        operator_of: Returns the operator for whom a token stands. Raises `ApplianceError`.
        monotonic_s: A clock that cannot be set.
    """

    def __init__(
        self,
        control: ControlVerbs,
        operator_of: Callable[[str], TokenOperator],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._control = control
        self._operator_of = operator_of
        self._monotonic_s = monotonic_s
        self._keys = RequestKeys()

    async def serve(
        self, listener: socket.socket, read: ReadRequest[ControlRequest | ActingRequest]
    ) -> None:
        """Answer on the socket for ever, once an operation that was left open goes on."""
        await self._control.resumed()
        await serve_conversations(TOKEN, listener, read, self._answer, bounds=FEW)

    async def _answer(
        self, acting: ControlRequest | ActingRequest, peer: Peer
    ) -> AsyncGenerator[ControlEvent, None]:
        if not isinstance(acting, ActingRequest) or not isinstance(acting.request, OFFERED):
            raise PermissionDeniedError("this socket offers nothing without a token")
        by = Requester.by_token(self._operator_of(acting.token), peer)
        request: ControlRequest = acting.request
        if acting.key:
            earlier = self._keys.operation(by.uid, acting.key, request, self._monotonic_s())
            request = request if earlier is None else AttachRequest(earlier)
        async with aclosing(self._control.answer(request, by)) as events:
            async for event in events:
                if acting.key and isinstance(event, AcceptedEvent):
                    now_s = self._monotonic_s()
                    self._keys.keep(by.uid, acting.key, acting.request, event.operation, now_s)
                yield event
