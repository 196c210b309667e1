"""Port `Gateway`, over gateway.sock (see `appliance.wire.gateway`).

Operations go on without a gateway that is not there or does not answer at once: clients then wait
or fail as they would without one. What serves is sent when it changes, and again with a look of the
supervisor a second later or more, so that a gateway that was away learns it within seconds;
meanwhile it goes by the last state it had.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.model.gateway import Standing, State
from appliance.status.summary import drained_text, held_text, released_text
from appliance.wire.gateway import (
    MAX_ANSWER_BYTES,
    CommandRefused,
    CutCommand,
    DrainCommand,
    GatewayAnswer,
    GatewayCommand,
    HoldCommand,
    ReleaseCommand,
    ReloadCommand,
    RequestsCommand,
    RouteCommand,
    StatsCommand,
    decode_answer,
    encode_command,
    verb_of,
)

_HANDED_OVER_S: Final = 0.02
"""Time for a process that has handed over to another to stop listening."""
_FIGURES_S: Final = 0.25
"""Time that a status waits for figures, at most."""
_REPEAT_S: Final = 1.0
"""Time for which an acknowledged state is not sent again: a switch looks a dozen times in 0.1 s,
and each exchange takes 1 ms of both processes."""


class SocketGateway:
    """Port `Gateway`. `run` has to run for `route` to have an effect.

    Args:
        path: Of gateway.sock.
        patience_s: For an answer.
        figures_s: For figures, for which a status waits.
        repeat_s: How long an acknowledged state is not sent again.
    """

    def __init__(
        self,
        path: Path,
        *,
        patience_s: float = 1.0,
        figures_s: float = _FIGURES_S,
        repeat_s: float = _REPEAT_S,
    ) -> None:
        self._path = path
        self._figures_s = figures_s
        self._patience_s = patience_s
        self._repeat_s = repeat_s
        self._state: State | None = None
        """State to route by; None: the supervisor has not looked at the box yet, and the gateway goes by what it has."""
        self._acknowledged: State | None = None
        """State that the gateway has acknowledged; None: not known."""
        self._acknowledged_s = 0.0
        self._told = asyncio.Event()
        self._turn = asyncio.Lock()
        self._reload = False
        self._away = ""

    async def run(self) -> None:
        """Send the gateway the state to route by, for ever."""
        while True:
            await self._told.wait()
            async with self._turn:
                self._told.clear()
                if self._reload:
                    # Cleared first: an apply during the exchange asks for another one.
                    self._reload = False
                    if await self._ask(ReloadCommand()) is None:
                        self._reload = True
                if self._state is not None and not self._is_acknowledged(self._state):
                    await self._send(RouteCommand(self._state))

    def route(self, state: State) -> None:
        """Have the gateway route by this state from now on; does not wait."""
        self._state = state
        self._told.set()

    def reload(self) -> None:
        """Have the gateway read keys and profiles again; does not wait."""
        self._reload = True
        self._told.set()

    async def hold(self, names: Sequence[str]) -> str | None:
        """Have the gateway hold new requests for `names`."""
        async with self._turn:
            # A state that is sent during the exchange must not undo it.
            before = self._state or State()
            self._state = after = replace(before, held=before.held | set(names))
            went_by = self._acknowledged
            answer = await self._ask(HoldCommand(tuple(names)))
            self._acknowledge(after if answer is not None and went_by == before else None)
        return None if answer is None else held_text(answer.waiting)

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:
        """Let requests in flight finish, at most `timeout_s`; a cancelled drain cuts none."""
        if self._away:
            return None  # the gateway held nothing either: do not wait as long as a drain may take
        command = DrainCommand(tuple(names), timeout_s)
        answer = await self._ask(command, within_s=timeout_s + 2 * self._patience_s)
        return None if answer is None else drained_text(answer.finished, answer.cut, timeout_s)

    async def release(self, state: State) -> str | None:
        """Have the gateway route by this state, and release held requests."""
        async with self._turn:
            self._state = state
            answer = await self._send(ReleaseCommand(state))
        return None if answer is None else released_text(answer.released)

    async def stats(self) -> Mapping[str, object] | None:
        """Return the gateway's figures; None: it does not answer."""
        answer = await self._ask(StatsCommand(), within_s=self._figures_s)
        return None if answer is None else answer.stats or None

    async def requests(self) -> Mapping[str, object] | None:
        """Return the list of requests in flight and held; None: the gateway does not answer."""
        answer = await self._ask(RequestsCommand(), within_s=self._figures_s)
        return None if answer is None else answer.requests

    async def cut(self, request: str) -> Mapping[str, object] | None:
        """End one request; return the list with it alone, None: the gateway does not answer."""
        answer = await self._ask(CutCommand(request))
        return None if answer is None else answer.requests

    async def _send(self, command: RouteCommand | ReleaseCommand) -> GatewayAnswer | None:
        """Send a state; returns the answer, None: none in time."""
        answer = await self._ask(command)
        self._acknowledge(None if answer is None else command.state)
        return answer

    def _acknowledge(self, state: State | None) -> None:
        self._acknowledged = state
        self._acknowledged_s = asyncio.get_running_loop().time()

    def _is_acknowledged(self, state: State) -> bool:
        """Tell whether the gateway has acknowledged a state, or one like it, moments ago."""
        known = self._acknowledged
        age_s = asyncio.get_running_loop().time() - self._acknowledged_s
        return known is not None and age_s < self._repeat_s and _is_like(known, state)

    async def _ask(
        self, command: GatewayCommand, *, within_s: float | None = None
    ) -> GatewayAnswer | None:
        """Return the answer to a command; None: none in time."""
        try:
            answer = await _answer_to(self._path, command, within_s=within_s or self._patience_s)
        except TimeoutError:
            self._is_away("no answer in time")
            return None
        except (OSError, ValueError) as error:
            self._is_away(str(error) or type(error).__name__)
            return None
        if isinstance(answer, CommandRefused):
            self._is_away(f"{verb_of(command)}: {answer.error}")
            return None
        if self._away:
            _log.info("the gateway answers again")
        self._away = ""
        return answer

    def _is_away(self, why: str) -> None:
        """Log that the gateway is away when that begins, not each time."""
        if not self._away:
            _log.warning("the gateway does not answer (%s): operations continue without it", why)
        self._away = why
        self._acknowledged = None


async def _answer_to(
    path: Path, command: GatewayCommand, *, within_s: float
) -> GatewayAnswer | CommandRefused:
    """Return the gateway's answer to a command, on a connection of its own: closing that ends a drain.

    Raises:
        TimeoutError: The gateway does not answer within `within_s`.
        OSError: The gateway is not there.
        ValueError: The line that comes is no answer.
    """
    async with asyncio.timeout(within_s):
        try:
            return await _exchange(path, command)
        except _HungUpError:
            # The process has just handed over: a new connection is one to the next process.
            await asyncio.sleep(_HANDED_OVER_S)
            return await _exchange(path, command)


class _HungUpError(OSError):
    """Connection that was closed without an answer."""


async def _exchange(path: Path, command: GatewayCommand) -> GatewayAnswer | CommandRefused:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER_BYTES)
    try:
        try:
            writer.write(encode_command(command))
            await writer.drain()
            line = await reader.readline()
        except ConnectionError as error:
            raise _HungUpError("the gateway closed the connection") from error
        if not line:
            raise _HungUpError("the gateway closed the connection")
        return decode_answer(line)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


_log = logging.getLogger(__name__)


def _is_like(one: State, other: State) -> bool:
    """Tell whether both states treat requests the same: those of held profiles wait in any case."""
    return replace(one, standings=_not_held(one)) == replace(other, standings=_not_held(other))


def _not_held(state: State) -> Mapping[str, Standing]:
    return {n: standing for n, standing in state.standings.items() if n not in state.held}
