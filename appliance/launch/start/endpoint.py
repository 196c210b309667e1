"""Endpoint of an engine, a loopback port or a unix socket: its health, and who listens there."""

from __future__ import annotations

import socket

from appliance.system.kernel.processes import members
from appliance.system.kernel.tcp_listeners import open_sockets, tcp_listeners
from appliance.system.kernel.text_files import PROC, read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
_HEALTH_TIMEOUT_S = 1.0
_STATUS_LINE_BYTES = 512
_UNIX_LISTENING = 0x10000
"""Flag __SO_ACCEPTCON, in the flags column of /proc/net/unix."""

# Addresses by which a listener gets the connection, best match first: the exact address, then all
# of IPv4, then everything.
_PREFERENCE = (
    {LOOPBACK, f"::ffff:{LOOPBACK}"},
    {"0.0.0.0", "::ffff:0.0.0.0"},  # noqa: S104 - of listeners that are looked for
    {"::"},
)


class EngineEndpoint:
    """Address of an engine on loopback: a port or a unix socket. Exactly one is set."""

    __slots__ = ("health", "path", "port")

    def __init__(self, *, port: int | None, path: str | None, health: str) -> None:
        self.port = port
        self.path = path
        self.health = health
        """Path of the health check."""

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{LOOPBACK}:{self.port}"

    def health_status(self) -> int | None:
        """Return the HTTP status of the health check; None: no HTTP answer yet."""
        request = (
            f"GET {self.health} HTTP/1.1\r\nHost: {LOOPBACK}\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n"
        )
        try:
            with self._connected() as connection:
                connection.sendall(request.encode())
                return _status(connection)
        except OSError:
            return None

    def _connected(self) -> socket.socket:
        address: str | tuple[str, int]
        if self.path is not None:
            family, address = socket.AF_UNIX, self.path
        else:
            family, address = socket.AF_INET, (LOOPBACK, self.port or 0)
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(_HEALTH_TIMEOUT_S)
        try:
            connection.connect(address)
        except BaseException:
            connection.close()
            raise
        return connection

    def listeners(self) -> set[int]:
        """Return the inodes of the listening sockets that a client of this endpoint reaches."""
        if self.path is not None:
            return _unix_listeners(self.path)
        found = [one for one in tcp_listeners() if one.port == self.port]
        for addresses in _PREFERENCE:
            if inodes := {one.inode for one in found if one.address in addresses}:
                return inodes
        return set()

    def belongs_to(self, group: str) -> bool:
        """Tell whether every such socket is open in a process of control group `group`.

        Every one: with SO_REUSEPORT another process could share the port and get some requests.
        """
        inodes = self.listeners()
        return bool(inodes) and inodes <= _sockets_of(members(group))


def _status(connection: socket.socket) -> int | None:
    received = b""
    while b"\n" not in received and len(received) < _STATUS_LINE_BYTES:
        chunk = connection.recv(_STATUS_LINE_BYTES)
        if not chunk:
            break
        received += chunk
    words = received.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1].isdigit():
        return int(words[1])
    return None


def _unix_listeners(path: str) -> set[int]:
    found: set[int] = set()
    for line in read_all(f"{PROC}/self/net/unix").splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) > 7 and fields[7] == path and int(fields[3], 16) & _UNIX_LISTENING:  # noqa: PLR2004
            found.add(int(fields[6]))
    return found


def _sockets_of(pids: Iterable[int]) -> set[int]:
    return {number for pid in pids for number in open_sockets(pid) if number}
