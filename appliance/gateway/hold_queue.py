"""Queue of held requests, which wait until their profile serves.

Bounded in number and in time; when it is full, a newcomer gets the place of an owner who has more.
At every change each request is routed anew, in the order in which they came: after a switch that
was rolled back ``default`` is another profile than was hoped for. Clients of streams are sent the
head of their response and signs of life while they wait, but not at once: until then an error can still
be an error.
"""

import asyncio
from math import inf
from typing import Protocol

from appliance.gateway.event_loop import end_faulty
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Limits, Refusal
from appliance.routing.fair_share import Share, ShareUse, choose_evictions
from appliance.routing.refusals import QUEUE_FULL, WAIT_TOO_LONG


class HeldRequest(Protocol):
    """Request that waits: an exchange, as far as the queue uses it."""

    streams: bool
    """Whether the client asks for a stream of events."""

    @property
    def owner(self) -> str:
        """Return the owner of the client's connection."""
        ...

    def advance(self) -> None:
        """Route the request again, after a change or a pause."""
        ...

    def show_life(self) -> None:
        """Send a sign of life to the client of a held stream."""
        ...

    def refuse(self, why: Refusal) -> None:
        """Refuse the request; no other response may follow."""
        ...

    def end_after_fault(self) -> None:
        """Refuse the request with `GATEWAY_FAULT`, or break off what has begun."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


class _Entry:
    """Entry of one request. Times are the event loop's."""

    __slots__ = ("end_s", "sign_s")

    def __init__(self, sign_s: float, end_s: float) -> None:
        self.sign_s = sign_s
        """Time when the next sign of life is due; inf: never."""
        self.end_s = end_s


class HoldQueue:
    """Queue of requests that wait for a profile."""

    def __init__(self, router: RoutingTable, limits: Limits) -> None:
        self._router = router
        self._limits = limits
        self._entries: dict[HeldRequest, _Entry] = {}
        self._refused: set[str] = set()
        """Owners for whom no other request was evicted since one last left the queue."""
        self._worker: asyncio.Task[None] | None = None
        """Task that works on the queue; None: the queue is empty."""
        self._rerouted: _Entry | None = None
        """Entry of the request that is being routed anew, and may be added again."""

    def __len__(self) -> int:
        return len(self._entries)

    def requests(self) -> tuple[HeldRequest, ...]:
        """Return the requests that wait."""
        return tuple(self._entries)

    def add(self, held: HeldRequest) -> None:
        """Hold a request; refuse it when the queue is full."""
        entry, self._rerouted = self._rerouted, None
        if entry is None:
            if len(self._entries) >= self._limits.queue and not self._make_room(held):
                held.refuse(QUEUE_FULL)
                return
            now_s = asyncio.get_running_loop().time()
            sign_s = now_s + self._limits.quiet_s if held.streams else inf
            entry = _Entry(sign_s, now_s + self._limits.wait_s)
        self._entries[held] = entry
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def _make_room(self, newcomer: HeldRequest) -> bool:
        """Evict the newest request of the owner with the most; False: no owner has more."""
        if newcomer.owner in self._refused:
            return False
        requests = [*self._entries, newcomer]
        shares = [Share(one.owner, 1, ShareUse.WORKING, -n) for n, one in enumerate(requests)]
        evicted = choose_evictions(shares, newcomer.owner, least=1)
        for number in evicted:
            requests[number].refuse(QUEUE_FULL)
        if not evicted:
            self._refused.add(newcomer.owner)
        return bool(evicted)

    def remove(self, held: HeldRequest) -> None:
        """Drop a request that no longer waits."""
        self._refused.clear()
        self._entries.pop(held, None)

    def refuse_all(self, why: Refusal) -> int:
        """Refuse every request; return how many there were."""
        requests = tuple(self._entries)
        for held in requests:
            held.refuse(why)
        return len(requests)

    def close(self) -> None:
        """End the work on the queue, even while a request is still in it."""
        if self._worker is not None:
            self._worker.cancel()

    async def _work(self) -> None:
        """Route, show life and refuse until the queue is empty."""
        loop = asyncio.get_running_loop()
        changed = self._router.changed()
        # A change that was made before this line has not set a new future.
        self._reroute_all()
        try:
            while self._entries:
                due_s = min(min(e.sign_s, e.end_s) for e in self._entries.values())
                # Requests that are added during this wait are due after it.
                wait_s = min(due_s - loop.time(), self._limits.quiet_s, self._limits.wait_s)
                await asyncio.wait({changed}, timeout=max(0.0, wait_s))
                if changed.done():
                    changed = self._router.changed()
                    self._reroute_all()
                self._check_times(loop.time())
        finally:
            changed.cancel()
            self._worker = None

    def _reroute_all(self) -> None:
        for held in tuple(self._entries):
            # A request that was routed before may have ended this one.
            if held in self._entries:
                self._rerouted = self._entries.pop(held)
                held.advance()
                self._rerouted = None

    def _check_times(self, now_s: float) -> None:
        for held, entry in tuple(self._entries.items()):
            try:
                if now_s >= entry.end_s:
                    held.refuse(WAIT_TOO_LONG)
                elif now_s >= entry.sign_s:
                    entry.sign_s = now_s + self._limits.comment_every_s
                    held.show_life()
            except Exception as error:  # noqa: BLE001 - the guard of the others in the queue
                end_faulty(error, held.end_after_fault, held.abort)
