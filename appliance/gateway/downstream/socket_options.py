"""Socket options of a client's connection."""

import asyncio
import socket
import struct
from typing import Final

_UNSENT_BYTES: Final = 128 << 10
"""Limit of unsent bytes in the kernel, for a client that does not read."""
_KEEPALIVE_S: Final = 60
_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})


def tune(transport: asyncio.Transport) -> None:
    """Detect clients that vanished, and limit the kernel's buffer for those that do not read."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in _INTERNET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def reset_on_close(transport: asyncio.Transport) -> None:
    """Reset the connection at its end, so that the client cannot take it for a body's end."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in _INTERNET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
