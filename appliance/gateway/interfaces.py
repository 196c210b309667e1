"""Addresses of network interfaces, and their changes.

The interface of a VPN comes and goes with its daemon, each time with another address. Source:
rtnetlink(7), netlink(7).
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("=IHHII")
"""Format of nlmsghdr: length, type, flags, sequence, port."""
_ADDRESS: Final = struct.Struct("=BBBBI")
"""Format of ifaddrmsg: family, prefix length, flags, scope, index of the interface."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_DONE: Final = 3
_NEW_ADDRESS: Final = 20
_GET_ADDRESS: Final = 22
_DUMP: Final = 0x301
"""Flags NLM_F_REQUEST | NLM_F_DUMP."""
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_GROUPS: Final = 0x1 | 0x10 | 0x100
"""Groups RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR."""
_BUFFER_BYTES: Final = 1 << 16
_ANSWER_S: Final = 2.0
_SETTLE_S: Final = 0.05
"""Pause after a change, because addresses change in bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceAddress:
    """Address of an interface."""

    interface: str
    index: int
    """Index of the interface, which changes when the interface is created anew."""
    ip: str


def addresses_of(interfaces: Iterable[str]) -> list[InterfaceAddress]:
    """Return the addresses of these interfaces; none for those that do not exist.

    Raises:
        OSError: The kernel does not answer.
    """
    names: dict[int, str] = {}
    for name in interfaces:
        with contextlib.suppress(OSError):
            names[socket.if_nametoindex(name)] = name
    return [
        InterfaceAddress(interface=names[index], index=index, ip=ip)
        for index, ip in (_all_addresses() if names else ())
        if index in names
    ]


def own_addresses() -> frozenset[str]:
    """Return the addresses of all interfaces of this machine. Raises OSError as `addresses_of`."""
    return frozenset(ip for _, ip in _all_addresses())


class AddressChanges:
    """Source of changes of interfaces and addresses."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
        )
        self._socket.bind((0, _GROUPS))

    async def next(self, timeout_s: float) -> None:
        """Return soon after the next change, or at the time limit."""
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self._socket.fileno(), came.set)
        try:
            async with asyncio.timeout(timeout_s):
                await came.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(self._socket.fileno())
        await asyncio.sleep(_SETTLE_S)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._skip()

    def _skip(self) -> None:
        # More messages than fit (ENOBUFS) mean a change, too: the addresses are read anew anyway.
        try:
            self._socket.recv(_BUFFER_BYTES)
        except BlockingIOError:
            raise
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()


def _all_addresses() -> Iterator[tuple[int, str]]:
    """Yield index and address of every interface."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_ANSWER_S)
        netlink.bind((0, 0))
        length = _HEADER.size + _ADDRESS.size
        header = _HEADER.pack(length, _GET_ADDRESS, _DUMP, os.getpid(), 0)
        netlink.send(header + _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
        while True:
            for kind, body in _messages(netlink.recv(_BUFFER_BYTES)):
                if kind == _DONE:
                    return
                if kind == _NEW_ADDRESS:
                    yield from _parse_address(body)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, start)
        if length < _HEADER.size:
            return
        yield kind, data[start + _HEADER.size : start + length]
        start += _aligned(length)


def _parse_address(body: bytes) -> Iterator[tuple[int, str]]:
    family, _, _, _, index = _ADDRESS.unpack_from(body)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return
    found = dict(_attributes(body[_ADDRESS.size :]))
    # On a point-to-point link IFA_ADDRESS is the peer's address, and IFA_LOCAL is ours.
    packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS)
    if packed:
        yield index, socket.inet_ntop(family, packed)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[start + _ATTRIBUTE.size : start + length]
        start += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
