"""What is asked of a client's socket beyond what the event loop does."""

import asyncio
import socket
import struct
from typing import Final

_UNSENT_BYTES: Final = 128 << 10
"""In the kernel, of what a client does not take."""
_KEEPALIVE_S: Final = 60
_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})


def tune(transport: asyncio.Transport) -> None:
    """Notice clients that vanished, and keep little in the kernel for those that do not read."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in _INTERNET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def reset_on_close(transport: asyncio.Transport) -> None:
    """Have the client see an error, not an end: its body may be one that ends with the connection."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in _INTERNET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
