"""Listeners: sockets that are inherited, bound, stored in systemd and closed."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest

from appliance.gateway import listeners
from appliance.gateway.interfaces import AddressChanges, addresses_of
from appliance.gateway.listeners import (
    Acceptor,
    ListenAddress,
    Listeners,
    bind_listener,
    listen_address_of,
)
from appliance.model.gateway import Configuration
from tests.waiting import settle, until

LOOPBACK = "lo"


@dataclass
class Shelf:
    """Store of sockets' names, as systemd stores the sockets."""

    kept: list[str] = field(default_factory=list)

    def keep(self, listener: socket.socket, name: str) -> None:
        assert listener.getsockname()
        self.kept.append(name)

    def drop(self, name: str) -> None:
        if name in self.kept:
            self.kept.remove(name)


class Greeting(asyncio.Protocol):
    """Protocol that sends the address it was reached at, and closes."""

    def __init__(self, place: ListenAddress) -> None:
        self._place = place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(str(self._place).encode())
        transport.close()


def nobody(_: socket.socket) -> str:
    """Owner of all connections."""
    return "nobody"


@asynccontextmanager
async def listening(
    configuration: Configuration, *inherited: socket.socket
) -> AsyncIterator[tuple[Listeners, Shelf]]:
    """Listeners that are open, and closed in the end."""
    shelf = Shelf()
    found = Listeners(
        configuration,
        inherited,
        store=shelf,
        serve=lambda address, _: Greeting(address),
        owner_of=nobody,
    )
    found.open()
    try:
        yield found, shelf
    finally:
        await found.close()


def free_port() -> int:
    """Port that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def told(ip: str, port: int) -> str:
    """Return the greeting at an address; empty: no program listens."""
    try:
        reader, writer = await asyncio.open_connection(ip, port)
    except OSError:
        return ""
    text = await reader.read()
    writer.close()
    return text.decode()


async def test_what_is_inherited_is_served_and_stays_systemds() -> None:
    """An inherited socket is not bound again, and not stored again."""
    port = free_port()
    given = bind_listener(ListenAddress(ip="127.0.0.1", port=port))
    configuration = Configuration(port=port, addresses=("127.0.0.1",))
    async with listening(configuration, given) as (found, shelf):
        assert await told("127.0.0.1", port) == f"127.0.0.1:{port}"
        assert shelf.kept == []
        assert found.sockets == [given]


async def test_what_nobody_has_yet_is_bound_and_left_with_systemd() -> None:
    """A missing socket is bound and stored, also for an address that does not exist yet."""
    port = free_port()
    configuration = Configuration(port=port, addresses=("127.0.0.1", "::1", "192.0.2.7"))
    async with listening(configuration) as (found, shelf):
        assert await told("::1", port) == f"[::1]:{port}"
        assert sorted(shelf.kept) == [f"..1+{port}+0", f"127.0.0.1+{port}+0", f"192.0.2.7+{port}+0"]
        assert [p.is_loopback for p in found.addresses] == [True, True, False]
        assert {listen_address_of(s) for s in found.sockets} == set(found.addresses)


async def test_what_is_not_wanted_any_more_is_closed_here_and_there() -> None:
    """A socket whose address is no longer in the settings refuses clients."""
    port, old = free_port(), free_port()
    given = bind_listener(ListenAddress(ip="127.0.0.1", port=old))
    configuration = Configuration(port=port, addresses=("127.0.0.1",))
    async with listening(configuration, given) as (found, _):
        assert await told("127.0.0.1", old) == ""
        assert await told("127.0.0.1", port)
        assert [p.port for p in found.addresses] == [port]


async def test_a_port_that_is_taken_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A taken port is logged once and tried again; the other addresses are served."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        configuration = Configuration(port=port, addresses=("127.0.0.1", "127.0.0.2"))
        async with listening(configuration) as (found, _):
            found.open()
            assert await told("127.0.0.2", port)
            errors = [r.message for r in caplog.records if r.levelname == "ERROR"]
            assert errors == [f"cannot listen on 127.0.0.1:{port}: Address already in use"]
            other.close()
            found.open()
            assert await told("127.0.0.1", port)


async def test_an_interface_is_its_addresses(caplog: pytest.LogCaptureFixture) -> None:
    """Each address is bound to the interface, except those that are listened on anyway."""
    port = free_port()
    configuration = Configuration(port=port, addresses=("127.0.0.1",), interfaces=(LOOPBACK,))
    async with listening(configuration) as (found, _):
        index = socket.if_nametoindex(LOOPBACK)
        expected = {a.ip for a in addresses_of([LOOPBACK])}
        assert {p.ip for p in found.addresses if p.index == index} == expected - {"127.0.0.1"}
        assert [p.ip for p in found.addresses if not p.index] == ["127.0.0.1"]
    assert not [r for r in caplog.records if r.levelname == "ERROR"]


async def test_a_missing_interface_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """An interface may appear later; until then nothing is logged."""
    port = free_port()
    configuration = Configuration(port=port, interfaces=("nowhere0",))
    async with listening(configuration) as (found, _):
        following = asyncio.ensure_future(found.follow())
        await settle()
        assert not following.done()
        following.cancel()
        assert sorted(p.ip for p in found.addresses) == ["127.0.0.1", "::1"]
    assert not [r for r in caplog.records if r.levelname in {"ERROR", "WARNING"}]


async def test_without_interfaces_there_is_nothing_to_follow() -> None:
    """The kernel is not asked for changes."""
    async with listening(Configuration(port=free_port())) as (found, _):
        await found.follow()


async def test_a_closed_listener_leaves_the_socket_to_others() -> None:
    """Clients wait in the socket until another process accepts."""
    port = free_port()
    with bind_listener(ListenAddress(ip="127.0.0.1", port=port)) as ours:
        async with listening(Configuration(port=port), ours.dup()):
            pass
        asking = asyncio.ensure_future(told("127.0.0.1", port))
        await settle()
        assert not asking.done()
        async with listening(Configuration(port=port), ours.dup()):
            assert await asking


def test_interfaces_have_addresses() -> None:
    """The loopback interface has its addresses, a missing one has none."""
    found = addresses_of([LOOPBACK, "nowhere0"])
    assert {a.interface for a in found} == {LOOPBACK}
    assert "127.0.0.1" in {a.ip for a in found}
    assert addresses_of([]) == addresses_of(["nowhere0"]) == []


async def test_silence_is_no_change() -> None:
    """A wait for changes ends after its time."""
    changes = AddressChanges()
    try:
        async with asyncio.timeout(5):
            await changes.next(0.05)
    finally:
        changes.close()


@dataclass
class Crowd:
    """Clients of two owners that wait to be accepted: many of one, then one of another."""

    listener: socket.socket
    last: tuple[str, int]
    """Address of the client that came last."""
    served: list[str] = field(default_factory=list)
    """Owner of each client that was served, in turn."""

    def accept(self) -> Acceptor:
        return Acceptor(self.listener, self._serve, self._owner_of)

    def _owner_of(self, accepted: socket.socket) -> str:
        return "one" if accepted.getpeername() == self.last else "many"

    def _serve(self, accepted: socket.socket) -> None:
        self.served.append(self._owner_of(accepted))
        accepted.close()


@contextmanager
def crowd(many: int) -> Iterator[Crowd]:
    with ExitStack() as left:
        listener = left.enter_context(socket.create_server(("127.0.0.1", 0), backlog=many + 1))
        place = listener.getsockname()
        *_, last = [left.enter_context(socket.create_connection(place)) for _ in range(many + 1)]
        yield Crowd(listener, last.getsockname())


async def test_a_newcomer_behind_a_crowd() -> None:
    """Of many that connect at once few are served in a turn, and each owner has one after the other."""
    with crowd(200) as coming:
        acceptor = coming.accept()
        await until(lambda: len(coming.served) > 1)
        assert len(coming.served) <= 64
        assert coming.served[:3] == ["many", "one", "many"]
        await until(lambda: len(coming.served) == 201)
        acceptor.close()


async def test_a_crowd_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more connections than may wait, the owner with most of them loses the newest."""
    monkeypatch.setattr(listeners, "_WAITING", 40)
    with crowd(200) as coming:
        acceptor = coming.accept()
        await until(lambda: len(coming.served) == 40)
        await settle(10)
        assert (coming.served.count("one"), coming.served.count("many")) == (1, 39)
        acceptor.close()


async def test_a_crowd_of_owners_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each owner has one connection, those who came last lose theirs."""
    monkeypatch.setattr(listeners, "_WAITING", 40)
    served: list[int] = []
    with crowd(99) as coming:

        def serve(accepted: socket.socket) -> None:
            served.append(accepted.getpeername()[1])
            accepted.close()

        acceptor = Acceptor(coming.listener, serve, lambda one: str(one.getpeername()[1]))
        await until(lambda: len(served) == 40)
        await settle(10)
        assert len(served) == 40
        assert coming.last[1] not in served
        acceptor.close()


async def test_all_that_were_accepted_are_served() -> None:
    """No client is lost that waits when no more are accepted."""
    made = 0

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal made
            made += 1
            transport.close()

    with crowd(200) as coming:
        acceptor = Acceptor(coming.listener, lambda _: Door(), nobody)
        await until(lambda: made > 1)
        assert made <= 64
        acceptor.close()
        await acceptor.wait_closed()
        assert made == 201
    await settle()


async def test_an_accept_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A failed accept is tried again after a pause, as long as clients are accepted."""
    with socket.socket() as deaf:
        acceptor = Acceptor(deaf, lambda _: None, nobody)
        await until(lambda: "a client cannot be accepted: Invalid argument" in caplog.text)
        acceptor.close()


async def test_a_fault_with_one_client(caplog: pytest.LogCaptureFixture) -> None:
    """A client that cannot be served is closed, and the next one is served."""
    served: list[ListenAddress] = []

    def serve(address: ListenAddress, _: socket.socket) -> asyncio.BaseProtocol:
        served.append(address)
        if served[1:]:
            return Greeting(address)
        raise RuntimeError

    port = free_port()
    configuration = Configuration(port=port, addresses=("127.0.0.1",))
    found = Listeners(configuration, (), store=Shelf(), serve=serve, owner_of=nobody)
    found.open()
    assert [await told("127.0.0.1", port) for _ in range(2)] == ["", f"127.0.0.1:{port}"]
    assert "RuntimeError at test_listeners.py" in caplog.text
    await found.close()
