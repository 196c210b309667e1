"""Requests for profiles that are down: when to ask for a switch, and what to tell who waits.

Whose turn it is, `planning.routing.switch_scheduler` decides; this keeps the account of who has waited how
long, asks the supervisor for one switch at a time, and passes a failure on to the requests that
wait for it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final, assert_never

from appliance.domain.gateway import Key, Refusal, Routed, Standing
from appliance.gateway.routing_table import Table
from appliance.gateway.supervisor_client import Answer, Away, Busy, Done, Failed
from appliance.planning.routing.switch_scheduler import (
    FAILED_FOR_S,
    Box,
    LookAgain,
    SwitchTo,
    Turns,
    Waiting,
    failed,
    next_turn,
)

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.25
"""Nobody says when the last request in flight has ended, or the last that waited has left."""
_AWAY_S: Final = 5.0
"""After a supervisor that did not answer, until it is asked again."""
_BUSY_S: Final = 1.0

Ask = Callable[[str, str], Awaitable[Answer]]
"""Asks for a switch to a profile, on behalf of somebody."""
Count = Callable[[Sequence[str]], int]
"""How many requests for these profiles."""


class Wanting:
    """Turns wishes into switches.

    Args:
        table: Whose wishes they are.
        ask: Asks the supervisor.
        waiting: How many requests wait.
        in_flight: How many are with an engine.
        turns: The rules' figures.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        table: Table,
        ask: Ask,
        *,
        waiting: Count,
        in_flight: Count,
        turns: Turns,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clock = clock
        self._table = table
        self._ask = ask
        self._waiting = waiting
        self._in_flight = in_flight
        self._turns = turns
        self._since: dict[str, float] = {}
        self._behalf: dict[str, str] = {}
        self._failed_s: dict[str, float] = {}
        self._served: frozenset[str] = frozenset()
        self._served_s = 0.0
        self._wished = asyncio.Event()
        table.wish = self.wish

    def wish(self, profile: Routed, key: Key | None) -> None:
        """A request for a profile that is down begins to wait."""
        if profile.name not in self._since:
            self._since[profile.name] = self._clock()
            self._behalf[profile.name] = "gateway" if key is None else f"gateway (key {key.name})"
        self._wished.set()

    async def run(self) -> None:
        """Take turns for ever."""
        while True:
            changed = self._table.changed()
            self._wished.clear()
            step = self._next(self._clock())
            if isinstance(step, SwitchTo):
                changed.cancel()
                await self._switch(step.profile)
                continue
            await self._pause(changed, step)

    async def _pause(self, changed: asyncio.Future[None], step: LookAgain | None) -> None:
        at_s = float("inf") if step is None else step.at_s - self._clock()
        wait_s = min(at_s, _LOOK_S) if self._since else None
        wished = asyncio.ensure_future(self._wished.wait())
        either: set[asyncio.Future[Any]] = {changed, wished}
        try:
            await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            wished.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await wished

    # --- whose turn it is ------------------------------------------------------------

    def _next(self, now_s: float) -> SwitchTo | LookAgain | None:
        box = self._box(now_s)
        for name in list(self._since):
            if self._is_settled(name):
                del self._since[name], self._behalf[name]
        for name in [n for n in self._failed_s if not failed(n, now_s, box)]:
            del self._failed_s[name]
            self._table.forgive(name)
        waiting = [Waiting(profile=n, since_s=s) for n, s in self._since.items()]
        return next_turn(now_s, box, waiting, self._turns)

    def _is_settled(self, name: str) -> bool:
        """It serves, or comes, or nobody waits for it any more."""
        down = self._table.state.standing(name) is Standing.DOWN
        return not down or not self._waiting((name,)) or name not in self._table.catalogue

    def _box(self, now_s: float) -> Box:
        state, catalogue = self._table.state, self._table.catalogue
        serving = frozenset(
            name
            for name, profile in catalogue.items()
            if profile.exclusive and state.standing(name) is Standing.SERVING
        )
        if serving - self._served:
            self._served_s = now_s
        self._served = serving
        return Box(
            since_s=self._served_s if serving else None,
            in_flight=self._in_flight(sorted(serving)),
            busy=bool(state.held or state.target or state.paused),
            failed_s=self._failed_s,
        )

    # --- a switch --------------------------------------------------------------------

    async def _switch(self, name: str) -> None:
        behalf = self._behalf.get(name, "gateway")
        _log.info("asking for a switch to %s for %s", name, behalf)
        answer = await self._ask(name, behalf)
        match answer:
            case Done():
                # What serves is told over gateway.sock; until then this one had its turn.
                await self._until_told(name)
            case Busy():
                await asyncio.sleep(_BUSY_S)
            case Away():
                self._fail(name, "the supervisor does not answer", for_s=_AWAY_S)
            case Failed(why):
                self._fail(name, why, for_s=FAILED_FOR_S)
            case never:
                assert_never(never)

    async def _until_told(self, name: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AWAY_S):
                while self._table.state.standing(name) is Standing.DOWN:
                    await self._table.changed()

    def _fail(self, name: str, why: str, *, for_s: float) -> None:
        _log.warning("no switch to %s: %s", name, why)
        self._failed_s[name] = self._clock() - FAILED_FOR_S + for_s
        self._table.fail(
            name,
            Refusal(
                status=503,
                code="switch_failed",
                message=f"{name} was asked for and does not serve: {why}",
                param="model",
                retry_after_s=round(for_s),
            ),
        )
