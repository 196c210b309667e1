"""Endpoint of an engine, a loopback port or a unix socket: its health, and who listens there."""

from __future__ import annotations

import os
import socket

from appliance.adapters.kernel.processes import members
from appliance.adapters.kernel.text_files import PROC, read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
_HEALTH_TIMEOUT_S = 1.0
_STATUS_LINE_BYTES = 512
_TCP_LISTEN = "0A"
_UNIX_LISTENING = 0x10000
"""Flag __SO_ACCEPTCON, in the flags column of /proc/net/unix."""

# Local addresses as /proc/net/tcp and tcp6 print them, best match first: a listener on the
# exact address gets the connection, then one on all of IPv4, then one on everything.
_PREFERENCE = (
    {"0100007F", "0000000000000000FFFF00000100007F"},
    {"00000000", "0000000000000000FFFF000000000000"},
    {"0" * 32},
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

    def listeners(self) -> set[str]:
        """Return the inodes of the listening sockets that a client of this endpoint reaches."""
        if self.path is not None:
            return _unix_listeners(self.path)
        tables = [read_all(f"{PROC}/self/net/{name}") for name in ("tcp", "tcp6")]
        wanted = f"{self.port:04X}"
        found = [
            (address, inode)
            for address, port, inode in _tcp_listeners("".join(tables))
            if port == wanted
        ]
        for addresses in _PREFERENCE:
            if inodes := {inode for address, inode in found if address in addresses}:
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


def _tcp_listeners(table: str) -> Iterable[tuple[str, str, str]]:
    """Yield address, port and inode of every listening socket, in the table's own notation."""
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == _TCP_LISTEN:  # noqa: PLR2004
            address, _, port = fields[1].rpartition(":")
            yield address, port, fields[9]


def _unix_listeners(path: str) -> set[str]:
    found: set[str] = set()
    for line in read_all(f"{PROC}/self/net/unix").splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) > 7 and fields[7] == path and int(fields[3], 16) & _UNIX_LISTENING:  # noqa: PLR2004
            found.add(fields[6])
    return found


def _sockets_of(pids: Iterable[int]) -> set[str]:
    found: set[str] = set()
    for pid in pids:
        directory = f"{PROC}/{pid}/fd"
        try:
            for descriptor in os.listdir(directory):
                target = os.readlink(f"{directory}/{descriptor}")
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
        except OSError:
            continue  # the process has ended, or closed the descriptor
    return found
