"""Socket options of a client's connection."""

import asyncio
import socket
import struct
from typing import Final

_UNSENT_BYTES: Final = 128 << 10
"""Limit of unsent bytes in the kernel, for a client that does not read."""
_KEEPALIVE_S: Final = 60
_LEFT: Final = frozenset({7, 8})
"""States of a connection whose client has closed or reset it: TCP_CLOSE and TCP_CLOSE_WAIT (Linux,
net/tcp_states.h)."""
_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})


def tune(listener: socket.socket) -> None:
    """Detect clients that vanished, and limit the kernel's buffer for those that do not read.

    Linux gives these options of a listening socket to all that it accepts.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def reset_on_close(transport: asyncio.Transport) -> None:
    """Reset the connection at its end, so that the client cannot take it for a body's end."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in _INTERNET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def has_left(transport: asyncio.Transport) -> bool:
    """Tell whether the client has closed its connection, also while nothing is read from it.

    The event loop tells that only behind the bytes that were sent before (tcp(7), TCP_INFO).
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in _INTERNET:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _LEFT
    except OSError:
        return False
