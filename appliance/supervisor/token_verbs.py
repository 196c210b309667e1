"""Verbs of token.sock: operators' requests through a process that has no rights of its own.

Each request is carried out as if its operator had made it on the control socket, and recorded as such, with
the name of the token.
"""

import socket
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from appliance.model.errors import BadRequestError, PermissionDeniedError
from appliance.model.operators import TokenOperator
from appliance.model.record import Record
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.wire.control_events import AcceptedEvent, ControlEvent
from appliance.wire.control_requests import AttachRequest, ControlRequest
from appliance.wire.conversation import ActingRequest
from appliance.wire.server import FEW, Peer, ReadRequest, serve_conversations
from appliance.wire.token_socket import OFFERED, TOKEN

KEY_S: Final = 24 * 3600.0
MOST_KEYS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """Request that had a key, and the operation that it began or joined."""

    request: Record
    operation: int
    at_s: float
    """Monotonic time."""


class RequestKeys:
    """Requests of the last day by operator and key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], KeyedRequest] = OrderedDict()

    def operation(self, uid: int, key: str, request: Record, now_s: float) -> int | None:
        """Return the operation of a request that was made before; None: the key is new, or a day old.

        Raises:
            BadRequestError: the key was used for another request.
        """
        kept = self._kept.get((uid, key))
        if kept is None or now_s - kept.at_s >= KEY_S:
            return None
        if kept.request != request:
            raise BadRequestError("this key was used for another request: choose a new one")
        return kept.operation

    def keep(self, uid: int, key: str, request: Record, operation: int, now_s: float) -> None:
        """Keep which operation a request has begun."""
        self._kept.pop((uid, key), None)
        self._kept[uid, key] = KeyedRequest(request=request, operation=operation, at_s=now_s)
        while len(self._kept) > MOST_KEYS:
            self._kept.popitem(last=False)


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
