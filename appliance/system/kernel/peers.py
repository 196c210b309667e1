"""Owners of the peers of connections: a user of this machine, or another machine.

All programs of the box have the same address, so on loopback the kernel is asked whose socket the
other end is (``sock_diag(7)``, one exact query: 3 µs, where ``/proc/net/tcp`` takes as long as it
has lines). The owner is only looked up when connections or buffered bytes run short.
"""

import contextlib
import socket
import struct
from typing import Any, Final

from appliance.model.gateway import is_loopback
from appliance.routing.fair_share import group_of

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
"""Format of nlmsghdr: length, type, flags, sequence, port."""
_QUERY: Final = struct.Struct("=BBBxI")
"""Format of inet_diag_req_v2 up to `id`: family, protocol, extensions, states."""
_SOCKET_ID: Final = struct.Struct("!HH16s16sI")
"""Format of inet_diag_sockid without the cookie: ports, addresses, interface."""
_NO_COOKIE: Final = b"\xff" * 8
_UID_AT: Final = 4 + 48 + 12
"""Offset of idiag_uid in inet_diag_msg; idiag_inode follows, 0 for a closed socket."""
_UID_AND_INODE: Final = struct.Struct("=II")
_MOST_BYTES: Final = 4096
UNKNOWN_OWNER: Final = "nobody"
"""Owner of a connection whose peer has closed it or cannot be found."""


class Peers:
    """Lookup of owners; without an answer of the kernel all programs of the box are one owner.

    Args:
        kernel: Socket of ``NETLINK_SOCK_DIAG`` in the network of the connections, for a process in another
            one; None: one is opened when it is needed.
    """

    def __init__(self, kernel: socket.socket | None = None) -> None:
        self._kernel = kernel
        if kernel is not None:
            kernel.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while kernel.recv(_MOST_BYTES):
                    """Answer to a request of a process before this one."""

    def owner_of(self, accepted: socket.socket) -> str:
        """Return the owner of a connection that was accepted."""
        try:
            return self.owner(accepted.getpeername(), accepted.getsockname())
        except OSError:
            return UNKNOWN_OWNER

    def owner(self, peer: Any, own: Any) -> str:
        """Return the owner of a connection.

        Args:
            peer: Address of the other end, from `getpeername`; None: closed.
            own: Address of this end, from `getsockname`.
        """
        if not peer or not own:
            return UNKNOWN_OWNER
        if not is_loopback(peer[0]):
            return group_of(peer[0])
        try:
            return self._user(peer, own)
        except OSError:
            return UNKNOWN_OWNER

    def _user(self, peer: Any, own: Any) -> str:
        if self._kernel is None:
            self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
            self._kernel.settimeout(0)
        self._kernel.send(_query(peer, own))
        message = self._kernel.recv(_MOST_BYTES)
        if _HEADER.unpack_from(message)[1] != _BY_FAMILY:
            return UNKNOWN_OWNER
        uid, inode = _UID_AND_INODE.unpack_from(message, _HEADER.size + _UID_AT)
        return f"user {uid}" if inode else UNKNOWN_OWNER

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._kernel is not None:
                self._kernel.close()
        self._kernel = None


def _query(peer: Any, own: Any) -> bytes:
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    addresses = [socket.inet_pton(family, one[0]).ljust(16, b"\0") for one in (peer, own)]
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    query += _SOCKET_ID.pack(peer[1], own[1], *addresses, 0) + _NO_COOKIE
    return _HEADER.pack(_HEADER.size + len(query), _BY_FAMILY, _REQUEST, 0, 0) + query
