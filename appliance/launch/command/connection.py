"""The connection to the caller of a command: his request, his signals, and what he is told."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import time

from appliance.launch.command.peer import Caller
from appliance.launch.program import WARNING, say
from appliance.protocol.run_request import BadRequest, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

MAX_REQUEST_BYTES = 1 << 20
_MAX_LINE_BYTES = 4096
"""Of what comes after the request."""
_STDIO = 3
_ROOM = socket.CMSG_LEN((_STDIO + 1) * array.array("i").itemsize)
"""For one descriptor more than is asked for, so that it is seen."""
_CHUNK_BYTES = 1 << 16
_BACKLOG = 64
"""Whoever knocks in vain must not fill it: they are sent away as they come."""
_SOCKET_MODE = 0o660


class Link:
    """One open connection. `caller` is the kernel's word on who made it."""

    def __init__(self, connection: socket.socket) -> None:
        self.caller = Caller(connection)
        self.gone = False
        """It has ended, or broke the rules."""
        self._connection = connection
        self._buffer = b""

    def fileno(self) -> int:
        """For poll."""
        return self._connection.fileno()

    def close(self) -> None:
        """End it."""
        self._connection.close()

    def receive(self, *, timeout_s: float) -> tuple[Request, list[int]]:
        """The request and the three descriptors that come with it.

        Raises `BadRequest`; then every descriptor that came is closed again.
        """
        stdio: list[int] = []
        try:
            line = self._first_line(stdio, time.monotonic() + timeout_s)
            return Request(json.loads(line)), stdio
        except (BadRequest, ValueError, RecursionError, OSError) as error:
            for descriptor in stdio:
                os.close(descriptor)
            text = str(error) if isinstance(error, BadRequest) else "the request is no JSON"
            raise BadRequest(text) from error

    def _first_line(self, stdio: list[int], deadline_s: float) -> bytes:
        """What comes up to the end of a line; descriptors that come along go into `stdio`."""
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
                raise BadRequest("the request is late, cut, too long or brings other descriptors")
        if len(stdio) != _STDIO:
            raise BadRequest("standard input, output and error did not come along")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def refuse(self, text: str) -> None:
        """Say why there will be no command on this connection, and end it."""
        self.tell(event="refused", text=text)
        self.close()

    def tell(self, **event: object) -> None:
        """Say something, unless he does not listen: nothing waits for him."""
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps(event).encode() + b"\n", socket.MSG_DONTWAIT)

    def hear(self) -> Iterator[dict[str, Any]]:
        """What has come since the last time, without waiting."""
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
            with contextlib.suppress(ValueError, RecursionError):
                document = json.loads(line)
                if isinstance(document, dict):
                    yield document
        self.gone = self.gone or chunk == b"" or len(self._buffer) > _MAX_LINE_BYTES


def callers(path: str, *, gid: int, uid: int, timeout_s: float) -> Generator[Link, None, None]:
    """Connections of user `uid`, a person who is root or in group `gid`, until the deadline.

    The socket is there for exactly that long, or until the iterator is closed. Everybody else is
    sent away at once and takes no time from it. Raises OSError when it cannot be made.
    """
    deadline_s = time.monotonic() + timeout_s
    told: set[int] = set()
    with _listening(path, gid) as listener:
        while (left_s := deadline_s - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                return
            if (link := _admitted(connection, gid, uid, told)) is not None:
                yield link


def _admitted(connection: socket.socket, gid: int, uid: int, told: set[int]) -> Link | None:
    """The mode of the socket has kept strangers out; this is what the kernel says of this one.

    `told` has the users of whom the journal knows.
    """
    try:
        link = Link(connection)
    except OSError as error:  # more groups than can be read, say
        say(WARNING, f"a caller cannot be known: {error}")
        connection.close()
        return None
    caller = link.caller
    if caller.is_service:
        what = "is a service, whose commands nobody runs"
    elif not caller.is_in(gid):
        what = "is no operator"
    elif caller.uid != uid:
        what = f"is not who was admitted: the command is one of uid {uid}"
    else:
        return link
    text = f"user {caller.name} (uid {caller.uid}) {what}"
    if caller.uid not in told:
        say(WARNING, text)
    told.add(caller.uid)
    link.refuse(text)
    return None


@contextlib.contextmanager
def _listening(path: str, gid: int) -> Iterator[socket.socket]:
    # Whoever finds it under its name finds it open for those who may, and for nobody else.
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
