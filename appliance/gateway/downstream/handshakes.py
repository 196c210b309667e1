"""TLS server that counts a client as a connection from the moment it is accepted.

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
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from appliance.adapters.kernel.peers import UNKNOWN_OWNER
from appliance.domain.gateway import Refusal
from appliance.gateway.callback_guard import end_faulty, guarded
from appliance.planning.routing.fair_share import Share, ShareUse

if TYPE_CHECKING:
    from appliance.gateway.relay.relay import Relay

_log = logging.getLogger(__name__)

_HANDSHAKE_S: Final = 10.0
_NO_FILES_S: Final = 0.5
"""Pause after an accept that failed: accept(2) fails at once again while descriptors are short."""


class TlsServer:
    """TLS server on one listening socket.

    Args:
        listener: Listening socket; closed with the server.
        context: Certificate and key.
        relay: Counts each connection, handshakes included.
        make_protocol: Makes the protocol that a connection has after its handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        relay: "Relay",
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._listener = listener
        self._listener.setblocking(False)  # noqa: FBT003 - has no keyword
        self._context = context
        self._relay = relay
        self._make_protocol = make_protocol
        self._accepting = asyncio.ensure_future(self._accept_all())

    def close(self) -> None:
        """Accept no more; handshakes under way go on."""
        self._accepting.cancel()
        self._listener.close()

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                _log.warning("a TLS client cannot be accepted: %s", error.strerror)
                await asyncio.sleep(_NO_FILES_S)
                continue
            try:
                Handshake(accepted, self._relay, self._make_protocol).start(self._context)
            except Exception as error:  # noqa: BLE001 - the guard of later clients
                end_faulty(error, accepted.close)


class Handshake(asyncio.Protocol):
    """Handshake of one client's TLS, which counts as a connection in the shared capacity.

    Args:
        accepted: Socket of the client; taken over.
        relay: Counts the handshake until it has ended.
        make_protocol: Makes the protocol that follows.
    """

    local = False
    """Whether the client is on this machine: never, since loopback is served without TLS."""

    def __init__(
        self,
        accepted: socket.socket,
        relay: "Relay",
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._socket = accepted
        self._relay = relay
        self._make_protocol = make_protocol
        self._task: asyncio.Task[None] | None = None
        self._ends_s: float | None = None
        try:
            own, peer = accepted.getsockname(), accepted.getpeername()
        except OSError:
            own = peer = None
        self.owner = UNKNOWN_OWNER if peer is None else relay.peers.owner(peer, own)

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
        protocol = self._make_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

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
