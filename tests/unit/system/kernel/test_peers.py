"""Owners of the other ends of connections."""

import os
import socket
from collections.abc import Iterator

import pytest

from appliance.system.kernel.peers import UNKNOWN_OWNER, Peers


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Open lookup of owners."""
    found = Peers()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_programs_of_this_machine_are_known_by_their_user(
    peers: Peers, family: socket.AddressFamily, address: str
) -> None:
    """Programs with one address have their user as the owner."""
    with socket.create_server((address, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        with listener.accept()[0] as ours:
            peer, own = ours.getpeername(), ours.getsockname()
            assert peers.owner(peer, own) == f"user {os.getuid()}"
            client.close()
            assert peers.owner(peer, own) == UNKNOWN_OWNER


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's socket")
def test_another_user_is_another_owner(peers: Peers) -> None:
    """The owner is the user who created the socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.seteuid(65534)
        client = socket.create_connection(listener.getsockname())
        os.seteuid(0)
        with client, listener.accept()[0] as ours:
            assert peers.owner(ours.getpeername(), ours.getsockname()) == "user 65534"


def test_other_machines_are_known_by_their_address(peers: Peers) -> None:
    """The kernel is not asked for a remote address."""
    assert peers.owner(("192.0.2.7", 4000), ("192.0.2.1", 8010)) == "192.0.2.7"
    assert peers.owner(("2001:db8::7", 4000, 0, 0), ("2001:db8::1", 8010, 0, 0)).endswith("/64")


def test_who_has_gone_is_nobody(peers: Peers) -> None:
    """A closed connection, and one that the kernel does not know, have the unknown owner."""
    assert peers.owner(None, None) == UNKNOWN_OWNER
    assert peers.owner(("127.0.0.1", 1), ("127.0.0.1", 2)) == UNKNOWN_OWNER
