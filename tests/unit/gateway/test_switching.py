"""Relay, routing table, meter and control, with the supervisor's own client, on real sockets."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.gateway.supervisor_commands import GatewayServer, RequestList, SupervisorCommands
from appliance.model.gateway import Key, Limits, Routed, Standing, State
from appliance.model.profile import Endpoint
from appliance.system.socket_gateway import SocketGateway
from tests.fakes.gateway_states import routed
from tests.relay_port import relay_port
from tests.waiting import settle, until


class Engine:
    """Engine that streams its name as long as a test wants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.go = asyncio.Event()
        self.go.set()
        self.port = 0

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.splitlines()
                    if line.lower().startswith(b"content-length")
                )
                asked = json.loads(await reader.readexactly(length))
                await self.answer(writer, streams=bool(asked.get("stream")))
        writer.close()

    async def answer(self, writer: asyncio.StreamWriter, *, streams: bool) -> None:
        usage = b'"usage":{"completion_tokens":3}'
        if not streams:
            await self.go.wait()
            body = b'{"model":"%b",%b}' % (self.name.encode(), usage)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for event in (b"one", b"two", b"{%b}" % usage, b"[DONE]"):
            data = b"data: %b\n\n" % event
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
            await self.go.wait()
        writer.write(b"0\r\n\r\n")


class KeyChecker:
    """Check that needs no key."""

    def check(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:  # noqa: ARG002
        return None


@dataclass
class Box:
    """Gateway before two engines, and the supervisor's end of its control socket."""

    table: RoutingTable
    meter: Meter
    relay: Relay
    supervisor: SocketGateway
    engines: dict[str, Engine]
    port: int
    begun: int = 0
    """Responses whose head has come: that of a held stream comes with its first comment."""

    async def ask(self, model: str | None, *, streams: bool = False) -> tuple[int, bytes]:
        """Send one request; return status and body."""
        body = json.dumps({"stream": streams} | ({} if model is None else {"model": model}))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body.encode())
        )
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.begun += 1
            rest = await reader.read()
        finally:
            # Also of a client that leaves.
            writer.close()
            await writer.wait_closed()
        return int(head.split()[1]), rest

    def figures(self, name: str) -> dict[str, Any]:
        rows: Any = self.meter.document()["profiles"]
        found: dict[str, Any] = rows[name]
        return found


def serves(name: str) -> State:
    return State(standings={name: Standing.SERVING}, committed=(name,))


@asynccontextmanager
async def serving_engines(*names: str) -> AsyncIterator[dict[str, Engine]]:
    """Engines by name, each on a port of its own."""
    engines = {name: Engine(name) for name in names}
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines.values():
            server = await asyncio.start_server(engine.converse, "127.0.0.1", 0)
            engine.port = server.sockets[0].getsockname()[1]
            stack.push_async_exit(server)
        yield engines


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    async with (
        serving_engines("aeon", "genesis") as engines,
        relaying(engines, tmp_path) as box,
    ):
        yield box


@asynccontextmanager
async def relaying(engines: dict[str, Engine], directory: Path) -> AsyncIterator[Box]:
    catalogue: dict[str, Routed] = {
        name: replace(routed(name), endpoint=Endpoint(port=engine.port))
        for name, engine in engines.items()
    }
    table, meter = RoutingTable(catalogue, directory=directory), Meter()
    limits = Limits(wait_s=5.0, quiet_s=0.05, comment_every_s=0.05)
    relay = Relay(router=table, observer=meter, key_checker=KeyChecker(), limits=limits)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(directory / "gateway.sock"))
    door.listen()
    control = GatewayServer(
        SupervisorCommands(table, relay, meter, RequestList(relay), reload=lambda: None).do
    )
    supervisor = SocketGateway(directory / "gateway.sock", patience_s=20, figures_s=20)
    answering = asyncio.create_task(control.serve(door))
    telling = asyncio.create_task(supervisor.run())
    try:
        with relay_port(relay) as port:
            yield Box(table, meter, relay, supervisor, engines, port)
    finally:
        await relay.stop(0.0)
        await ended(telling)
        # asyncio loses a connection that it accepts while its server is closed.
        await settle(10)
        await ended(answering)
        await control.close()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("streams", [False, True])
async def test_held_requests_are_answered_by_what_is_committed(box: Box, streams: bool) -> None:  # noqa: FBT001
    """A request for the default during a switch waits, and is served by the new model."""
    box.supervisor.route(serves("aeon"))
    assert b"aeon" in (await box.ask(None))[1]
    assert await box.supervisor.hold(["aeon", "genesis"]) == ""
    box.supervisor.route(replace(serves("aeon"), held=frozenset(box.engines), target=("genesis",)))
    asking = [asyncio.create_task(box.ask(None, streams=streams)) for _ in range(4)]
    await until(lambda: box.meter.waiting() == 4)
    assert await box.supervisor.drain(["aeon"], 1.0) == "no requests in flight"
    await until(lambda: box.begun == 1 + 4 * streams)
    assert await box.supervisor.release(serves("genesis")) == "4 requests go on"
    for status, body in await asyncio.gather(*asking):
        assert status == 200
        assert (b"[DONE]" in body and b": " in body) if streams else b'"genesis"' in body
    assert box.figures("genesis")["requests"] == 4
    assert box.figures("genesis")["output_tokens"] == 12


async def test_a_drain_waits_for_streams(box: Box) -> None:
    """A stream that ends in time is complete, one that does not gets an error event."""
    box.supervisor.route(serves("aeon"))
    box.engines["aeon"].go.clear()
    asking = asyncio.create_task(box.ask("aeon", streams=True))
    await until(lambda: box.meter.document()["profiles"] and box.figures("aeon")["in_flight"])
    await box.supervisor.hold(["aeon"])
    draining = asyncio.create_task(box.supervisor.drain(["aeon"], 5.0))
    await settle()
    assert not draining.done()
    box.engines["aeon"].go.set()
    assert await draining == "1 finished"
    assert b"[DONE]" in (await asking)[1]


async def test_a_drain_cuts_at_its_deadline_with_an_error(box: Box) -> None:
    """The last event of a cut stream is an error event."""
    box.supervisor.route(serves("aeon"))
    box.engines["aeon"].go.clear()
    asking = asyncio.create_task(box.ask("aeon", streams=True))
    await until(lambda: box.meter.document()["profiles"] and box.figures("aeon")["in_flight"])
    assert await box.supervisor.drain(["aeon"], 0.05) == "1 cut after 0.05 s"
    _status, body = await asking
    assert b'"error"' in body
    assert b"[DONE]" not in body
    box.engines["aeon"].go.set()


async def test_a_roll_back_releases_to_what_served(box: Box) -> None:
    """A request for the new model is refused as not active; one for the default goes on."""
    box.supervisor.route(serves("aeon"))
    await box.supervisor.hold(["aeon", "genesis"])
    asking = [asyncio.create_task(box.ask(model)) for model in (None, "genesis")]
    await until(lambda: box.meter.waiting() == 2)
    await box.supervisor.release(serves("aeon"))
    (status, body), (refused, why) = await asyncio.gather(*asking)
    assert (status, refused) == (200, 404)
    assert b'"aeon"' in body
    assert b"model_not_active" in why
    assert b"appliance switch genesis" in why


async def test_figures_reach_the_supervisor(box: Box) -> None:
    """The gateway's counters are in the supervisor's status."""
    box.supervisor.route(serves("aeon"))
    await box.ask("aeon", streams=True)
    stats: Any = await box.supervisor.stats()
    aeon = stats["profiles"]["aeon"]
    assert (aeon["requests"], aeon["output_tokens"], aeon["in_flight"]) == (1, 3, 0)
    assert aeon["ttft_ms"] is not None
