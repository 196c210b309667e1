"""What the relay asks of the rest of the gateway."""

import asyncio
from typing import Protocol

from appliance.domain.gateway import Key, Refusal, Routed


class Router(Protocol):
    """Who serves what, now."""

    def route(self, model: str | None, key: Key | None) -> Routed | Refusal:
        """The profile for a request. It may be held or down yet: `ready` tells.

        Args:
            model: What the client asks for; None: it does not say.
            key: Whose request it is; None: nobody's, from the box itself.
        """
        ...

    def ready(self, name: str, key: Key | None) -> bool | Refusal:
        """Whether a request to a profile may go now; False: it has to wait for a change.

        Asks for a switch, where that is allowed and needed.

        Who waits routes again after the change: `default` may have become another profile.
        """
        ...

    def changed(self) -> asyncio.Future[None]:
        """Is done at the next change of anything that `route` and `ready` answer."""
        ...

    def models(self, key: Key | None) -> bytes:
        """The body of ``GET /v1/models``."""
        ...

    def model(self, name: str, key: Key | None) -> bytes | Refusal:
        """The body of ``GET /v1/models/NAME``."""
        ...


class Measured(Protocol):
    """One request under observation. `chunk` is on the hottest path."""

    def sent(self) -> None:
        """The request went to the engine; called again when it had to be sent again."""
        ...

    def chunk(self, size: int) -> None:
        """So many bytes of the answer's body have come."""
        ...

    def due(self, *, due: bool) -> None:
        """Whether the engine owes bytes: not while the client reads none, nor in another protocol."""
        ...

    def ended(self, status: int, tail: bytes, size: int = 0) -> None:
        """It is over.

        Args:
            status: What the client was told; 0: nothing, it went away.
            tail: The last bytes of the answer's body, for ``usage`` and ``timings``.
            size: Bytes of the body that no `chunk` has told of: all of them, if it came at once.
        """
        ...


class Observer(Protocol):
    """Observes requests."""

    def began(self, profile: str, key: Key | None) -> Measured:
        """A request was routed to a profile."""
        ...


class Gatekeeper(Protocol):
    """Who may ask."""

    def check(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:
        """The key of a request.

        Args:
            authorization: The header ``Authorization``; None: absent.
            api_key: The header ``x-api-key``; None: absent.

        Raises:
            PermissionError: There is a key, and it is none of ours.
        """
        ...
