"""Listeners: the sockets of the unit, those of interfaces that appear later, and TLS handshakes of clients.

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

A TLS handshake counts as a connection from the moment its client is accepted:

    accepted --> handshake --> ClientConnection
                     '-------> closed: failed, too slow, or gave way to another client

asyncio's own server shows a connection to its protocol only after the handshake: ten seconds of
50 to 80 KiB for each client that connects and stays silent, which no limit would see.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from appliance.gateway.event_loop import end_faulty, guarded
from appliance.gateway.interfaces import AddressChanges, addresses_of, own_addresses
from appliance.gateway.relay import Relay
from appliance.model.gateway import Configuration, Refusal, is_loopback
from appliance.routing.fair_share import Share, ShareUse

_log = logging.getLogger(__name__)

_UNSENT_BYTES: Final = 128 << 10
"""Limit of unsent bytes in the kernel, for a client that does not read."""
_KEEPALIVE_S: Final = 60
_BACKLOG: Final = 4096
_ACCEPTED_A_TURN: Final = 256
"""Connections accepted at most in one turn of the event loop: 5 ms."""
_SERVED_A_TURN: Final = 32
"""Connections that are served from one turn on: their first requests take 8 ms together."""
_WAITING: Final = 1024
"""Most accepted connections that wait to be served."""
_NO_FILES_S: Final = 0.5
"""Pause after an accept that failed: accept(2) fails at once again while descriptors are short."""
_IP_FREEBIND: Final = 15
_IPV6_FREEBIND: Final = 78
_SO_BINDTOIFINDEX: Final = 62
"""Socket option of asm-generic/socket.h and linux/in6.h that Python does not name."""
_CHECK_EVERY_S: Final = 30.0
_LINK_LOCAL: Final = "fe80:"

Serve = Callable[["ListenAddress", socket.socket], asyncio.BaseProtocol | None]
"""Returns the protocol of a client that was accepted at an address; None: its socket is taken over."""


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
        serve: Called with each client.
        owner_of: Returns the owner of a connection.
        tls: Other machines are served with TLS.
    """

    def __init__(
        self,
        configuration: Configuration,
        inherited: Iterable[socket.socket],
        *,
        store: DescriptorStore,
        serve: Serve,
        owner_of: Callable[[socket.socket], str],
        tls: bool = False,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._serve = serve
        self._owner_of = owner_of
        self._tls = tls
        self._sockets = {listen_address_of(listener): listener for listener in inherited}
        self._acceptors: dict[ListenAddress, Acceptor] = {}
        self._refused: set[ListenAddress] = set()

    @property
    def sockets(self) -> list[socket.socket]:
        return list(self._sockets.values())

    @property
    def addresses(self) -> list[ListenAddress]:
        """Return the addresses on which clients are served now."""
        return list(self._acceptors)

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

    def open(self) -> None:
        """Listen on every wanted address that can be bound now; close the others."""
        wanted = self._wanted()
        for address in set(self._sockets) - wanted:
            self._close(address)
        # Loopback first: clients of this machine are served even if the other addresses fail.
        for address in sorted(wanted, key=lambda one: (not one.is_loopback, one.name)):
            self._open(address)

    async def follow(self) -> None:
        """Follow the interfaces for ever, as their addresses appear and disappear."""
        if not self._configuration.interfaces:
            return
        changes = AddressChanges()
        try:
            while True:
                await changes.next(_CHECK_EVERY_S)
                self.open()
        finally:
            changes.close()

    async def close(self) -> None:
        """Accept no more clients; other processes that have the sockets still accept them."""
        for acceptor in self._acceptors.values():
            acceptor.close()
        for listener in self._sockets.values():
            listener.close()
        for acceptor in self._acceptors.values():
            await acceptor.wait_closed()
        self._acceptors.clear()
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

    def _open(self, address: ListenAddress) -> None:
        if address in self._acceptors:
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
        self._acceptors[address] = Acceptor(
            self._sockets[address], partial(self._serve, address), self._owner_of
        )
        encrypted = self._tls and not address.is_loopback
        _log.info("listening on %s%s", address, " with TLS" if encrypted else "")

    def _log_once(self, address: ListenAddress, error: OSError) -> None:
        if address not in self._refused:
            self._refused.add(address)
            _log.error("cannot listen on %s: %s", address, error.strerror)

    def _close(self, address: ListenAddress) -> None:
        if address in self._acceptors:
            self._acceptors.pop(address).close()
        self._sockets.pop(address).close()
        self._store.drop(address.name)
        _log.info("no longer listening on %s", address)


class Acceptor:
    """Accepts the clients of one listening socket, and serves their owners in turn.

    The kernel hands connections over in the order of their arrival, and each costs ten times
    as much to serve as to accept: a new client would wait for all first requests of a crowd that
    connects at once with it. So when more come than are served in a turn, all are accepted, and each
    owner has one served after the other. Of more than `_WAITING` the owner who has most loses the
    newest.

    Args:
        listener: Listening socket, which stays the caller's.
        serve: Returns the protocol of a client; None: its socket is taken over.
        owner_of: Returns the owner of a connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[socket.socket], asyncio.BaseProtocol | None],
        owner_of: Callable[[socket.socket], str],
    ) -> None:
        self._listener = listener
        self._serve = serve
        self._owner_of = owner_of
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._waiting: dict[str, deque[socket.socket]] = {}
        """Accepted connections by owner, the owner whose turn it is first."""
        self._connecting: set[asyncio.Task[None]] = set()
        listener.setblocking(False)  # noqa: FBT003 - has no keyword
        tune(listener)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more; all that were accepted are served."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        while self._waiting:
            self._connect(self._next())

    async def wait_closed(self) -> None:
        """Wait until all that were accepted have their protocols."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _accept(self) -> None:
        accepted = list(islice(self._accepted(), _ACCEPTED_A_TURN))
        if not self._waiting and len(accepted) <= _SERVED_A_TURN:
            for one in accepted:
                self._connect(one)
            return
        if not self._waiting:
            self._loop.call_soon(self._serve_waiting)
        for one in accepted:
            self._waiting.setdefault(self._owner_of(one), deque()).append(one)
        for _ in range(sum(map(len, self._waiting.values())) - _WAITING):
            owner, waiting = max(reversed(self._waiting.items()), key=lambda item: len(item[1]))
            waiting.pop().close()
            if not waiting:
                del self._waiting[owner]

    def _accepted(self) -> Iterator[socket.socket]:
        """Accept clients while there are any."""
        while True:
            try:
                yield self._listener.accept()[0]
            except BlockingIOError:
                return
            except OSError as error:
                _log.warning("a client cannot be accepted: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(
                    _NO_FILES_S, self._loop.add_reader, self._listener, self._accept
                )
                return

    def _serve_waiting(self) -> None:
        """Serve some of the connections that wait, and the others in the next turns."""
        for _ in range(_SERVED_A_TURN):
            if not self._waiting:
                return
            self._connect(self._next())
        if self._waiting:
            self._loop.call_soon(self._serve_waiting)

    def _next(self) -> socket.socket:
        """Return the oldest connection of the owner whose turn it is."""
        owner, waiting = next(iter(self._waiting.items()))
        found = waiting.popleft()
        del self._waiting[owner]
        if waiting:
            self._waiting[owner] = waiting
        return found

    def _connect(self, accepted: socket.socket) -> None:
        try:
            protocol = self._serve(accepted)
        except Exception as error:  # noqa: BLE001 - the guard of later clients
            end_faulty(error, accepted.close)
            return
        if protocol is not None:
            task = self._loop.create_task(self._attach(protocol, accepted))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _attach(self, protocol: asyncio.BaseProtocol, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except Exception as error:  # noqa: BLE001 - the guard of a task
            end_faulty(error, accepted.close)


def tune(listener: socket.socket) -> None:
    """Detect clients that vanished, and limit the kernel's buffer for those that do not read.

    Linux gives these options of a listening socket to all that it accepts.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


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


_HANDSHAKE_S: Final = 10.0


class Handshake(asyncio.Protocol):
    """Handshake of one client's TLS, which counts as a connection in the shared capacity.

    Args:
        accepted: Socket of the client; taken over.
        relay: Counts the handshake until it has ended.
        protocol: Protocol of the connection after its handshake.
    """

    local = False
    """Whether the client is on this machine: never, since loopback is served without TLS."""

    def __init__(
        self,
        accepted: socket.socket,
        relay: Relay,
        protocol: asyncio.BaseProtocol,
    ) -> None:
        self._socket = accepted
        self._relay = relay
        self._protocol = protocol
        self._task: asyncio.Task[None] | None = None
        self._ends_s: float | None = None
        self.owner = relay.peers.owner_of(accepted)

    def start(self, context: ssl.SSLContext) -> None:
        """Count the connection and begin; a refusal is left to the protocol that follows."""
        self._task = asyncio.ensure_future(self._shake_hands(context))
        self._task.add_done_callback(self._ended)
        self._relay.add_client(self)

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self, self._socket, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except OSError as error:
            # Includes ssl.SSLError, which every scan of the port causes.
            _log.debug("TLS handshake with %s failed: %s", self.owner, error)

    @guarded
    def _ended(self, _: asyncio.Task[None]) -> None:
        self._relay.remove_client(self)

    def end_after_fault(self) -> None:
        self.abort()

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection, now encrypted, to the protocol that follows."""
        self._relay.remove_client(self)
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)

    # Calls when connections run short.

    def connection_share(self, number: int) -> Share:  # noqa: ARG002 - the oldest handshake gives way first
        """Return the handshake's share of the connections: that of a request without a byte."""
        return Share(self.owner, 1, ShareUse.READING, 0.0)

    def bytes_share(self, number: int) -> Share | None:  # noqa: ARG002
        return None

    def evict(self, why: Refusal) -> None:  # noqa: ARG002 - no response is possible before TLS
        """Close the connection for another client."""
        self.abort()

    def end_soon(self, at_s: float) -> None:
        """Close at a time of the event loop's clock, unless the handshake has ended before."""
        self._ends_s = at_s

    def expire_if_due(self, now_s: float) -> None:
        """Close the connection if its time is over."""
        if self._ends_s is not None and now_s >= self._ends_s:
            self.abort()

    def abort(self) -> None:
        """Close the connection now: the handshake fails at the end of input."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
