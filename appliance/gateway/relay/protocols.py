"""Protocols of the rest of the gateway that the relay uses: routes, keys, observation."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from appliance.domain.gateway import Key, Refusal, Routed

REROUTED: Final = 307
"""Status of an observation that ends because the request now waits for another profile."""


class Router(Protocol):
    """Router of requests, by the present state."""

    @property
    def ready(self) -> Mapping[str | None, Routed]:
        """Profile by model name, for requests without a key that may go to it at once.

        It has what `route` and `readiness` would return, for some of the names that were asked for
        since the last change: one look-up for two calls.
        """
        ...

    def route(self, model: str | None, key: Key | None) -> Routed | Refusal:
        """Return the profile for a request. It may be held or down: `readiness` tells.

        Args:
            model: Name that the client asks for; None: the request names none.
            key: Key of the request; None: a request from this machine, without a key.
        """
        ...

    def readiness(self, name: str, key: Key | None) -> bool | Refusal:
        """Tell whether a request to a profile may go now; False: the request waits for a change.

        Asks for a switch, where that is allowed and needed. A request that waits is routed again
        after the change: `default` may then be another profile.
        """
        ...

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change of any route or readiness."""
        ...

    def models(self, key: Key | None) -> bytes:
        """Return the body of ``GET /v1/models``."""
        ...

    def model(self, name: str, key: Key | None) -> bytes | Refusal:
        """Return the body of ``GET /v1/models/NAME``."""
        ...


class Observation(Protocol):
    """Observation of one request. `chunk` is on the hottest path."""

    def sent(self) -> None:
        """Note that the request went to the engine; called again for every further attempt."""
        ...

    def chunk(self, size: int) -> None:
        """Note that a chunk of the response body has come."""
        ...

    def owed(self, *, owed: bool) -> None:
        """Note whether the engine owes bytes.

        It owes none while the client reads none, nor after a change of protocol.
        """
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
