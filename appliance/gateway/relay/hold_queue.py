"""The queue of requests that are held until their profile serves.

Bounded in number and in time; when it is full, a newcomer gets the place of an owner who has more.
At every change each request is routed anew, in the order in which they came: after a switch that
was rolled back ``default`` is another profile than was hoped for. Clients of streams are given the
head of their answer and comments while they wait, but not at once: until then an error can still
be an error.
"""

import asyncio
from math import inf
from typing import Final, Protocol

from appliance.domain.gateway import Key, Limits, Refusal
from appliance.gateway.relay.ports import Router
from appliance.planning.routing.fair_share import Share, Use, giving_way

_COMMENT: Final = "waiting for the model"

FULL: Final = Refusal(
    status=503,
    code="queue_full",
    message="too many requests wait for the model already",
    retry_after_s=5,
)
LATE: Final = Refusal(
    status=503,
    code="wait_too_long",
    message="the model did not become ready in time; appliance status tells why",
    retry_after_s=10,
)


class Held(Protocol):
    """A request that waits."""

    key: Key | None

    @property
    def owner(self) -> str:
        """Whose it is."""
        ...

    @property
    def streams(self) -> bool:
        """Whether its client may be given comments."""
        ...

    def advance(self) -> None:
        """Try again."""
        ...

    def comment(self, text: str) -> None:
        """Keep the client company."""
        ...

    def refuse(self, why: Refusal) -> None:
        """There will be no answer."""
        ...


class _Place:
    """A request's place in the queue."""

    __slots__ = ("comment_s", "end_s", "profile")

    def __init__(self, profile: str, comment_s: float, end_s: float) -> None:
        self.profile = profile
        self.comment_s = comment_s
        self.end_s = end_s


class Waiting:
    """Requests that are held."""

    def __init__(self, router: Router, limits: Limits) -> None:
        self._router = router
        self._limits = limits
        self._places: dict[Held, _Place] = {}
        self._refused: set[str] = set()
        """Owners for whom nobody gave way since somebody left."""
        self._keeper: asyncio.Task[None] | None = None
        self._moving: _Place | None = None
        """The place of the request that is being tried again: it may come back to it."""

    def __len__(self) -> int:
        return len(self._places)

    def count(self, profile: str) -> int:
        """How many wait for a profile."""
        return sum(place.profile == profile for place in self._places.values())

    def add(self, held: Held, profile: str) -> None:
        """Let a request wait; it is refused when there are too many."""
        place, self._moving = self._moving, None
        if place is None:
            if len(self._places) >= self._limits.queue and not self._make_room(held):
                held.refuse(FULL)
                return
            now_s = asyncio.get_running_loop().time()
            comment_s = now_s + self._limits.quiet_s if held.streams else inf
            place = _Place(profile, comment_s, now_s + self._limits.wait_s)
        place.profile = profile
        self._places[held] = place
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def _make_room(self, newcomer: Held) -> bool:
        """Refuse the newest request of whoever has the most; False: nobody has more."""
        if newcomer.owner in self._refused:
            return False
        places = [*self._places, newcomer]
        shares = [Share(one.owner, 1, Use.WORKING, -n) for n, one in enumerate(places)]
        gone = giving_way(shares, newcomer.owner, least=1)
        for place in gone:
            places[place].refuse(FULL)
        if not gone:
            self._refused.add(newcomer.owner)
        return bool(gone)

    def remove(self, held: Held) -> None:
        """A request waits no longer."""
        self._refused.clear()
        self._places.pop(held, None)

    def refuse_all(self, why: Refusal) -> int:
        """Let nobody wait any longer; how many did."""
        held = tuple(self._places)
        for one in held:
            one.refuse(why)
        return len(held)

    async def _keep(self) -> None:
        """Serve the queue for as long as there is one."""
        loop = asyncio.get_running_loop()
        changed = self._router.changed()
        # What changed before this line was seen by nobody.
        self._try_again()
        try:
            while self._places:
                due_s = min(min(p.comment_s, p.end_s) for p in self._places.values())
                await asyncio.wait({changed}, timeout=max(0.0, due_s - loop.time()))
                if changed.done():
                    changed = self._router.changed()
                    self._try_again()
                self._look_at_the_clock(loop.time())
        finally:
            changed.cancel()
            self._keeper = None

    def _try_again(self) -> None:
        for held in tuple(self._places):
            # Another one may have ended it meanwhile.
            if held in self._places:
                self._moving = self._places.pop(held)
                held.advance()
                self._moving = None

    def _look_at_the_clock(self, now_s: float) -> None:
        for held, place in tuple(self._places.items()):
            if now_s >= place.end_s:
                held.refuse(LATE)
            elif now_s >= place.comment_s:
                place.comment_s = now_s + self._limits.comment_every_s
                held.comment(_COMMENT)
