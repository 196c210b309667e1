"""Port of a relay in tests, which accepts its clients as the gateway's process does."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.listeners import Acceptor
from appliance.gateway.relay import Relay


@contextmanager
def relay_port(relay: Relay, *, loopback: bool = True) -> Iterator[int]:
    """Port on 127.0.0.1 at which a relay has clients.

    Args:
        relay: Relay, which stays the caller's.
        loopback: Clients need no key.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        acceptor = Acceptor(
            listener, lambda _: ClientConnection(relay, loopback=loopback), relay.peers.owner_of
        )
        try:
            yield listener.getsockname()[1]
        finally:
            acceptor.close()
