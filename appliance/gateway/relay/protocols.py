"""What connections, requests and the front know of each other."""

from collections.abc import Callable
from typing import Protocol

from appliance.domain.gateway import Key, Limits, Refusal, Routed
from appliance.gateway.downstream.peers import Peers
from appliance.gateway.http.request_head import RequestHead
from appliance.gateway.relay.hold_queue import Waiting
from appliance.gateway.relay.ports import Observer, Router
from appliance.gateway.relay.scan_queue import ScanQueue
from appliance.gateway.relay.shared_room import Guest
from appliance.gateway.upstream.pool import Lane


class Client(Protocol):
    """Whose request it is."""

    @property
    def owner(self) -> str:
        """What it has in common with other connections of the same person."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def finished(self, *, close: bool) -> None:
        """The answer is complete."""
        ...

    def broken(self) -> None:
        """The answer will never be complete: break the connection."""
        ...

    def tunnel(self) -> None:
        """From here on it speaks another protocol."""
        ...

    def engine_blocked(self, *, blocked: bool) -> None:
        """Read no more for now; or read on."""
        ...


class Relay(Protocol):
    """What all requests share."""

    router: Router
    observer: Observer
    limits: Limits
    buffered_bytes: int
    """Of request bodies that are kept, now."""
    waiting: Waiting
    scans: ScanQueue
    closing: bool
    """Every connection ends with the answer that is under way."""

    def lane(self, routed: Routed) -> Lane:
        """The way to a profile."""
        ...


class Owner(Relay, Protocol):
    """What all connections share."""

    peers: Peers

    def joined(self, client: Guest) -> Refusal | None:
        """A client has connected; a refusal when there are too many and nobody gives way."""
        ...

    def queue(self, step: Callable[[], None]) -> None:
        """Call this when a few others have had their turn: requests that came ahead of theirs."""
        ...

    def buffered(self, client: Guest, size: int) -> Refusal | None:
        """Count bytes that are kept for a client; a refusal when there is no room for them."""
        ...

    def left(self, client: Guest) -> None:
        """It is gone."""
        ...

    def examined(self, head: RequestHead) -> Refusal | None:
        """None, or why nobody may send this here. Looks at what every request with it shares."""
        ...

    def admitted(self, head: RequestHead, length: int, *, loopback: bool) -> Key | Refusal | None:
        """Whose request it is; None: nobody's, from the box itself."""
        ...
