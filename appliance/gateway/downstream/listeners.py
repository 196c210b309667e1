"""Listeners: the sockets of the unit, and those of interfaces that appear later.

Every address that the settings want has a socket, whoever opened it first:

==============================  ===============================================================
wanted, and systemd has it      served
wanted, without a socket yet    bound here and stored in systemd, so that no restart refuses
                                a client: an address that was added since the socket unit
                                started, or that of an interface
not wanted any more             closed here and there
==============================  ===============================================================

An address need not exist yet (IP_FREEBIND); sockets of an interface take no packet that came in
by another one (SO_BINDTODEVICE), whatever address it was sent to.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from appliance.domain.gateway import Configuration, is_loopback
from appliance.gateway.downstream.interfaces import AddressChanges, addresses_of, own_addresses

_log = logging.getLogger(__name__)

_BACKLOG: Final = 4096
_ACCEPTORS: Final = 32
"""Acceptors for each address: libuv's server accepts one connection in each turn of the loop.

A new client waits behind those that connect at once with it, so more acceptors are better; but each connection
wakes all of them, which takes 1.8 us an acceptor.
"""
_IP_FREEBIND: Final = 15
_IPV6_FREEBIND: Final = 78
_SO_BINDTOIFINDEX: Final = 62
"""Socket option of asm-generic/socket.h and linux/in6.h that Python does not name."""
_CHECK_EVERY_S: Final = 30.0
_LINK_LOCAL: Final = "fe80:"

Serve = Callable[["ListenAddress"], asyncio.BaseProtocol]
ServeTls = Callable[["ListenAddress", socket.socket], "Server"]


class Server(Protocol):
    """Server that accepts the clients of one socket."""

    def close(self) -> None:
        """Accept no more clients, and close the socket."""
        ...


class DescriptorStore(Protocol):
    """Store of sockets that outlives the process: systemd's."""

    def keep(self, listener: socket.socket, name: str) -> None:
        """Store a socket under a name."""
        ...

    def drop(self, name: str) -> None:
        """Close the socket that is stored under a name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Address that a socket listens on."""

    ip: str
    port: int
    index: int = 0
    """Index of the interface that the socket is bound to; 0: any."""

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can connect."""
        return is_loopback(self.ip)

    @property
    def name(self) -> str:
        """Return the name in systemd's store, which allows no colons."""
        return f"{self.ip.replace(':', '.')}+{self.port}+{self.index}"

    @property
    def place(self) -> str:
        """Return the address as clients write it, whatever interface it is on."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        device = f" on interface {self.index}" if self.index else ""
        return f"{self.place}{device}"


class Listeners:
    """Listening sockets of all addresses that the settings name.

    Args:
        configuration: Compiled settings.
        inherited: Listening sockets from systemd, or from the process before.
        store: Takes the sockets that are bound here.
        serve: Makes the protocol of a connection.
        serve_tls: Makes the server of a socket beyond loopback; None: without TLS.
    """

    def __init__(
        self,
        configuration: Configuration,
        inherited: Iterable[socket.socket],
        *,
        store: DescriptorStore,
        serve: Serve,
        serve_tls: ServeTls | None = None,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._serve = serve
        self._serve_tls = serve_tls
        self._sockets = {listen_address_of(listener): listener for listener in inherited}
        self._servers: dict[ListenAddress, list[Server]] = {}
        self._refused: set[ListenAddress] = set()

    @property
    def sockets(self) -> list[socket.socket]:
        return list(self._sockets.values())

    @property
    def addresses(self) -> list[ListenAddress]:
        """Return the addresses on which clients are served now."""
        return list(self._servers)

    def absent(self) -> list[str]:
        """Return the wanted addresses and interfaces that this machine does not have yet."""
        wanted = self._configuration
        if not wanted.beyond_loopback():
            return []
        try:
            there = own_addresses()
            named = {one.interface for one in addresses_of(wanted.interfaces)}
        except OSError as error:
            _log.warning("network interfaces cannot be read: %s", error)
            return []
        ips = (ip for ip in wanted.addresses if not is_loopback(ip))
        return [
            *(ip for ip in ips if _normalized(ip) not in there),
            *(name for name in wanted.interfaces if name not in named),
        ]

    async def open(self) -> None:
        """Listen on every wanted address that can be bound now; close the others."""
        wanted = self._wanted()
        for address in set(self._sockets) - wanted:
            self._close(address)
        # Loopback first: clients of this machine are served even if the other addresses fail.
        for address in sorted(wanted, key=lambda one: (not one.is_loopback, one.name)):
            await self._open(address)

    async def follow(self) -> None:
        """Follow the interfaces for ever, as their addresses appear and disappear."""
        if not self._configuration.interfaces:
            return
        changes = AddressChanges()
        try:
            while True:
                await changes.next(_CHECK_EVERY_S)
                await self.open()
        finally:
            changes.close()

    def close(self) -> None:
        """Accept no more clients; other processes that have the sockets still accept them."""
        for servers in self._servers.values():
            for server in servers:
                server.close()
        for listener in self._sockets.values():
            listener.close()
        self._servers.clear()
        self._sockets.clear()

    def _wanted(self) -> set[ListenAddress]:
        port = self._configuration.port
        wanted = {
            ListenAddress(ip=_normalized(ip), port=port) for ip in self._configuration.addresses
        }
        try:
            found = addresses_of(self._configuration.interfaces)
        except OSError as error:
            _log.warning("network interfaces cannot be read (%s): their listeners stay open", error)
            return wanted | {address for address in self._sockets if address.index}
        named = set(self._configuration.addresses)
        return wanted | {
            ListenAddress(ip=one.ip, port=port, index=one.index)
            for one in found
            if one.ip not in named
        }

    async def _open(self, address: ListenAddress) -> None:
        if address in self._servers:
            return
        if address not in self._sockets:
            try:
                self._sockets[address] = bind_listener(address)
            except OSError as error:
                if not (address.is_loopback and error.errno == errno.EAFNOSUPPORT):
                    # A kernel without IPv6 has no ::1 that a client could ask.
                    self._log_once(address, error)
                return
            self._store.keep(self._sockets[address], address.name)
        self._refused.discard(address)
        self._servers[address] = await self._start_servers(address)
        encrypted = self._serve_tls is not None and not address.is_loopback
        _log.info("listening on %s%s", address, " with TLS" if encrypted else "")

    async def _start_servers(self, address: ListenAddress) -> list[Server]:
        # A server closes its own copy; the socket itself is for the next process.
        if self._serve_tls is not None and not address.is_loopback:
            return [self._serve_tls(address, self._sockets[address].dup())]
        return [
            await asyncio.get_running_loop().create_server(
                lambda: self._serve(address), sock=self._sockets[address].dup(), backlog=_BACKLOG
            )
            for _ in range(_ACCEPTORS)
        ]

    def _log_once(self, address: ListenAddress, error: OSError) -> None:
        if address not in self._refused:
            self._refused.add(address)
            _log.error("cannot listen on %s: %s", address, error.strerror)

    def _close(self, address: ListenAddress) -> None:
        for server in self._servers.pop(address, ()):
            server.close()
        self._sockets.pop(address).close()
        self._store.drop(address.name)
        _log.info("no longer listening on %s", address)


def _normalized(ip: str) -> str:
    """Return an address as the kernel spells it."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_ntop(family, socket.inet_pton(family, ip))


def listen_address_of(listener: socket.socket) -> ListenAddress:
    ip, port, *_ = listener.getsockname()
    index = 0
    with contextlib.suppress(OSError):
        (index,) = struct.unpack("i", listener.getsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, 4))
    return ListenAddress(ip=ip.partition("%")[0], port=port, index=index)


def bind_listener(address: ListenAddress) -> socket.socket:
    """Return a socket that listens on an address, also before it exists. Raises OSError."""
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        else:
            listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        if address.index:
            listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, address.index)
        scope = address.index if address.ip.startswith(_LINK_LOCAL) else 0
        where = (address.ip, address.port)
        listener.bind((*where, 0, scope) if family == socket.AF_INET6 else where)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
