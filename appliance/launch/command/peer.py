"""Credentials of the process at the other end of a unix socket.

User, group and further groups are those that the kernel recorded at connect time (SO_PEERCRED,
SO_PEERGROUPS). The command runs with exactly these; no user database adds to them.
"""

from __future__ import annotations

import array
import os
import resource
import socket
import struct

from appliance.adapters.kernel.processes import group_name, user_name
from appliance.adapters.kernel.text_files import PROC, read
from appliance.domain.names import is_service

_SO_PEERGROUPS = 59
"""socket(7); the socket module has no name for it."""
_MAX_GROUPS_BYTES = 1024
"""As much as Python's `getsockopt` reads: 256 groups."""
_CREDENTIALS = struct.Struct("iII")
_LIMITS = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max resident set": resource.RLIMIT_RSS,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
    "Max pending signals": resource.RLIMIT_SIGPENDING,
    "Max msgqueue size": resource.RLIMIT_MSGQUEUE,
    "Max nice priority": resource.RLIMIT_NICE,
    "Max realtime priority": resource.RLIMIT_RTPRIO,
    "Max realtime timeout": resource.RLIMIT_RTTIME,
}
"""Rows of /proc/PID/limits, proc(5)."""
_LIMIT_COLUMN = 26
"""Column where the figures of a row begin."""


class PeerCredentials:
    """Credentials of one peer, and the name of its user."""

    __slots__ = ("gid", "groups", "is_service", "name", "pid", "uid")

    def __init__(self, connection: socket.socket) -> None:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, self.uid, self.gid = _CREDENTIALS.unpack(raw)
        listed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_GROUPS_BYTES)
        self.groups = tuple(array.array("I", listed))
        self.name = user_name(self.uid)
        self.is_service = is_service(self.name, self.uid, group_name(self.gid))

    def is_in(self, gid: int) -> bool:
        """Tell whether the peer is root or in this group."""
        return self.uid == 0 or gid == self.gid or gid in self.groups

    def limits(self) -> dict[int, tuple[int, int]]:
        """Return the peer's resource limits, soft and hard; empty when the process has ended."""
        text = read(f"{PROC}/{self.pid}/limits")
        try:
            same = os.stat(f"{PROC}/{self.pid}").st_uid == self.uid
        except OSError:
            return {}
        return _limits(text) if same else {}


def _limits(text: str) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for line in text.splitlines():
        limit = _LIMITS.get(line[:_LIMIT_COLUMN].strip())
        words = line[_LIMIT_COLUMN:].split()
        if limit is not None and len(words) > 1:
            found[limit] = (_limit(words[0]), _limit(words[1]))
    return found


def _limit(word: str) -> int:
    return int(word) if word.isdigit() else resource.RLIM_INFINITY
