"""Connection to the caller of a command: credentials, request, signals, and events for the caller.

User, group and further groups are those that the kernel recorded at connect time (SO_PEERCRED,
SO_PEERGROUPS). The command runs with exactly these; no user database adds to them.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import socket
import struct
import time

from appliance.launch.program import WARNING, say
from appliance.model.json_reader import decode_json, parse_object
from appliance.model.names import is_service
from appliance.system.kernel.processes import group_name, user_name
from appliance.system.kernel.text_files import PROC, read
from appliance.wire.run_request import BadRequest, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any


_SO_PEERGROUPS = 59
"""Option of socket(7) that the socket module does not name."""
_MAX_GROUPS_BYTES = 1024
"""Bytes that Python's `getsockopt` reads at most: 256 groups."""
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
MAX_REQUEST_BYTES = 1 << 20
_MAX_LINE_BYTES = 4096
"""Longest line after the request, in bytes."""
_STDIO = 3
_ROOM = socket.CMSG_LEN((_STDIO + 1) * array.array("i").itemsize)
"""Space for one descriptor too many, so that its presence is noticed."""
_CHUNK_BYTES = 1 << 16
_BACKLOG = 64
"""Length of the queue of peers, which refused ones leave at once so that they cannot fill it."""
_SOCKET_MODE = 0o660


class PeerCredentials:
    """Credentials of one peer, and the name of the peer's user."""

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


class CallerConnection:
    def __init__(self, connection: socket.socket) -> None:
        self.caller = PeerCredentials(connection)
        self.closed = False
        """Whether the caller has closed the connection, or sent too long a line."""
        self._connection = connection
        self._buffer = b""

    def fileno(self) -> int:
        """Return the socket's descriptor, for poll."""
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def receive(self, *, timeout_s: float) -> tuple[Request, list[int]]:
        """Return the request and the three descriptors that come with it.

        Raises `BadRequest`; every descriptor that came is closed then.
        """
        stdio: list[int] = []
        try:
            line = self._first_line(stdio, time.monotonic() + timeout_s)
            return Request(decode_json(line)), stdio
        except (BadRequest, ValueError, OSError) as error:
            for descriptor in stdio:
                os.close(descriptor)
            text = str(error) if isinstance(error, BadRequest) else "the request is no JSON"
            raise BadRequest(text) from error

    def _first_line(self, stdio: list[int], deadline_s: float) -> bytes:
        """Return the first line; descriptors that come with it go into `stdio`."""
        while b"\n" not in self._buffer:
            self._connection.settimeout(max(0.001, deadline_s - time.monotonic()))
            chunk, ancillary, _, _ = self._connection.recvmsg(
                _CHUNK_BYTES, _ROOM, socket.MSG_CMSG_CLOEXEC
            )
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    stdio += array.array("i", data)
            self._buffer += chunk
            late = time.monotonic() >= deadline_s
            if late or not chunk or len(stdio) > _STDIO or len(self._buffer) > MAX_REQUEST_BYTES:
                raise BadRequest("the request is late, cut, too long or has other descriptors")
        if len(stdio) != _STDIO:
            raise BadRequest("standard input, output and error did not come with the request")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def refuse(self, text: str) -> None:
        """Send the reason for a refusal, and close the connection."""
        self.send(event="refused", text=text)
        self.close()

    def send(self, **event: object) -> None:
        """Send an event, or drop it when the caller does not read: nothing waits for that."""
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps(event).encode() + b"\n", socket.MSG_DONTWAIT)

    def received(self) -> Iterator[dict[str, Any]]:
        """Yield the lines received since the last call, without waiting."""
        self._connection.setblocking(False)  # noqa: FBT003
        try:
            # Descriptors that come along now are dropped by the kernel: recv takes none.
            chunk = self._connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            chunk = None
        except OSError:
            chunk = b""
        self._buffer += chunk or b""
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            with contextlib.suppress(ValueError):
                yield parse_object(line)
        self.closed = self.closed or chunk == b"" or len(self._buffer) > _MAX_LINE_BYTES


def caller_connections(
    path: str, *, gid: int, uid: int, timeout_s: float
) -> Generator[CallerConnection, None, None]:
    """Yield connections of user `uid`, a person who is root or in group `gid`, until the deadline.

    The socket exists for exactly that long, or until the iterator is closed. Other peers are
    refused at once. Raises OSError when the socket cannot be made.
    """
    deadline_s = time.monotonic() + timeout_s
    logged: set[int] = set()
    with _listening(path, gid) as listener:
        while (left_s := deadline_s - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                return
            if (admitted := _admitted(connection, gid, uid, logged)) is not None:
                yield admitted


def _admitted(
    connection: socket.socket, gid: int, uid: int, logged: set[int]
) -> CallerConnection | None:
    """Return the connection if its peer may have the command run; refuse others.

    The mode of the socket keeps out whoever is no operator. `logged` has the users whose refusal
    the journal has already.
    """
    try:
        opened = CallerConnection(connection)
    except OSError as error:  # for example, more groups than can be read
        say(WARNING, f"a caller's credentials cannot be read: {error}")
        connection.close()
        return None
    caller = opened.caller
    if caller.is_service:
        what = "is a service, and services may not run commands"
    elif not caller.is_in(gid):
        what = "is no operator"
    elif caller.uid != uid:
        what = f"is not the admitted user: the command belongs to uid {uid}"
    else:
        return opened
    text = f"user {caller.name} (uid {caller.uid}) {what}"
    if caller.uid not in logged:
        say(WARNING, text)
    logged.add(caller.uid)
    opened.refuse(text)
    return None


@contextlib.contextmanager
def _listening(path: str, gid: int) -> Iterator[socket.socket]:
    # At its final name the socket has its group and mode from the first moment on.
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(new)
        finally:
            os.umask(before)
        os.chown(new, -1, gid)
        os.chmod(new, _SOCKET_MODE)
        listener.listen(_BACKLOG)
        os.rename(new, path)
        try:
            yield listener
        finally:
            os.unlink(path)
