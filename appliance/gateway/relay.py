"""Relay: clients on one side, engines on the other, and the state that all requests share.

relay = Relay(router=…, observer=…, key_checker=…)
Acceptor(listener, lambda _: ClientConnection(relay, loopback=True))
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from appliance.gateway.capacity import Capacity, CountedConnection
from appliance.gateway.engine_pool import Upstream, UpstreamRequest
from appliance.gateway.event_loop import ReadBudget, WriteBatch, end_faulty
from appliance.gateway.hold_queue import HoldQueue
from appliance.gateway.request_body import ScanQueue
from appliance.gateway.request_head import RequestHead
from appliance.gateway.response import build_cors_lines
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Api, Key, Limits, Refusal, Routed, State
from appliance.routing import refusals
from appliance.routing.crash_record import CrashRecord
from appliance.routing.origin_policy import OriginPolicy
from appliance.system.kernel.peers import Peers

REROUTED: Final = 307
"""Status of an observation that ends because the request now waits for another profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProgress:
    """Progress of one request that is not over."""

    age_s: float
    """Time since it was routed to its profile."""
    waited_s: float | None
    """Time until it was sent to the engine; None: it was not."""
    pieces: int
    """Pieces of the response body that have come."""
    size_bytes: int
    """Bytes of those pieces."""


class Observation(Protocol):
    """Observation of one request. `chunk` is on the hottest path."""

    def sent(self) -> None:
        """Note that the request went to the engine, which happens once."""
        ...

    def chunk(self, size: int) -> None:
        """Note that a chunk of the response body has come."""
        ...

    def owed(self, *, owed: bool) -> None:
        """Note whether the engine owes bytes.

        It owes none while the client reads none, nor after a change of protocol.
        """
        ...

    def progress(self) -> RequestProgress:
        """Return the progress of the request, for the list of requests."""
        ...

    def end(self, status: int, tail: bytes, size: int = 0) -> None:
        """Note the end of the request.

        Args:
            status: Status that the client was sent; 0: none, the client hung up.
            tail: Last bytes of the response body, for ``usage`` and ``timings``.
            size: Bytes of the body that no `chunk` has counted: all of them, if it came at once.
        """
        ...


class Observer(Protocol):
    """Observer of all requests."""

    def begin(self, profile: str, key: Key | None) -> Observation:
        """Observe a request that was routed to a profile and is not sent yet."""
        ...

    def begin_sent(self, profile: str, key: Key | None) -> Observation:
        """Observe a request that was routed to a profile and sent to its engine at once."""
        ...


class KeyChecker(Protocol):
    """Checker of inference keys."""

    def check(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:
        """Return the key of a request; None: a request without a key.

        Args:
            authorization: Header ``Authorization``; None: absent.
            api_key: Header ``x-api-key``; None: absent.

        Raises:
            PermissionError: There is a key, and it is none of ours.
        """
        ...


class LaneHolder(Protocol):
    """Holder of the probe lane. Its methods end before the request goes on."""

    def request_sent(self, token: bytes | None) -> None:
        """Note that a request of a client goes to an engine next.

        Args:
            token: Header ``X-Appliance-Lease`` of the request; None: absent.
        """
        ...

    def make_way(self) -> None:
        """Note that a request of a client waits for a profile, or that an operation begins."""
        ...

    def owns(self, token: bytes | None) -> bool:
        """Tell whether a request with this header is the holder's own."""
        ...


LAST_REQUEST_S: Final = 1.0
"""Time for which a connection that is to end, unknown to its client, still takes a request: its
response has `Connection: close`."""
_FLUSH_S: Final = 1.0
_AHEAD_PER_TURN: Final = 4
"""Requests received ahead of their turn that are handled in each turn of the event loop; each may
cost 0.1 ms."""
_SWEEPS: Final = 10
"""Sweeps in the shortest of the limits."""


class Relay:
    """Relay with its connections, upstreams and queues.

    Args:
        router: Routes of requests.
        observer: Observer of requests.
        key_checker: Check of inference keys.
        limits: Limits of clients.
        allowed: Admin paths of engines that are exposed all the same.
        origin_policy: Who needs no key on loopback; None: every client there.
    """

    def __init__(
        self,
        *,
        router: RoutingTable,
        observer: Observer,
        key_checker: KeyChecker,
        limits: Limits | None = None,
        allowed: Container[str] = (),
        origin_policy: OriginPolicy | None = None,
    ) -> None:
        self.router = router
        self.observer = observer
        self.limits = limits or Limits()
        self._allowed = allowed
        self._origin_policy = origin_policy
        self.buffered_bytes = 0
        """Bytes of request bodies that are kept now."""
        self.writes = WriteBatch()
        self._reads = ReadBudget()
        self.hold_queue = HoldQueue(router, self.limits)
        self.scans = ScanQueue()
        self.crashes = CrashRecord()
        """Requests that engines had when they died."""
        router.watch_crashes = self._follow_crashes
        self.lane_holder: LaneHolder | None = None
        """Holder of the probe lane, called before a request of a client goes on; None: the lane is free."""
        self._deferred: deque[Callable[[], None]] = deque()
        """Requests that were sent ahead of their turn."""
        self.closing = False
        """Whether every connection ends with its present response."""
        self._key_checker = key_checker
        self.body_bytes = self.limits.body_bytes
        """Copy of the limit, which saves a look-up for every request."""
        self._clients = Capacity(self.limits)
        self.peers = Peers()
        self._alone = asyncio.Event()
        """Event that is set when the last client leaves; cleared by each waiter."""
        self.upstreams: dict[str, Upstream] = {}
        """Upstreams by profile."""
        self._sweeping: asyncio.TimerHandle | None = None
        shortest = min(self.limits.head_s, self.limits.body_s, self.limits.idle_s)
        self._sweep_s = min(max(min(shortest, self.limits.stuck_s) / _SWEEPS, 0.02), 1.0)

    # Calls of operations.

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests were sent to these profiles and are not over."""
        return sum(len(upstream.in_flight) for upstream in self._chosen(names))

    def requests_under_way(self) -> int:
        """Return how many requests to any profile wait, or were sent and are not over."""
        return self.in_flight(self.upstreams) + len(self.hold_queue)

    async def until_finished(self, names: Iterable[str]) -> None:
        """Wait until no request to these profiles is in flight."""
        for upstream in self._chosen(names):
            while upstream.in_flight:
                upstream.drained.clear()
                await upstream.drained.wait()

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for the requests to these profiles, then cut the rest.

        Returns:
            How many finished, how many were cut.
        """
        if self.lane_holder is not None:
            self.lane_holder.make_way()
        names = tuple(names)
        upstreams = self._chosen(names)
        before = _in_flight(upstreams)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.until_finished(names)
        left = _cut(upstreams, refusals.MODEL_REPLACED)
        return len(before - left), len(left)

    def close_idle(self) -> None:
        """Take no second request on any connection; close idle ones after a moment."""
        self.closing = True
        at_s = asyncio.get_running_loop().time() + LAST_REQUEST_S
        for client in self._clients:
            client.end_soon(at_s)

    async def stop(self, timeout_s: float) -> tuple[int, int]:
        """End everything; requests that are not over in time are cut with an error.

        Returns:
            How many requests finished, how many were cut.
        """
        before = _in_flight(self.upstreams.values())
        self.close_idle()
        await self._until_alone(timeout_s)
        refused = self.hold_queue.refuse_all(refusals.GATEWAY_STOPPED)
        left = _cut(list(self.upstreams.values()), refusals.GATEWAY_STOPPED)
        await self._hang_up()
        return len(before - left), len(left) + refused

    async def _until_alone(self, timeout_s: float) -> None:
        """Wait until every client has left, or the time is over."""
        self._alone.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s if len(self._clients) else 0):
                await self._alone.wait()

    async def _hang_up(self) -> None:
        """Close every connection, with a moment for unsent bytes."""
        loop = asyncio.get_running_loop()
        for client in self._clients:
            client.end_soon(loop.time())
            client.expire_if_due(loop.time())
        await self._until_alone(_FLUSH_S)
        for client in self._clients:
            client.abort()
        for upstream in self.upstreams.values():
            upstream.pool.close()
        self.hold_queue.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self.peers.close()

    def _follow_crashes(self, before: State, after: State) -> None:
        self.crashes.follow(before, after, asyncio.get_running_loop().time())

    def _chosen(self, names: Iterable[str]) -> list[Upstream]:
        return [self.upstreams[name] for name in names if name in self.upstreams]

    # Calls of connections and exchanges.

    def add_client(self, client: CountedConnection) -> Refusal | None:
        """Count a client that has connected; return a refusal when there are too many."""
        refusal = self._clients.admit(client)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)
        return refusal

    def defer(self, step: Callable[[], None]) -> None:
        """Call a step for a request received ahead of its turn, after others have had theirs."""
        if not self._deferred:
            asyncio.get_running_loop().call_soon(self._call_deferred)
        self._deferred.append(step)

    def _call_deferred(self) -> None:
        for _ in range(min(_AHEAD_PER_TURN, len(self._deferred))):
            self._deferred.popleft()()
        if self._deferred:
            asyncio.get_running_loop().call_soon(self._call_deferred)

    def count_buffered(self, client: CountedConnection, size: int) -> Refusal | None:
        """Count bytes kept for a client; return a refusal when there is no room for them."""
        self.buffered_bytes += size
        return self._clients.check_buffered(client, self.buffered_bytes)

    def remove_client(self, client: CountedConnection) -> None:
        self._clients.remove(client)
        if not len(self._clients):
            self._alone.set()

    def cors_lines(self, origin: bytes | None) -> bytes:
        """Return the header lines of responses to a web page; empty: it may not read them."""
        policy = self._origin_policy
        is_allowed = origin is not None and policy is not None and policy.allows(origin)
        return build_cors_lines(origin) if origin is not None and is_allowed else b""

    def examine(self, head: RequestHead, *, is_encrypted: bool = False) -> Refusal | None:
        """Check what all requests with the same head share; return a refusal, or None.

        Args:
            head: Request head, in which the results are noted.
            is_encrypted: The connection uses TLS.
        """
        if head.origin is not None:
            head.cors = self.cors_lines(head.origin)
        if head.preflight is not None:
            # Whatever the path, so that the page can read why its request is refused.
            return None if head.cors else refusals.ORIGIN_REFUSED
        path_class = head.path_class
        if path_class.is_admin and head.path not in self._allowed:
            return refusals.path_not_exposed(head.path)
        if path_class.api is Api.OLLAMA and head.path not in self._allowed:
            return refusals.ollama_not_spoken(head.path, _base_url(head, is_encrypted=is_encrypted))
        if self._origin_policy is not None:
            head.keyless = self._origin_policy.refusal(head.host, head.origin, head.site)
        bare = head.authorization is None and head.api_key is None
        head.needs_no_key = bare and head.keyless is None
        return None

    def authenticate(
        self, head: RequestHead, length: int, *, loopback: bool
    ) -> Key | Refusal | None:
        """Return the key of a request; None: a request from this machine, without a key.

        Args:
            head: Request head.
            length: Length of the body; -1: not known yet.
            loopback: No key is needed.
        """
        if length > self.body_bytes:
            return refusals.body_too_large(self.body_bytes)
        if head.preflight is not None:
            return None
        key = None
        if head.authorization is not None or head.api_key is not None:
            try:
                key = self._key_checker.check(head.authorization, head.api_key)
            except PermissionError:
                return refusals.KEY_UNKNOWN
        if key is not None:
            return key
        if loopback:
            return head.keyless
        return refusals.KEY_UNKNOWN if _has_credential(head) else refusals.KEY_MISSING

    def renew_upstream(self, routed: Routed) -> Upstream:
        """Return the upstream of a profile that is new or was applied anew."""
        upstream = self.upstreams.get(routed.name)
        if upstream is None:
            upstream = self.upstreams[routed.name] = Upstream(
                routed, self.limits, self.writes, self._reads
            )
        else:
            upstream.renew(routed)
        return upstream

    def _sweep(self) -> None:
        """Check every deadline; a timer for each would cost more than the requests do."""
        again = True
        try:
            again = self._check_deadlines(asyncio.get_running_loop().time())
        except Exception as error:  # noqa: BLE001 - the guard of a timer
            end_faulty(error)
        self._sweeping = (
            asyncio.get_running_loop().call_later(self._sweep_s, self._sweep) if again else None
        )

    def _check_deadlines(self, now_s: float) -> bool:
        """Check the deadlines of all connections; return whether there are any connections."""
        self._clients.forget_refusals()
        for client in self._clients:
            client.expire_if_due(now_s)
        idle = 0
        for upstream in self.upstreams.values():
            upstream.pool.sweep(now_s)
            idle += upstream.pool.idle
        return bool(len(self._clients) or idle)


def _has_credential(head: RequestHead) -> bool:
    """Tell whether a request has any text in the place of a key."""
    _, _, text = (head.authorization or b"").strip().partition(b" ")
    return bool(text.strip() or (head.api_key or b"").strip())


def _base_url(head: RequestHead, *, is_encrypted: bool) -> str:
    """Return the base URL of OpenAI's API, by the name that the client has for this address."""
    host = (head.host or b"127.0.0.1:8010").decode("ascii").strip()
    return f"http{'s' if is_encrypted else ''}://{host}/v1"


def _in_flight(upstreams: Iterable[Upstream]) -> set[UpstreamRequest]:
    return {request for upstream in upstreams for request in upstream.in_flight}


def _cut(upstreams: Sequence[Upstream], why: Refusal) -> set[UpstreamRequest]:
    """Cut requests that are not over with an error; return it."""
    left = _in_flight(upstreams)
    for request in left:
        request.cut(why)
    for upstream in upstreams:
        upstream.pool.close_idle()
    return left
