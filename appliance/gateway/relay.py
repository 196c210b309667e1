"""What connections, requests and the front know of each other."""

from typing import Protocol

from appliance.domain.gateway import Limits, Routed
from appliance.gateway.interfaces import Observer, Router
from appliance.gateway.pool import Lane
from appliance.gateway.waiting import Waiting


class Client(Protocol):
    """Whose request it is."""

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
    closing: bool
    """Every connection ends with the answer that is under way."""

    def lane(self, routed: Routed) -> Lane:
        """The way to a profile."""
        ...
