"""The relay as a whole: clients on one side, engines on the other.

front = Front(router=…, observer=…, gatekeeper=…)
await loop.create_server(partial(front.connection, loopback=True), sock=listener)
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from appliance.domain.gateway import Key, Limits, Refusal, Routed
from appliance.gateway.downstream.connection import ASK_AGAIN_S, ClientConnection
from appliance.gateway.downstream.peers import Peers
from appliance.gateway.http import request_parser
from appliance.gateway.http.request_head import RequestHead
from appliance.gateway.relay.hold_queue import Waiting
from appliance.gateway.relay.ports import Gatekeeper, Observer, Router
from appliance.gateway.relay.scan_queue import ScanQueue
from appliance.gateway.relay.shared_room import Guest, Room
from appliance.gateway.upstream.pool import Flying, Lane
from appliance.planning.routing import paths
from appliance.planning.routing.origin_policy import Visitors

_FLUSH_S: Final = 1.0
_TURNS: Final = 4
"""Requests that came ahead of their turn, in each turn of the event loop; each may cost 0.1 ms."""
_SWEEPS: Final = 10
"""In the shortest of the limits."""

NO_KEY: Final = Refusal(
    status=401, code="key_missing", message="a key is needed here: appliance key add NAME"
)
WRONG_KEY: Final = Refusal(status=401, code="key_unknown", message="there is no such key")
DRAINED: Final = Refusal(
    status=503,
    code="switching",
    message="the model is being replaced, and the answer took longer than was waited for",
    retry_after_s=5,
)
STOPPED: Final = Refusal(
    status=503,
    code="restarting",
    message="the gateway is being restarted; ask again",
    retry_after_s=1,
)


class Front:
    """Everything that connections share.

    Args:
        router: Who serves what.
        observer: Observes requests.
        gatekeeper: Who may ask.
        limits: What clients may take.
        allowed: Paths that are exposed although they govern an engine.
        visitors: Who needs no key on loopback; None: everybody.
    """

    def __init__(
        self,
        *,
        router: Router,
        observer: Observer,
        gatekeeper: Gatekeeper,
        limits: Limits | None = None,
        allowed: Container[str] = (),
        visitors: Visitors | None = None,
    ) -> None:
        self.router = router
        self.observer = observer
        self.limits = limits or Limits()
        self._allowed = allowed
        self._visitors = visitors
        self.buffered_bytes = 0
        """Of request bodies that are kept, now."""
        self.waiting = Waiting(router, self.limits)
        self.scans = ScanQueue()
        self._ahead: deque[Callable[[], None]] = deque()
        """Requests that were sent ahead of their turn."""
        self.closing = False
        """Every connection ends with the answer that is under way."""
        self._gatekeeper = gatekeeper
        self._body_bytes = self.limits.body_bytes
        """At hand: every request is compared with it."""
        self._clients = Room(self.limits)
        self.peers = Peers()
        self._alone = asyncio.Event()
        """The last client has left; up to date only for those that cleared it and wait."""
        self._lanes: dict[str, Lane] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        shortest = min(self.limits.head_s, self.limits.body_s, self.limits.idle_s)
        self._sweep_s = min(max(min(shortest, self.limits.stuck_s) / _SWEEPS, 0.02), 1.0)

    def connection(self, *, loopback: bool, local: bool = True) -> ClientConnection:
        """A protocol for `loop.create_server`.

        Args:
            loopback: Clients need no key here.
            local: Clients are of this machine.
        """
        return ClientConnection(self, loopback=loopback, local=local)

    # What operations need.

    def in_flight(self, names: Iterable[str]) -> int:
        """Requests that were sent to these profiles and are not over."""
        return sum(len(lane.flying) for lane in self._chosen(names))

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for the requests to these profiles, then cut those that are left.

        Returns:
            How many finished, how many were cut.
        """
        lanes = self._chosen(names)
        before = _flying(lanes)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for lane in lanes:
                    while lane.flying:
                        lane.landed.clear()
                        await lane.landed.wait()
        left = _cut(lanes, DRAINED)
        return len(before - left), len(left)

    def close_idle(self) -> None:
        """Take no second request on any connection: idle ones are closed after a moment."""
        self.closing = True
        at_s = asyncio.get_running_loop().time() + ASK_AGAIN_S
        for client in self._clients:
            client.end_soon(at_s)

    async def stop(self, timeout_s: float) -> tuple[int, int]:
        """End everything: what is not over in time is cut with an error.

        Returns:
            How many requests finished, how many were cut.
        """
        lanes = list(self._lanes.values())
        before = _flying(lanes)
        self.close_idle()
        await self._until_alone(timeout_s)
        refused = self.waiting.refuse_all(STOPPED)
        left = _cut(list(self._lanes.values()), STOPPED)
        await self._hang_up()
        return len(before - left), len(left) + refused

    async def _until_alone(self, timeout_s: float) -> None:
        """Wait until every client has gone, at most so long."""
        self._alone.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s if len(self._clients) else 0):
                await self._alone.wait()

    async def _hang_up(self) -> None:
        """Close every connection, with a moment for what is still to be written."""
        loop = asyncio.get_running_loop()
        for client in self._clients:
            client.end_soon(loop.time())
            client.expire_if_due(loop.time())
        await self._until_alone(_FLUSH_S)
        for client in self._clients:
            client.abort()
        for lane in self._lanes.values():
            lane.pool.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self.peers.close()

    def _chosen(self, names: Iterable[str]) -> list[Lane]:
        return [self._lanes[name] for name in names if name in self._lanes]

    # What connections and requests need.

    def joined(self, client: Guest) -> Refusal | None:
        """A client has connected; a refusal when there are too many and nobody gives way."""
        refusal = self._clients.enter(client)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)
        return refusal

    def queue(self, step: Callable[[], None]) -> None:
        """Call this when a few others have had their turn: requests that came ahead of theirs."""
        if not self._ahead:
            asyncio.get_running_loop().call_soon(self._take_turns)
        self._ahead.append(step)

    def _take_turns(self) -> None:
        for _ in range(min(_TURNS, len(self._ahead))):
            self._ahead.popleft()()
        if self._ahead:
            asyncio.get_running_loop().call_soon(self._take_turns)

    def buffered(self, client: Guest, size: int) -> Refusal | None:
        """Count bytes that are kept for a client; a refusal when there is no room for them."""
        self.buffered_bytes += size
        return self._clients.buffer(client, self.buffered_bytes)

    def left(self, client: Guest) -> None:
        """It is gone."""
        self._clients.leave(client)
        if not len(self._clients):
            self._alone.set()

    def examined(self, head: RequestHead) -> Refusal | None:
        """None, or why nobody may send this here. Looks at what every request with it shares."""
        if head.place.governs and head.path not in self._allowed:
            return paths.not_exposed(head.path)
        if self._visitors is not None:
            head.keyless = self._visitors.refusal(head.host, head.origin, head.site)
        return None

    def admitted(self, head: RequestHead, length: int, *, loopback: bool) -> Key | Refusal | None:
        """Whose request it is; None: nobody's, from the box itself.

        Args:
            head: The request's.
            length: Of its body; -1: it is not known yet.
            loopback: No key is needed.
        """
        if length > self._body_bytes:
            return request_parser.large_body(self.limits)
        key = None
        if head.authorization is not None or head.api_key is not None:
            try:
                key = self._gatekeeper.check(head.authorization, head.api_key)
            except PermissionError:
                return WRONG_KEY
        if key is not None:
            return key
        return head.keyless if loopback else NO_KEY

    def lane(self, routed: Routed) -> Lane:
        """The way to a profile."""
        lane = self._lanes.get(routed.name)
        if lane is None:
            lane = self._lanes[routed.name] = Lane(routed, self.limits)
        elif lane.routed is not routed:
            lane.renew(routed)
        return lane

    def _sweep(self) -> None:
        """Look at every deadline; a timer for each would cost more than the requests do."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._clients.look_again()
        for client in self._clients:
            client.expire_if_due(now_s)
        idle = 0
        for lane in self._lanes.values():
            lane.pool.sweep(now_s)
            idle += lane.pool.idle
        again = len(self._clients) or idle
        self._sweeping = loop.call_later(self._sweep_s, self._sweep) if again else None


def _flying(lanes: Iterable[Lane]) -> set[Flying]:
    return {one for lane in lanes for one in lane.flying}


def _cut(lanes: Sequence[Lane], why: Refusal) -> set[Flying]:
    """End what is still under way with an error; what that was."""
    left = _flying(lanes)
    for one in left:
        one.cut(why)
    for lane in lanes:
        lane.pool.rest()
    return left
