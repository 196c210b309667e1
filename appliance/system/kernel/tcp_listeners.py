"""Listening TCP sockets from /proc: tables of a network namespace, and sockets that a process has open.

The tables list all listening sockets before the first connection (proc_net_tcp.rst), so a table is
read as far as its listeners go, however many connections the box has. Only for one port that is taken, connections
are looked at too, up to a number of rows.
"""

from __future__ import annotations

import os
import socket
import sys
from itertools import islice
from typing import Final

from appliance.system.kernel.processes import HoldingProcess, pids, user_name
from appliance.system.kernel.text_files import PROC, is_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_TABLES = ("tcp", "tcp6")
_LISTEN = "0A"
_TIME_WAIT = "06"
_MOST_ROWS = 200_000
"""Rows of a table that are looked at for one port: 0.1 s."""
_FIELDS = 10
_NO_TIMER = "00"
_WORD_DIGITS = 8
_FAMILIES = {_WORD_DIGITS: socket.AF_INET, 4 * _WORD_DIGITS: socket.AF_INET6}
_MAX_LINE = 512
"""Longest row in characters; the kernel's have 150."""
_SOCKET = "socket:["
_MAPPED = "::ffff:"


class TcpListener:
    """Listening TCP socket of one network namespace."""

    __slots__ = ("address", "inode", "port", "uid")

    def __init__(self, address: str, port: int, uid: int, inode: int) -> None:
        self.address = address
        """Numeric."""
        self.port = port
        self.uid = uid
        """User who made the socket."""
        self.inode = inode
        """Number of the socket; every process that has it open shows the same."""

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine reaches the address."""
        return self.address == "::1" or self.address.removeprefix(_MAPPED).startswith("127.")


def tcp_listeners(pid: int | str = "self") -> Iterator[TcpListener]:
    """Yield the listening TCP sockets of a process's network namespace; none when it has ended."""
    for name in _TABLES:
        try:
            with open(f"{PROC}/{pid}/net/{name}", encoding="ascii", errors="replace") as table:
                yield from listeners_in(iter(lambda: table.readline(_MAX_LINE), ""))
        except OSError:
            continue  # the process has ended, or the kernel has no IPv6


class PortSocket:
    """Socket on a port, also one that only the kernel still has."""

    __slots__ = ("inode", "left_s", "state")

    def __init__(self, state: str, left_s: float, inode: int) -> None:
        self.state = state
        """The kernel's number of the TCP state, in hexadecimal digits."""
        self.left_s = left_s
        """Seconds until its timer; 0: none runs."""
        self.inode = inode
        """Number of the socket; 0: no process has it."""

    @property
    def is_listening(self) -> bool:
        return self.state == _LISTEN

    @property
    def is_over(self) -> bool:
        """Tell whether the connection is closed on both sides, and the kernel waits for late packets."""
        return self.state == _TIME_WAIT


def sockets_on(port: int) -> Iterator[PortSocket]:
    """Yield the sockets whose local port is `port`, in the network namespace of this process."""
    for name in _TABLES:
        try:
            with open(f"{PROC}/self/net/{name}", encoding="ascii", errors="replace") as table:
                yield from port_sockets_in(iter(lambda: table.readline(_MAX_LINE), ""), port)
        except OSError:
            continue  # the kernel has no IPv6


def port_sockets_in(rows: Iterable[str], port: int) -> Iterator[PortSocket]:
    """Yield the sockets of a table with a local port; rows that cannot be read are left out."""
    ticks, end = os.sysconf("SC_CLK_TCK"), f":{port:04X}"
    for row in islice(rows, _MOST_ROWS):
        if end not in row:
            continue
        fields = row.split()
        if len(fields) < _FIELDS or not fields[1].endswith(end):
            continue
        running, _, left = fields[5].partition(":")
        try:
            left_s = int(left, 16) / ticks if running != _NO_TIMER else 0.0
            yield PortSocket(fields[3], left_s, int(fields[9]))
        except ValueError:
            continue


def listeners_in(rows: Iterable[str]) -> Iterator[TcpListener]:
    """Yield the listening sockets at the beginning of a table; rows that cannot be read are left out."""
    for row in rows:
        fields = row.split()
        if len(fields) < _FIELDS or not fields[0].endswith(":"):
            continue  # the heading
        if fields[3] != _LISTEN:
            return
        listener = _listener(fields)
        if listener is not None:
            yield listener


def _listener(fields: list[str]) -> TcpListener | None:
    digits, _, port = fields[1].rpartition(":")
    family = _FAMILIES.get(len(digits))
    if family is None:
        return None
    try:
        address = socket.inet_ntop(family, _address_bytes(digits))
        return TcpListener(address, int(port, 16), int(fields[7]), int(fields[9]))
    except ValueError:
        return None


def _address_bytes(digits: str) -> bytes:
    """Return an address in network order: the kernel prints its words in the order of the machine."""
    words = (digits[i : i + _WORD_DIGITS] for i in range(0, len(digits), _WORD_DIGITS))
    if sys.byteorder == "big":
        return b"".join(bytes.fromhex(word) for word in words)
    return b"".join(bytes.fromhex(word)[::-1] for word in words)


def open_sockets(pid: int) -> Iterator[int]:
    """Yield the number of every socket that a process has open; none when it has ended or is hidden.

    Yields 0 for each other descriptor, so that a caller may bound the time.
    """
    directory = f"{PROC}/{pid}/fd"
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield _socket_number(entry.path)
    except OSError:
        return


def _socket_number(path: str) -> int:
    try:
        target = os.readlink(path)
    except OSError:
        return 0  # closed meanwhile
    digits = target.removeprefix(_SOCKET).removesuffix("]")
    return int(digits) if target.startswith(_SOCKET) and is_number(digits) else 0


# --- holder of a port ----------------------------------------------------------------

_LOOPBACK: Final = "127.0.0.1"


def port_holder(port: int) -> str | None:
    """Return the process that listens on a port, any address, in a phrase; None: none does.

    Root sees whose socket it is. Others see its user, and name the process where that user has one alone.
    """
    if not _is_taken(port):
        return None
    listener = next((one for one in tcp_listeners() if one.port == port), None)
    return None if listener is None else _holder(listener)


def _is_taken(port: int) -> bool:
    """Tell whether the port is in use, by binding it: microseconds, where the tables take 7 ms."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return True
    return False


def _holder(listener: TcpListener) -> str:
    seen = list(pids())
    of_user = [pid for pid in seen if _uid(pid) == listener.uid]
    found = [pid for pid in seen if listener.inode in open_sockets(pid)]
    if found or len(of_user) == 1:
        return str(HoldingProcess((found or of_user)[0]))
    return f"a process of user {user_name(listener.uid)}"


def _uid(pid: int) -> int | None:
    try:
        return os.stat(f"{PROC}/{pid}").st_uid
    except OSError:
        return None
