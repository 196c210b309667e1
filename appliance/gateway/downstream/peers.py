"""Who is at the other end of a connection: a user of this machine, or another machine.

All programs of the box have the same address, so on loopback the kernel is asked whose socket it is
(``sock_diag(7)``, one exact question: 3 µs, where reading ``/proc/net/tcp`` takes as long as it has
lines). It is only asked when there is no room for everybody.
"""

import contextlib
import socket
import struct
from typing import Any, Final

from appliance.domain.gateway import is_loopback
from appliance.planning.routing.fair_share import group_of

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_QUESTION: Final = struct.Struct("=BBBxI")
"""struct inet_diag_req_v2, up to `id`: family, protocol, extensions, states."""
_SOCKET_ID: Final = struct.Struct("!HH16s16sI")
"""struct inet_diag_sockid, without the cookie: ports, addresses, interface."""
_NO_COOKIE: Final = b"\xff" * 8
_UID_AT: Final = 4 + 48 + 12
"""In struct inet_diag_msg; idiag_inode follows, 0 for a socket that its program has closed."""
_OWNER: Final = struct.Struct("=II")
_MOST_BYTES: Final = 4096
NOBODY: Final = "nobody"
"""Who has hung up, or cannot be found."""


class Peers:
    """Asks the kernel; where it does not answer, all programs of the box count as one owner."""

    def __init__(self) -> None:
        self._kernel: socket.socket | None = None

    def owner(self, peer: Any, own: Any) -> str:
        """Who is at the other end.

        Args:
            peer: The address of the other end, as `getpeername` says; None: it is gone.
            own: The address of this end, as `getsockname` says.
        """
        if not peer or not own:
            return NOBODY
        if not is_loopback(peer[0]):
            return group_of(peer[0])
        try:
            return self._user(peer, own)
        except OSError:
            return NOBODY

    def _user(self, peer: Any, own: Any) -> str:
        if self._kernel is None:
            self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
            self._kernel.settimeout(0)
        self._kernel.send(_question(peer, own))
        answer = self._kernel.recv(_MOST_BYTES)
        if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
            return NOBODY
        uid, inode = _OWNER.unpack_from(answer, _HEADER.size + _UID_AT)
        return f"user {uid}" if inode else NOBODY

    def close(self) -> None:
        """Ask no more."""
        with contextlib.suppress(OSError):
            if self._kernel is not None:
                self._kernel.close()
        self._kernel = None


def _question(peer: Any, own: Any) -> bytes:
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    addresses = [socket.inet_pton(family, one[0]).ljust(16, b"\0") for one in (peer, own)]
    asked = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    asked += _SOCKET_ID.pack(peer[1], own[1], *addresses, 0) + _NO_COOKIE
    return _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0) + asked
