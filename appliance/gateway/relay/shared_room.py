"""The room that clients share: connections, and bytes of request bodies.

While there is enough nobody is counted. Once there is not, `planning.routing.fair_share` says who
gives way. An eighth is kept for this machine: clients elsewhere make room among themselves.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from appliance.domain.gateway import Limits, Refusal
from appliance.planning.routing.fair_share import Share, giving_way

_RESERVE: Final = 8
"""One part of so many is kept for this machine."""
_AT_ONCE: Final = 32
"""One part of so many connections is closed at once: looking at all of them takes a millisecond."""

CROWDED: Final = Refusal(
    status=503, code="too_many_connections", message="too many connections", retry_after_s=5
)
BUSY: Final = Refusal(
    status=503,
    code="busy",
    message="the requests that are being read take too much memory already",
    retry_after_s=5,
)


class Guest(Protocol):
    """A client's connection, as those that look after all of them see it."""

    local: bool
    """It is of this machine."""

    @property
    def owner(self) -> str:
        """What it has in common with other connections of the same person."""
        ...

    def share(self, number: int) -> Share:
        """What it takes of the connections.

        Args:
            number: How many have come before it.
        """
        ...

    def bytes_share(self, number: int) -> Share | None:
        """What it takes of the bytes; None: nothing."""
        ...

    def give_way(self, why: Refusal) -> None:
        """End it now, for somebody else."""
        ...

    def expire_if_due(self, now_s: float) -> None:
        """Look at its deadline, by the event loop's clock."""
        ...

    def end_soon(self, at_s: float) -> None:
        """Close at some time, unless a request comes before."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


class Room:
    """Everybody who is there."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._guests: dict[Guest, None] = {}
        """In the order in which they came."""
        self._others = 0
        """Of them, those of other machines."""
        self._refused: set[str] = set()
        """Owners for whom nobody gave way since `look_again`: finding that out takes a millisecond."""
        self._refused_bytes: set[str] = set()

    def __len__(self) -> int:
        return len(self._guests)

    def __iter__(self) -> Iterator[Guest]:
        return iter(tuple(self._guests))

    def look_again(self) -> None:
        """Forget who was refused."""
        self._refused.clear()
        self._refused_bytes.clear()

    def enter(self, guest: Guest) -> Refusal | None:
        """Let a connection in; somebody else may have to go. A refusal: nobody has more than it."""
        most = self._limits.connections
        full = len(self._guests) >= most
        crowded = not guest.local and self._others >= most - most // _RESERVE
        refusal = None
        if full or crowded:
            among = [one for one in self._guests if not (crowded and one.local)]
            refusal = self._make_room(guest, among)
        self._guests[guest] = None
        self._others += not guest.local
        if refusal is not None and len(self._guests) > most + max(1, most // _RESERVE):
            # So many are being told already.
            guest.abort()
        return refusal

    def leave(self, guest: Guest) -> None:
        """Forget a connection."""
        if guest in self._guests:
            del self._guests[guest]
            self._others -= not guest.local

    def _make_room(self, newcomer: Guest, among: list[Guest]) -> Refusal | None:
        if newcomer.owner in self._refused:
            return CROWDED
        shares = [guest.share(number) for number, guest in enumerate(among)]
        at_once = max(1, self._limits.connections // _AT_ONCE)
        gone = giving_way(shares, newcomer.owner, least=1, most=at_once)
        for place in gone:
            self.leave(among[place])
            among[place].give_way(CROWDED)
        if gone:
            return None
        self._refused.add(newcomer.owner)
        return CROWDED

    def buffer(self, guest: Guest, used: int) -> Refusal | None:
        """See that all bytes that are kept fit. A refusal: those of this connection do not.

        Args:
            guest: Whose bytes have come.
            used: How many there are in all.
        """
        most = self._limits.buffered_bytes
        if used <= most - most // _RESERVE or (guest.local and used <= most):
            return None
        if guest.owner in self._refused_bytes:
            return BUSY
        found = [(one, one.bytes_share(n)) for n, one in enumerate(self._guests)]
        shares = [(one, share) for one, share in found if share is not None]
        if not guest.local and used <= most:
            # Of the last eighth nothing is for them.
            shares = [(one, share) for one, share in shares if not one.local]
            used = sum(share.size for _, share in shares)
            most -= most // _RESERVE
            if used <= most:
                return None
        gone = giving_way([share for _, share in shares], guest.owner, least=used - most)
        leaving = [shares[place][0] for place in gone]
        for one in leaving:
            if one is not guest:
                one.give_way(BUSY)
        if leaving and guest not in leaving:
            return None
        self._refused_bytes.add(guest.owner)
        return BUSY
