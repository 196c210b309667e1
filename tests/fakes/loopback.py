"""Bytes under way between two sockets of this process, over the loopback interface."""

import asyncio
import fcntl
import socket
import struct
import termios
from pathlib import Path
from typing import Final

from tests.waiting import until

_ESTABLISHED: Final = 1
"""State of a connection that neither end has closed: tcp_states.h in Linux."""


async def delivered(writer: asyncio.StreamWriter) -> None:
    """Wait until the other end has read everything that was written, or has closed."""
    await until(lambda: _is_delivered(writer))


def _is_delivered(writer: asyncio.StreamWriter) -> bool:
    if writer.transport.get_write_buffer_size():
        return False
    sock = writer.get_extra_info("socket")
    try:
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED:
            return True
        if _queued(sock.fileno(), termios.TIOCOUTQ):
            return False
        other = _connected_to(sock.getsockname(), sock.getpeername())
    except OSError:
        return True
    # Until it is accepted, the other end is not a descriptor of this process.
    return other is not None and not _queued(other, termios.FIONREAD)


def _queued(descriptor: int, direction: int) -> int:
    """Return the bytes that wait in a socket: of a stream that was sent, those not received."""
    found: int = struct.unpack("i", fcntl.ioctl(descriptor, direction, bytes(4)))[0]
    return found


def _connected_to(address: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the socket of this process with this own address, connected to the first."""
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        try:
            found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
        except OSError:
            continue  # no socket
        try:
            if found.getsockname() == own and found.getpeername() == address:
                return descriptor
        except OSError:
            continue  # not connected
        finally:
            found.detach()
    return None
