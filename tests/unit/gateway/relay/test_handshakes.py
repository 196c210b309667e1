"""TLS clients count as connections from the moment they connect."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.listeners import Acceptor, Handshake
from appliance.system.kernel.peers import UNKNOWN_OWNER
from tests.fakes.certificates import self_signed
from tests.fakes.engine_server import answering, sized
from tests.unit.gateway.relay.rig import QUICK, Caller, Rig, post, rigged
from tests.unit.gateway.relay.test_crowds import KEY
from tests.waiting import until

FEW = replace(QUICK, connections=8, head_s=5.0, body_s=5.0, idle_s=5.0)
CLIENT_HELLO_START = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """TLS context of a server, with a certificate of its own."""
    found = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    found.load_cert_chain(*self_signed(tmp_path_factory.mktemp("tls")))
    return found


@asynccontextmanager
async def encrypted(context: ssl.SSLContext) -> AsyncIterator[tuple[Rig, int]]:
    """Relay with a TLS port, where clients need a key."""
    async with rigged(answering(sized(b"{}")), limits=FEW) as rig:
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        port: int = listener.getsockname()[1]

        def shake_hands(accepted: socket.socket) -> None:
            protocol = ClientConnection(rig.relay, loopback=False, local=False)
            Handshake(accepted, rig.relay, protocol).start(context)

        acceptor = Acceptor(listener, shake_hands, rig.relay.peers.owner_of)
        try:
            yield rig, port
        finally:
            acceptor.close()
            listener.close()


async def tls_caller(rig: Rig, port: int) -> Caller:
    """Client that has completed its handshake."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    caller = Caller(*await asyncio.open_connection("127.0.0.1", port, ssl=trusting))
    rig.callers.append(caller)
    return caller


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    """Clients that never complete their handshake; closed in the end."""
    clients: list[socket.socket] = []
    yield clients
    for client in clients:
        client.close()


def connect(clients: list[socket.socket], port: int, count: int, said: bytes = b"") -> None:
    """Connect and send nothing."""
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port), timeout=5)
        client.sendall(said)
        clients.append(client)


async def test_requests_over_tls(context: ssl.SSLContext) -> None:
    """A kept connection is one connection, in the handshake and after it."""
    async with encrypted(context) as (rig, port):
        caller = await tls_caller(rig, port)
        for _ in range(2):
            await caller.send(post(headers=KEY))
            assert (await caller.answer()).status == 200
        assert len(rig.relay._clients) == 1
        await caller.close()
        await until(lambda: len(rig.relay._clients) == 0)


@pytest.mark.parametrize("said", [b"", CLIENT_HELLO_START], ids=["silent", "half a hello"])
async def test_handshakes_are_counted(
    context: ssl.SSLContext, silent: list[socket.socket], said: bytes
) -> None:
    """However many handshakes begin, the limit holds, and a newcomer is served."""
    async with encrypted(context) as (rig, port):
        connect(silent, port, 30, said)
        await until(lambda: len(rig.relay._clients) == 7)
        caller = await tls_caller(rig, port)
        await caller.send(post(headers=KEY))
        assert (await caller.answer()).status == 200
        assert len(rig.relay._clients) <= 7
        assert (await rig.ask(post())).status == 200
        ended = 0
        for client in silent:
            client.setblocking(False)  # noqa: FBT003 - has no keyword
            try:
                ended += client.recv(1) == b""
            except ConnectionResetError:
                ended += 1
            except BlockingIOError:
                pass
        assert ended == 24


async def test_failed_handshakes_are_over(
    context: ssl.SSLContext, silent: list[socket.socket]
) -> None:
    """A client that speaks no TLS, and one that hangs up, leave nothing behind."""
    async with encrypted(context) as (rig, port):
        connect(silent, port, 1, b"GET / HTTP/1.1\r\n\r\n")
        connect(silent, port, 1)
        silent[1].close()
        await until(lambda: len(rig.relay._clients) == 0)
        async with asyncio.timeout(5):
            caller = await tls_caller(rig, port)
            await caller.send(post(headers=KEY))
            assert (await caller.answer()).status == 200


async def test_a_stop_ends_handshakes(context: ssl.SSLContext, silent: list[socket.socket]) -> None:
    """Handshakes do not delay a stop of the gateway."""
    async with encrypted(context) as (rig, port):
        connect(silent, port, 3)
        await until(lambda: len(rig.relay._clients) == 3)
        async with asyncio.timeout(4):
            assert await rig.relay.stop(0.1) == (0, 0)
        assert len(rig.relay._clients) == 0


async def test_a_client_that_has_gone_before_it_is_accepted() -> None:
    """A client whose address can no longer be read has the unknown owner."""
    async with rigged(answering(sized(b"{}")), limits=FEW) as rig:
        with socket.socket() as unconnected:
            handshake = Handshake(unconnected, rig.relay, asyncio.Protocol())
            assert (handshake.owner, handshake.bytes_share(0)) == (UNKNOWN_OWNER, None)
