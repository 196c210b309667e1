"""Listeners: sockets that are inherited, bound, stored in systemd and closed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from appliance.domain.gateway import Configuration
from appliance.gateway.downstream.interfaces import AddressChanges, addresses_of
from appliance.gateway.downstream.listeners import (
    ListenAddress,
    Listeners,
    bind_listener,
    listen_address_of,
)
from tests.waiting import settle

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


@asynccontextmanager
async def listening(
    configuration: Configuration, *inherited: socket.socket
) -> AsyncIterator[tuple[Listeners, Shelf]]:
    """Listeners that are open, and closed in the end."""
    shelf = Shelf()
    found = Listeners(configuration, inherited, store=shelf, serve=Greeting)
    await found.open()
    try:
        yield found, shelf
    finally:
        found.close()


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
            await found.open()
            assert await told("127.0.0.2", port)
            errors = [r.message for r in caplog.records if r.levelname == "ERROR"]
            assert errors == [f"cannot listen on 127.0.0.1:{port}: Address already in use"]
            other.close()
            await found.open()
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
