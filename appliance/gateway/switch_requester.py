"""Requester of switches at the supervisor, for held requests whose profile is down.

`routing.switch_scheduler` decides which profile is next. The requester records since when requests wait
for each profile, requests one switch at a time from the supervisor, and passes a failure on to the
requests that wait for that profile. A switch is cancelled once no request waits for its profile any more
and a request waits for another one; a profile for which no request waited at the end of its switch is not
protected by the residency until it is used. The gateway requests nothing else from the supervisor.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, assert_never

from appliance.gateway.routing_table import RoutingTable
from appliance.model.errors import PermissionDeniedError, UnreachableError
from appliance.model.gateway import Key, Routed, Standing
from appliance.model.operations import Outcome
from appliance.routing.refusals import switch_failed
from appliance.routing.switch_scheduler import (
    BoxState,
    CheckAgain,
    SwitchPolicy,
    SwitchTo,
    WaitingProfile,
    failure_pause_s,
    has_failed,
    next_switch,
)
from appliance.wire.async_client import details_of, open_conversation
from appliance.wire.control_events import AcceptedEvent, ClosingEvent, EndedEvent
from appliance.wire.control_requests import CONTROL, AbandonRequest, OnRequestSwitch
from appliance.wire.conversation import (
    GREETING_S,
    ErrorEvent,
    ErrorKind,
    RequestRefusedError,
)

_NO_REASON: Final = "no reason given"
_log = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 0.25
"""Interval of checks, because no event reports that the last request in flight has ended, or the last
that waited."""
_AWAY_S: Final = 5.0
"""Pause before another request to a supervisor that did not answer."""
_BUSY_S: Final = 1.0

Count = Callable[[Sequence[str]], int]
"""Function that counts requests for these profiles."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result: the profile serves, or the supervisor left during the operation and will finish it."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Result: another operation runs, or an operator holds the box."""


@dataclass(frozen=True, slots=True)
class Away:
    """Result: the supervisor does not answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Result: the profile does not serve."""

    why: str


Answer = Done | Busy | Away | Failed
Began = Callable[[int], None]
"""Function that is called with the number of the operation, once it is accepted."""
Ask = Callable[[str, str, Began], Awaitable[Answer]]
"""Function that asks the supervisor for a switch to a profile, on behalf of a client."""
Cancel = Callable[[int], Awaitable[None]]
"""Function that asks the supervisor to cancel an operation that the gateway has asked for."""


async def cancel_switch(socket: Path, operation: int) -> None:
    """Have an operation cancelled, unless it is over or a person's; how it ends shows which."""
    with contextlib.suppress(UnreachableError, PermissionDeniedError, RequestRefusedError):
        await details_of(CONTROL, socket, AbandonRequest(operation), within_s=GREETING_S)


async def ask_for_switch(
    socket: Path, name: str, on_behalf: str, began: Began = lambda _operation: None
) -> Answer:
    """Have the box switched to a profile; returns when the operation is over.

    Only the beginning has a deadline: a load may take an hour.

    Args:
        socket: The supervisor's.
        name: The profile.
        on_behalf: Client that needs it; the supervisor records it beside the gateway's own user.
        began: Called with the number of the operation.
    """
    accepted = False
    try:
        async with (
            open_conversation(CONTROL, socket, OnRequestSwitch(name, on_behalf)) as events,
            asyncio.timeout(GREETING_S) as deadline,
        ):
            async for event in events:
                if isinstance(event, AcceptedEvent):
                    accepted = True
                    began(event.operation)
                    deadline.reschedule(None)
                elif isinstance(event, ClosingEvent):
                    return _answer(event)
    except RequestRefusedError as error:
        return _refused(error.kind, str(error))
    except (UnreachableError, PermissionDeniedError, TimeoutError):
        pass
    return Done() if accepted else Away()


def _answer(event: ClosingEvent) -> Answer:
    if isinstance(event, ErrorEvent):
        return _refused(event.kind, event.message)
    if isinstance(event, EndedEvent) and event.outcome == Outcome.DONE:
        return Done()
    return Failed(event.message or _NO_REASON)


def _refused(kind: ErrorKind, message: str) -> Answer:
    return Busy() if kind == "busy" else Failed(message or _NO_REASON)


class SwitchRequester:
    """Requester of one switch at a time.

    Args:
        table: Routing table whose held requests switches are for.
        ask: Asks the supervisor.
        cancel: Has the supervisor cancel what was asked.
        waiting: Counts held requests.
        in_flight: Counts requests that are with an engine.
        policy: Residency and patience.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        table: RoutingTable,
        ask: Ask,
        cancel: Cancel,
        *,
        waiting: Count,
        in_flight: Count,
        policy: SwitchPolicy,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clock = clock
        self._table = table
        self._ask = ask
        self._cancel = cancel
        self._waiting = waiting
        self._in_flight = in_flight
        self._policy = policy
        self._since: dict[str, float] = {}
        """Time when the first request that waits for a profile began to wait."""
        self._on_behalf: dict[str, str] = {}
        """Client of that request."""
        self._paused_until_s: dict[str, float] = {}
        """Times until which profiles are not switched to, because the last switch failed."""
        self._failures: dict[str, tuple[Routed | None, int]] = {}
        """Failed switches in succession, with the profile as it was applied then."""
        self._serving: frozenset[str] = frozenset()
        self._serving_since_s = 0.0
        self._unwanted: str | None = None
        """Profile that nobody waited for at the end of its switch, nor has used since; None: none."""
        self._requested = asyncio.Event()
        table.request_switch = self.request_switch

    def request_switch(self, profile: Routed, key: Key | None) -> None:
        """Note that a request waits for a profile that is down."""
        if profile.name not in self._since:
            self._since[profile.name] = self._clock()
            client = "a client without a key" if key is None else f"key {key.name}"
            self._on_behalf[profile.name] = client
        self._requested.set()

    async def run(self) -> None:
        """Request switches for ever."""
        while True:
            changed = self._table.changed()
            self._requested.clear()
            step = self._next(self._clock())
            if isinstance(step, SwitchTo):
                changed.cancel()
                await self._switch(step.profile)
                continue
            await self._wait(changed, step)

    async def _wait(self, changed: asyncio.Future[None], step: CheckAgain | None) -> None:
        at_s = float("inf") if step is None else step.at_s - self._clock()
        wait_s = min(at_s, _CHECK_EVERY_S) if self._since else None
        requested = asyncio.ensure_future(self._requested.wait())
        either: set[asyncio.Future[Any]] = {changed, requested}
        try:
            await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            requested.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await requested

    # --- choice of the next profile ------------------------------------------------------

    def _next(self, now_s: float) -> SwitchTo | CheckAgain | None:
        box = self._box_state(now_s)
        for name in list(self._since):
            if self._is_settled(name):
                del self._since[name], self._on_behalf[name]
        for name in [n for n in self._failures if self._is_forgiven(n)]:
            del self._failures[name]
            self._paused_until_s.pop(name, None)
            self._table.forgive(name)
        for name in [n for n in self._paused_until_s if not has_failed(n, now_s, box)]:
            del self._paused_until_s[name]
            self._table.forgive(name)
        waiting = [WaitingProfile(profile=n, since_s=s) for n, s in self._since.items()]
        return next_switch(now_s, box, waiting, self._policy)

    def _is_forgiven(self, name: str) -> bool:
        """Tell whether a profile has served since its switches failed, or was applied anew."""
        failed, _ = self._failures[name]
        serves = self._table.state.standing(name) is Standing.SERVING
        return serves or self._table.catalogue.get(name) != failed

    def _is_settled(self, name: str) -> bool:
        """Tell whether a profile serves, starts, or is not waited for any more."""
        down = self._table.state.standing(name) is Standing.DOWN
        return not down or not self._waiting((name,)) or name not in self._table.catalogue

    def _box_state(self, now_s: float) -> BoxState:
        state, catalogue = self._table.state, self._table.catalogue
        serving = frozenset(
            name
            for name, profile in catalogue.items()
            if profile.exclusive and state.standing(name) is Standing.SERVING
        )
        in_flight = self._in_flight(sorted(serving))
        if in_flight and self._unwanted in serving:
            self._unwanted, self._serving_since_s = None, now_s
        if serving - self._serving:
            self._serving_since_s = float("-inf") if self._unwanted in serving else now_s
        self._serving = serving
        return BoxState(
            since_s=self._serving_since_s if serving else None,
            in_flight=in_flight,
            busy=bool(state.held or state.target or state.paused),
            paused_until_s=self._paused_until_s,
        )

    # --- one switch ----------------------------------------------------------------------

    async def _switch(self, name: str) -> None:
        on_behalf = self._on_behalf.get(name, "a client")
        _log.info("asking for a switch to %s for %s", name, on_behalf)
        answer = await self._follow(name, on_behalf)
        match answer:
            case None:
                _log.info("the switch to %s was cancelled", name)
            case Done():
                # The new state comes over gateway.sock; until then no other switch is requested.
                await self._wait_for_state(name)
            case Busy():
                await asyncio.sleep(_BUSY_S)
            case Away():
                self._fail(name, "the supervisor does not answer", for_s=_AWAY_S)
            case Failed(why):
                self._fail(name, why, for_s=self._count_failure(name))
            case never:
                assert_never(never)

    async def _follow(self, name: str, on_behalf: str) -> Answer | None:
        """Ask for a switch, and cancel it when only another profile is waited for; None: cancelled."""
        operations: list[int] = []
        self._unwanted, cancelled = None, False
        asking = asyncio.ensure_future(self._ask(name, on_behalf, operations.append))
        others = [other for other in self._table.catalogue if other != name]
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=_CHECK_EVERY_S)
                if asking.done():
                    break
                if self._table.state.standing(name) is not Standing.SERVING:
                    # Afterwards its requests wait no more, because they are sent.
                    self._unwanted = None if self._waiting((name,)) else name
                if self._unwanted and operations and not cancelled and self._waiting(others):
                    cancelled = True
                    _log.info("nobody waits for %s any more: the switch is cancelled", name)
                    await self._cancel(operations[0])
            answer = asking.result()
        finally:
            asking.cancel()
        return None if cancelled and isinstance(answer, Failed) else answer

    async def _wait_for_state(self, name: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AWAY_S):
                while self._table.state.standing(name) is Standing.DOWN:
                    await self._table.changed()

    def _count_failure(self, name: str) -> float:
        """Count a failed switch; return the pause in seconds before the next."""
        _, before = self._failures.get(name, (None, 0))
        self._failures[name] = self._table.catalogue.get(name), before + 1
        return failure_pause_s(before + 1)

    def _fail(self, name: str, why: str, *, for_s: float) -> None:
        _log.warning("no switch to %s: %s", name, why)
        self._paused_until_s[name] = self._clock() + for_s
        self._table.fail(name, switch_failed(name, why, round(for_s)))
