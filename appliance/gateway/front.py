"""The relay as a whole: clients on one side, engines on the other.

front = Front(router=…, observer=…, gatekeeper=…)
await loop.create_server(partial(front.connection, loopback=True), sock=listener)
"""

import asyncio
from collections.abc import Container, Iterable
from typing import Final

from appliance.domain.gateway import Key, Limits, Refusal, Routed
from appliance.gateway.client import ClientConnection, large_body
from appliance.gateway.counters import Counters
from appliance.gateway.heads import RequestHead
from appliance.gateway.interfaces import Gatekeeper, Observer, Router
from appliance.gateway.pool import Lane
from appliance.gateway.waiting import Waiting
from appliance.planning.routing import paths

_GRACE_S: Final = 1.0
"""For a client that uses its connection again and again: it is told with its next answer."""
_FLUSH_S: Final = 1.0
_SWEEPS: Final = 10
"""In the shortest of the limits."""

NO_KEY: Final = Refusal(
    status=401, code="key_missing", message="a key is needed here: appliance key add NAME"
)
WRONG_KEY: Final = Refusal(status=401, code="key_unknown", message="there is no such key")
CROWDED: Final = Refusal(
    status=503, code="too_many_connections", message="too many connections", retry_after_s=5
)
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
    """

    def __init__(
        self,
        *,
        router: Router,
        observer: Observer,
        gatekeeper: Gatekeeper,
        limits: Limits | None = None,
        allowed: Container[str] = (),
    ) -> None:
        self.router = router
        self.observer = observer
        self.limits = limits or Limits()
        self._allowed = allowed
        self.counters = Counters()
        self.waiting = Waiting(router, self.limits)
        self.closing = False
        """Every connection ends with the answer that is under way."""
        self._gatekeeper = gatekeeper
        self._clients: set[ClientConnection] = set()
        self._lanes: dict[str, Lane] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        shortest = min(self.limits.head_s, self.limits.body_s, self.limits.idle_s)
        self._sweep_s = min(max(min(shortest, self.limits.stuck_s) / _SWEEPS, 0.02), 1.0)

    def connection(self, *, loopback: bool) -> ClientConnection:
        """A protocol for `loop.create_server`.

        Args:
            loopback: Clients need no key here.
        """
        return ClientConnection(self, loopback=loopback)

    # What operations need.

    def in_flight(self, names: Iterable[str]) -> int:
        """Requests that were sent to these profiles and are not over."""
        return sum(len(lane.flying) for lane in self._chosen(names))

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for the requests to these profiles, then cut those that are left.

        Returns:
            How many finished, how many were cut.
        """
        return await self._drain(self._chosen(names), timeout_s, DRAINED)

    def close_idle(self) -> None:
        """Take no second request on any connection: idle ones are closed after a moment."""
        self.closing = True
        at_s = asyncio.get_running_loop().time() + _GRACE_S
        for client in self._clients:
            client.end_soon(at_s)

    async def stop(self, timeout_s: float) -> tuple[int, int]:
        """End everything: what is not over in time is cut with an error.

        Returns:
            How many requests finished, how many were cut.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        self.close_idle()
        # A client that has just been answered may be about to ask again on its connection, and
        # cannot know that it is being closed: it gets this one answer, and is told to reconnect.
        quiet_s = loop.time() + min(_GRACE_S, timeout_s)
        while self._clients and loop.time() < quiet_s:
            await asyncio.sleep(self._sweep_s)
        while len(self.waiting) and loop.time() < end_s:
            await asyncio.sleep(self._sweep_s)
        refused = self.waiting.refuse_all(STOPPED)
        left_s = max(0.0, end_s - loop.time())
        finished, cut = await self._drain(list(self._lanes.values()), left_s, STOPPED)
        await self._hang_up()
        return finished, cut + refused

    async def _drain(self, lanes: list[Lane], timeout_s: float, why: Refusal) -> tuple[int, int]:
        before = {one for lane in lanes for one in lane.flying}
        try:
            async with asyncio.timeout(timeout_s):
                for lane in lanes:
                    while lane.flying:
                        lane.landed.clear()
                        await lane.landed.wait()
        except TimeoutError:
            pass
        left = [one for lane in lanes for one in lane.flying]
        for one in left:
            one.cut(why)
        for lane in lanes:
            lane.pool.rest()
        return len(before.difference(left)), len(left)

    async def _hang_up(self) -> None:
        """Close every connection, with a moment for what is still to be written."""
        loop = asyncio.get_running_loop()
        for client in tuple(self._clients):
            client.end_soon(loop.time())
            client.expire_if_due(loop.time())
        end_s = loop.time() + _FLUSH_S
        while self._clients and loop.time() < end_s:
            await asyncio.sleep(self._sweep_s)
        for client in tuple(self._clients):
            client.abort()
        for lane in self._lanes.values():
            lane.pool.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _chosen(self, names: Iterable[str]) -> list[Lane]:
        return [self._lanes[name] for name in names if name in self._lanes]

    # What connections and requests need.

    def joined(self, client: ClientConnection) -> Refusal | None:
        """A client has connected; a refusal when there are too many."""
        self.counters.connections += 1
        self._clients.add(client)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)
        return CROWDED if len(self._clients) > self.limits.connections else None

    def left(self, client: ClientConnection) -> None:
        """It is gone."""
        self._clients.discard(client)

    def admitted(self, head: RequestHead, length: int, *, loopback: bool) -> Key | Refusal | None:
        """Whose request it is; None: nobody's, from the box itself.

        Args:
            head: The request's.
            length: Of its body; -1: it is not known yet.
            loopback: No key is needed.
        """
        if head.place.governs and head.path not in self._allowed:
            return paths.not_exposed(head.path)
        if length > self.limits.body_bytes:
            return large_body(self.limits)
        try:
            key = self._gatekeeper.check(head.authorization, head.api_key)
        except PermissionError:
            return WRONG_KEY
        return NO_KEY if key is None and not loopback else key

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
        for client in tuple(self._clients):
            client.expire_if_due(now_s)
        idle = 0
        for lane in self._lanes.values():
            lane.pool.sweep(now_s)
            idle += lane.pool.idle
        again = self._clients or idle
        self._sweeping = loop.call_later(self._sweep_s, self._sweep) if again else None
