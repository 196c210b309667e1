"""Protocols of the rest of the gateway that the relay uses: keys, observation, the lane."""

from dataclasses import dataclass
from typing import Final, Protocol

from appliance.model.gateway import Key

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
        """Return the progress of the request, for whoever looks at it."""
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
