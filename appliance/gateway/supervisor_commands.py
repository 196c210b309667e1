"""What the supervisor's commands do in the gateway (see `appliance.protocol.gateway`)."""

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol, assert_never

from appliance.domain.gateway import State
from appliance.gateway.meter import Meter
from appliance.protocol.gateway import (
    DrainCommand,
    GatewayAnswer,
    GatewayCommand,
    HoldCommand,
    ReleaseCommand,
    ReloadCommand,
    RouteCommand,
    StatsCommand,
)

_log = logging.getLogger(__name__)


class Board(Protocol):
    """What clients are served by."""

    def take(self, state: State) -> None:
        """Serve by this from now on."""
        ...

    def hold(self, names: Sequence[str]) -> None:
        """Hold new requests for these profiles, until the next state says otherwise."""
        ...


class Traffic(Protocol):
    """The requests that are under way."""

    def in_flight(self, names: Sequence[str]) -> int:
        """Return how many requests were sent to these profiles and are not over."""
        ...

    async def drain(self, names: Sequence[str], timeout_s: float) -> tuple[int, int]:
        """Wait for them, then cut those that are left; return how many finished and were cut."""
        ...


class SupervisorCommands:
    """Does what the supervisor says.

    Args:
        board: Takes what the supervisor tells.
        traffic: Is drained.
        meter: Has measured it.
        reload: Reads keys and profiles again. What it raises is answered and logged.
    """

    def __init__(
        self, board: Board, traffic: Traffic, meter: Meter, *, reload: Callable[[], None]
    ) -> None:
        self._board = board
        self._traffic = traffic
        self._meter = meter
        self._reload = reload
        self._began_s = monotonic()

    async def do(self, command: GatewayCommand) -> GatewayAnswer:
        """Do what a command says. Raises `ValueError` when keys or profiles cannot be read."""
        match command:
            case RouteCommand(state):
                self._board.take(state)
            case HoldCommand(names):
                self._board.hold(names)
                return GatewayAnswer(waiting=self._meter.waiting(names))
            case DrainCommand(names, timeout_s):
                return await self._drain(names, timeout_s)
            case ReleaseCommand(state):
                waiting = self._meter.waiting()
                self._board.take(state)
                return GatewayAnswer(released=waiting)
            case StatsCommand():
                uptime_s = round(monotonic() - self._began_s, 1)
                return GatewayAnswer(stats={**self._meter.document(), "uptime_s": uptime_s})
            case ReloadCommand():
                self._try_reload()
            case never:
                assert_never(never)
        return GatewayAnswer()

    async def _drain(self, names: Sequence[str], timeout_s: float) -> GatewayAnswer:
        finished, cut = await self._traffic.drain(names, timeout_s)
        if cut:
            _log.warning("%d requests were cut after %.0f s", cut, timeout_s)
        return GatewayAnswer(finished=finished, cut=cut)

    def _try_reload(self) -> None:
        try:
            self._reload()
        except Exception as error:
            _log.exception("what was read before stays in force")
            raise ValueError(f"not read: {error}") from error
