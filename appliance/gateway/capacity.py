"""Capacity that clients share: connections, and bytes of request bodies.

While there is enough of both, no client is limited. Once there is not, `routing.fair_share`
chooses which connections give way. An eighth is reserved for clients of this machine: other clients
make room among themselves.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from appliance.model.gateway import Limits, Refusal
from appliance.routing.fair_share import Share, choose_evictions
from appliance.routing.refusals import BUSY, TOO_MANY_CONNECTIONS

_RESERVE: Final = 8
"""Divisor: one part in this many is reserved for this machine."""
_AT_ONCE: Final = 32
"""Divisor: one part in this many connections is closed at once, since choosing takes a
millisecond."""


class CountedConnection(Protocol):
    """Connection of a client, or a TLS handshake, that counts against the capacity."""

    local: bool
    """Whether the client is on this machine."""

    @property
    def owner(self) -> str:
        """Return the owner of the connection: a key, a user of this machine, or another machine."""
        ...

    def connection_share(self, number: int) -> Share:
        """Return the connection's share of all connections.

        Args:
            number: How many connections have come before it.
        """
        ...

    def bytes_share(self, number: int) -> Share | None:
        """Return the connection's share of the buffered bytes; None: it has none."""
        ...

    def evict(self, why: Refusal) -> None:
        """End the connection now, for another client."""
        ...

    def expire_if_due(self, now_s: float) -> None:
        """Act on a deadline that has passed, by the event loop's clock."""
        ...

    def end_soon(self, at_s: float) -> None:
        """Close at a time of the event loop's clock, unless a request comes before."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


class Capacity:
    """Connections of all clients, counted with their buffered bytes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connections: dict[CountedConnection, None] = {}
        """Connections in order of arrival."""
        self._remote = 0
        """Number of connections of other machines."""
        self._refused: set[str] = set()
        """Owners whose connections were refused since `forget_refusals`: a decision takes a
        millisecond."""
        self._refused_bytes: set[str] = set()
        """Owners whose buffered bytes were refused since then."""

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[CountedConnection]:
        return iter(tuple(self._connections))

    def forget_refusals(self) -> None:
        """Forget the refused owners, so that each is examined again."""
        self._refused.clear()
        self._refused_bytes.clear()

    def admit(self, connection: CountedConnection) -> Refusal | None:
        """Count a connection; evict others when there are too many.

        Returns:
            A refusal of this connection: no owner has more than its own.
        """
        most = self._limits.connections
        full = len(self._connections) >= most
        crowded = not connection.local and self._remote >= most - most // _RESERVE
        refusal = None
        if full or crowded:
            among = [one for one in self._connections if not (crowded and one.local)]
            refusal = self._make_room(connection, among)
        self._connections[connection] = None
        self._remote += not connection.local
        if refusal is not None and len(self._connections) > most + max(1, most // _RESERVE):
            # There are enough connections that are open only until they have their refusal.
            connection.abort()
        return refusal

    def remove(self, connection: CountedConnection) -> None:
        """Remove a connection from the count."""
        if connection in self._connections:
            del self._connections[connection]
            self._remote -= not connection.local

    def _make_room(
        self, newcomer: CountedConnection, among: list[CountedConnection]
    ) -> Refusal | None:
        if newcomer.owner in self._refused:
            return TOO_MANY_CONNECTIONS
        shares = [one.connection_share(number) for number, one in enumerate(among)]
        at_once = max(1, self._limits.connections // _AT_ONCE)
        evicted = choose_evictions(shares, newcomer.owner, least=1, most=at_once)
        for number in evicted:
            self.remove(among[number])
            among[number].evict(TOO_MANY_CONNECTIONS)
        if evicted:
            return None
        self._refused.add(newcomer.owner)
        return TOO_MANY_CONNECTIONS

    def check_buffered(self, connection: CountedConnection, used: int) -> Refusal | None:
        """Check that all buffered bytes fit; evict other connections when they do not.

        Args:
            connection: Connection whose bytes have come.
            used: Buffered bytes of all connections.

        Returns:
            A refusal of this connection's bytes.
        """
        most = self._limits.buffered_bytes
        if used <= most - most // _RESERVE or (connection.local and used <= most):
            return None
        if connection.owner in self._refused_bytes:
            return BUSY
        found = [(one, one.bytes_share(n)) for n, one in enumerate(self._connections)]
        shares = [(one, share) for one, share in found if share is not None]
        if not connection.local and used <= most:
            # The last eighth is for this machine; other machines share the rest.
            shares = [(one, share) for one, share in shares if not one.local]
            used = sum(share.size for _, share in shares)
            most -= most // _RESERVE
            if used <= most:
                return None
        evicted = choose_evictions(
            [share for _, share in shares], connection.owner, least=used - most
        )
        leaving = [shares[number][0] for number in evicted]
        for one in leaving:
            if one is not connection:
                one.evict(BUSY)
        if leaving and connection not in leaving:
            return None
        self._refused_bytes.add(connection.owner)
        return BUSY
