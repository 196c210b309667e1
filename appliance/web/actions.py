"""Actions from the page and the API: on the box in the name of an operator, and trials of prompts.

The web process has no right to act on the box: each request to the supervisor or the health agent carries the operator's
token. A trial of a prompt uses the gateway's ordinary client API, over a socket of this process alone; prompt
and answer pass through and are kept nowhere: no log, no address and no error has them. A browser that leaves ends
its request at the engine.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final, Protocol

from appliance.model.errors import ApplianceError, BackendError, BusyError, UnreachableError
from appliance.model.json_reader import decode_json
from appliance.model.operators import TokenOperator
from appliance.speed.event_stream import EventStreamParser, text_of_choice
from appliance.system.daemon_clients import TokenOwners
from appliance.system.front_client import FrontClient
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


MOST_PROMPT: Final = 8000
"""Characters of a prompt."""
MOST_TRIALS: Final = 2
"""Trials at once: this process has 32 tasks, and the box other clients."""
_MOST_TOKENS: Final = 1024
_MOST_BYTES: Final = 1 << 20
"""Bytes of an answer's stream: 1024 tokens take 300 KiB."""
_WITHIN_S: Final = 300.0
_PATH: Final = "/v1/chat/completions"
_BUSY: Final = "other prompts are being answered: try again when they are done"


class PromptTrials(Protocol):
    """Trials of prompts."""

    def answer(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        """Yield an answer in pieces. Raises `BusyError` before the first, `BackendError` where it fails."""
        ...


class GatewayTrials:
    """Trials through the gateway.

    Args:
        path: Socket of the gateway for this process.
    """

    def __init__(self, path: Path) -> None:
        self._client = FrontClient("localhost", 8010, path=path)
        self._running = 0

    async def answer(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        """Yield an answer in pieces."""
        if self._running >= MOST_TRIALS:
            raise BusyError(_BUSY)
        self._running += 1
        try:
            async for text in self._pieces(profile, prompt):
                yield text
        finally:
            self._running -= 1

    async def _pieces(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        parser = EventStreamParser(_MOST_BYTES)
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        body = {
            "model": profile,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "max_tokens": _MOST_TOKENS,
        }
        asking = asyncio.create_task(
            self._client.post(
                _PATH, body, lambda piece, _at_s: arrived.put_nowait(piece), timeout_s=_WITHIN_S
            )
        )
        asking.add_done_callback(lambda _task: arrived.put_nowait(None))
        try:
            while (piece := await arrived.get()) is not None and not parser.overflowed:
                for data in parser.feed(piece):
                    if text := _text_of(data):
                        yield text
            if parser.overflowed:
                raise BackendError("the answer is too long to be shown")
            if fault := (await asking).fault:
                raise BackendError(f"the gateway's answer: {fault}")
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking


def _text_of(data: bytes) -> str:
    """Return the text of an event. Raises `BackendError` for one that is an error."""
    try:
        event = decode_json(data)
    except ValueError:
        return ""
    if not isinstance(event, dict):
        return ""
    if event.get("error") is not None:
        raise BackendError("the answer broke off: appliance status")
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return text_of_choice(choice) if isinstance(choice, dict) else ""
