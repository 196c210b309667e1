"""Actions on the box in the name of an operator, over the sockets of supervisor and health agent.

The web process has no right to any of them: each request carries the operator's token.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Protocol

from appliance.model.errors import ApplianceError, BusyError, UnreachableError
from appliance.model.operators import TokenOperator
from appliance.system.daemon_clients import TokenOwners
from appliance.wire.async_client import open_conversation
from appliance.wire.control_events import AcceptedEvent, EndedEvent
from appliance.wire.conversation import ActingRequest, ErrorEvent, RequestRefusedError, ResultEvent
from appliance.wire.health_socket import HealthEvent, ProbeNowRequest
from appliance.wire.token_socket import TOKEN
from appliance.wire.view_socket import VIEW

_log = logging.getLogger(__name__)

WITHIN_S: Final = 10.0
"""Time until the supervisor has accepted or refused: a preflight reads headers of models."""
AGENT_WITHIN_S: Final = 60.0
"""Time for the agent's answer: a test alert waits half a minute for its targets."""
PROBE_S: Final = 900.0
MOST_PROBES: Final = 2

Begun = AcceptedEvent | EndedEvent | ResultEvent
"""First word on a request to the supervisor: accepted, over already, or done without an operation."""


class BoxActions(Protocol):
    """Actions of operators. Every method raises `ApplianceError` where the box refuses or does not answer."""

    async def operator_of(self, token: str) -> TokenOperator:
        """Return the operator for whom a token stands; `PermissionDeniedError`: nobody."""
        ...

    async def operate(self, acting: ActingRequest) -> Begun:
        """Send a request of `appliance.wire.token_socket` to the supervisor; the operation goes on."""
        ...

    async def ask_agent(self, acting: ActingRequest) -> ResultEvent:
        """Send a request of `appliance.wire.view_socket` to the health agent."""
        ...

    async def begin_probe(self, token: str, name: str) -> None:
        """Probe one profile, and return when the probe has begun."""
        ...


class SocketBoxActions:
    """Actions over the daemons' sockets.

    Args:
        status_socket: The supervisor's, for the owners of tokens.
        token_socket: The supervisor's, for operators' requests.
        view_socket: The health agent's.
    """

    def __init__(self, status_socket: Path, token_socket: Path, view_socket: Path) -> None:
        self._owners = TokenOwners(status_socket)
        self._token_socket = token_socket
        self._view_socket = view_socket
        self._probes: set[asyncio.Task[None]] = set()

    async def operator_of(self, token: str) -> TokenOperator:
        """Return the operator for whom a token stands."""
        return await self._owners.operator_of(token)

    async def operate(self, acting: ActingRequest) -> Begun:
        """Return the first word on a request."""
        try:
            async with (
                asyncio.timeout(WITHIN_S),
                open_conversation(TOKEN, self._token_socket, acting) as events,
            ):
                async for event in events:
                    match event:
                        case AcceptedEvent() | EndedEvent() | ResultEvent():
                            return event
                        case ErrorEvent():
                            raise RequestRefusedError(event)
                        case _:
                            pass
        except TimeoutError as error:
            raise UnreachableError("the supervisor does not answer in time") from error
        raise UnreachableError(TOKEN.not_our_protocol)

    async def ask_agent(self, acting: ActingRequest) -> ResultEvent:
        """Return the result of a request."""
        try:
            async with (
                asyncio.timeout(AGENT_WITHIN_S),
                open_conversation(VIEW, self._view_socket, acting) as events,
            ):
                async for event in events:
                    if isinstance(event, ErrorEvent):
                        raise RequestRefusedError(event)
                    if isinstance(event, ResultEvent):
                        return event
        except TimeoutError as error:
            raise UnreachableError("the health agent does not answer in time") from error
        raise UnreachableError(VIEW.not_our_protocol)

    async def begin_probe(self, token: str, name: str) -> None:
        """Begin a probe; a task follows it, since it ends when its client leaves."""
        if len(self._probes) >= MOST_PROBES:
            raise BusyError("other probes that were asked for here run: appliance status")
        acting = ActingRequest(token, ProbeNowRequest(name))
        async with AsyncExitStack() as stack:
            events = await stack.enter_async_context(
                open_conversation(VIEW, self._view_socket, acting)
            )
            try:
                async with asyncio.timeout(WITHIN_S):
                    first = await anext(events)
            except TimeoutError as error:
                raise UnreachableError("the health agent does not answer in time") from error
            if isinstance(first, ErrorEvent):
                raise RequestRefusedError(first)
            task = asyncio.create_task(_follow(events, stack.pop_all()))
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)


async def _follow(events: AsyncGenerator[HealthEvent, None], opened: AsyncExitStack) -> None:
    """Read the events of a probe to its end, for a bounded time."""
    async with opened:
        try:
            async with asyncio.timeout(PROBE_S):
                async for _ in events:
                    pass
        except (ApplianceError, TimeoutError) as error:
            _log.warning("a probe that was asked for is not followed any more: %s", error)
