"""TLS handshake, which counts as a connection from the moment its client is accepted.

    accepted --> handshake --> ClientConnection
                     '-------> closed: failed, too slow, or gave way to another client

asyncio's own server shows a connection to its protocol only after the handshake: ten seconds of
50 to 80 KiB for each client that connects and stays silent, which no limit would see.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import Final

from appliance.gateway.callback_guard import guarded
from appliance.gateway.relay.relay import Relay
from appliance.model.gateway import Refusal
from appliance.routing.fair_share import Share, ShareUse

_log = logging.getLogger(__name__)

_HANDSHAKE_S: Final = 10.0


class Handshake(asyncio.Protocol):
    """Handshake of one client's TLS, which counts as a connection in the shared capacity.

    Args:
        accepted: Socket of the client; taken over.
        relay: Counts the handshake until it has ended.
        protocol: Protocol of the connection after its handshake.
    """

    local = False
    """Whether the client is on this machine: never, since loopback is served without TLS."""

    def __init__(
        self,
        accepted: socket.socket,
        relay: Relay,
        protocol: asyncio.BaseProtocol,
    ) -> None:
        self._socket = accepted
        self._relay = relay
        self._protocol = protocol
        self._task: asyncio.Task[None] | None = None
        self._ends_s: float | None = None
        self.owner = relay.peers.owner_of(accepted)

    def start(self, context: ssl.SSLContext) -> None:
        """Count the connection and begin; a refusal is left to the protocol that follows."""
        self._task = asyncio.ensure_future(self._shake_hands(context))
        self._task.add_done_callback(self._ended)
        self._relay.add_client(self)

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self, self._socket, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except OSError as error:
            # Includes ssl.SSLError, which every scan of the port causes.
            _log.debug("TLS handshake with %s failed: %s", self.owner, error)

    @guarded
    def _ended(self, _: asyncio.Task[None]) -> None:
        self._relay.remove_client(self)

    def end_after_fault(self) -> None:
        self.abort()

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection, now encrypted, to the protocol that follows."""
        self._relay.remove_client(self)
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)

    # Calls when connections run short.

    def connection_share(self, number: int) -> Share:  # noqa: ARG002 - the oldest handshake gives way first
        """Return the handshake's share of the connections: that of a request without a byte."""
        return Share(self.owner, 1, ShareUse.READING, 0.0)

    def bytes_share(self, number: int) -> Share | None:  # noqa: ARG002
        return None

    def evict(self, why: Refusal) -> None:  # noqa: ARG002 - no response is possible before TLS
        """Close the connection for another client."""
        self.abort()

    def end_soon(self, at_s: float) -> None:
        """Close at a time of the event loop's clock, unless the handshake has ended before."""
        self._ends_s = at_s

    def expire_if_due(self, now_s: float) -> None:
        """Close the connection if its time is over."""
        if self._ends_s is not None and now_s >= self._ends_s:
            self.abort()

    def abort(self) -> None:
        """Close the connection now: the handshake fails at the end of input."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
