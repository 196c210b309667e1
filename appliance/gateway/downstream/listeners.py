"""Where clients come in: the sockets of the unit, and those of interfaces that come later.

What the settings want is opened, whoever opened it first:

==============================  ===============================================================
wanted, and systemd has it      served
wanted, and nobody has it yet   bound here and left with systemd, so that no restart refuses
                                anybody: an address that was added since the socket unit
                                started, or that of an interface
not wanted any more             closed here and there
==============================  ===============================================================

An address need not be there yet (IP_FREEBIND); sockets of an interface take nothing that came in
by another one (SO_BINDTODEVICE), whatever address it was sent to.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from appliance.domain.gateway import Configuration, is_loopback
from appliance.gateway.downstream.networks import Changes, InterfaceAddress, addresses_of

_log = logging.getLogger(__name__)

_BACKLOG: Final = 4096
_ACCEPTORS: Final = 16
"""Of each place: libuv's server takes one connection in each turn of the event loop."""
_IP_FREEBIND: Final = 15
_IPV6_FREEBIND: Final = 78
_SO_BINDTOIFINDEX: Final = 62
"""asm-generic/socket.h, linux/in6.h: names that Python does not have."""
_LOOK_EVERY_S: Final = 30.0
_SCOPED: Final = "fe80:"

Serve = Callable[["Place"], asyncio.BaseProtocol]
ServeTls = Callable[["Place", socket.socket], "Server"]


class Server(Protocol):
    """Accepts clients of one socket."""

    def close(self) -> None:
        """Accept no more, and close the socket."""
        ...


class Keeper(Protocol):
    """Keeps sockets while no process of ours is there."""

    def keep(self, listener: socket.socket, name: str) -> None:
        """Take a socket."""
        ...

    def drop(self, name: str) -> None:
        """Close what was taken under a name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a socket listens."""

    address: str
    port: int
    index: int = 0
    """Of the interface that it is bound to; 0: any."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine gets there."""
        return is_loopback(self.address)

    @property
    def name(self) -> str:
        """For systemd, which wants no colons there."""
        return f"{self.address.replace(':', '.')}+{self.port}+{self.index}"

    def __str__(self) -> str:
        """As a log has it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        device = f" on interface {self.index}" if self.index else ""
        return f"{host}:{self.port}{device}"


class Listeners:
    """Listens wherever the settings say.

    Args:
        configuration: What they say.
        inherited: Listening sockets from systemd, or from the process before.
        keeper: Is given those that are bound here.
        serve: Makes the protocol of a connection.
        serve_tls: Serves TLS on a socket, for places beyond loopback; None: in the clear.
    """

    def __init__(
        self,
        configuration: Configuration,
        inherited: Iterable[socket.socket],
        *,
        keeper: Keeper,
        serve: Serve,
        serve_tls: ServeTls | None = None,
    ) -> None:
        self._configuration = configuration
        self._keeper = keeper
        self._serve = serve
        self._serve_tls = serve_tls
        self._sockets = {place_of(listener): listener for listener in inherited}
        self._servers: dict[Place, list[Server]] = {}
        self._refused: set[Place] = set()

    @property
    def sockets(self) -> list[socket.socket]:
        """Everything that is listened on."""
        return list(self._sockets.values())

    @property
    def places(self) -> list[Place]:
        """Where clients are served now."""
        return list(self._servers)

    async def open(self) -> None:
        """Serve everywhere that can be served now."""
        wanted = self._wanted()
        for place in set(self._sockets) - wanted:
            self._close(place)
        # Loopback first: whatever happens with the others, this machine's clients are served.
        for place in sorted(wanted, key=lambda p: (not p.loopback, p.name)):
            await self._open(place)

    async def follow(self) -> None:
        """Go with the interfaces for ever, as they and their addresses come and go."""
        if not self._configuration.interfaces:
            return
        changes = Changes()
        try:
            while True:
                await changes.next(_LOOK_EVERY_S)
                await self.open()
        finally:
            changes.close()

    def close(self) -> None:
        """Take nobody any more; others who have the sockets may."""
        for servers in self._servers.values():
            for server in servers:
                server.close()
        for listener in self._sockets.values():
            listener.close()
        self._servers.clear()
        self._sockets.clear()

    def _wanted(self) -> set[Place]:
        port = self._configuration.port
        wanted = {Place(address=_plain(a), port=port) for a in self._configuration.addresses}
        try:
            found = addresses_of(self._configuration.interfaces)
        except OSError as error:
            _log.warning("the interfaces cannot be seen (%s): they stay as they are", error)
            return wanted | {place for place in self._sockets if place.index}
        named = set(self._configuration.addresses)
        return wanted | {_at(one, port) for one in found if one.address not in named}

    async def _open(self, place: Place) -> None:
        if place in self._servers:
            return
        if place not in self._sockets:
            try:
                self._sockets[place] = bound(place)
            except OSError as error:
                self._complain(place, error)
                return
            self._keeper.keep(self._sockets[place], place.name)
        self._refused.discard(place)
        self._servers[place] = await self._serving(place)
        encrypted = self._serve_tls is not None and not place.loopback
        _log.info("listening on %s%s", place, " with TLS" if encrypted else "")

    async def _serving(self, place: Place) -> list[Server]:
        # A server closes its socket for good; ours is for whoever comes after.
        if self._serve_tls is not None and not place.loopback:
            return [self._serve_tls(place, self._sockets[place].dup())]
        return [
            await asyncio.get_running_loop().create_server(
                lambda: self._serve(place), sock=self._sockets[place].dup(), backlog=_BACKLOG
            )
            for _ in range(_ACCEPTORS)
        ]

    def _complain(self, place: Place, error: OSError) -> None:
        if place not in self._refused:
            self._refused.add(place)
            _log.error("cannot listen on %s: %s", place, error.strerror)

    def _close(self, place: Place) -> None:
        for server in self._servers.pop(place, ()):
            server.close()
        self._sockets.pop(place).close()
        self._keeper.drop(place.name)
        _log.info("no longer listening on %s", place)


def _plain(address: str) -> str:
    """An address as the kernel spells it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_ntop(family, socket.inet_pton(family, address))


def _at(found: InterfaceAddress, port: int) -> Place:
    return Place(address=found.address, port=port, index=found.index)


def place_of(listener: socket.socket) -> Place:
    """Where a socket of ours listens."""
    address, port, *_ = listener.getsockname()
    index = 0
    with contextlib.suppress(OSError):
        (index,) = struct.unpack("i", listener.getsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, 4))
    return Place(address=address.partition("%")[0], port=port, index=index)


def bound(place: Place) -> socket.socket:
    """A socket that listens there, also before the address has come. Raises OSError."""
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        else:
            listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        if place.index:
            listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, place.index)
        scope = place.index if place.address.startswith(_SCOPED) else 0
        where = (place.address, place.port)
        listener.bind((*where, 0, scope) if family == socket.AF_INET6 else where)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
