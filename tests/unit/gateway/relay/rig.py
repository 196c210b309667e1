"""A relay on a loopback port, before an engine that a test scripts, and a client of raw bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import h11

from appliance.gateway.relay import KeyChecker, Relay, RequestProgress
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Key, Limits, Routed, Standing, State
from appliance.model.profile import Endpoint
from appliance.routing.origin_policy import OriginPolicy
from tests.fakes.engine_server import EngineServer, Script
from tests.fakes.loopback import delivered
from tests.relay_port import relay_port
from tests.waiting import settle

QUICK = Limits(
    head_s=0.3, body_s=0.3, idle_s=5.0, stuck_s=0.5, wait_s=2.0, quiet_s=0.1, comment_every_s=0.1
)
"""Limits that tests do not have to wait long for."""
ASKED = {"model": "genesis", "messages": []}


@dataclass
class Recorded:
    """Record of one observed request."""

    profile: str
    key: Key | None
    sent: int = 0
    sizes: list[int] = field(default_factory=list)
    end: tuple[int, bytes] | None = None
    owed: list[bool] = field(default_factory=list)
    """Whether bytes were owed, at each change after the request was sent."""


class RecordingObserver:
    """Observer that records every request."""

    def __init__(self) -> None:
        self.seen: list[Recorded] = []

    def begin(self, profile: str, key: Key | None) -> "RecordedObservation":
        self.seen.append(Recorded(profile, key))
        return RecordedObservation(self.seen[-1])

    def begin_sent(self, profile: str, key: Key | None) -> "RecordedObservation":
        self.seen.append(Recorded(profile, key, sent=1))
        return RecordedObservation(self.seen[-1])


class RecordedObservation:
    """Observation of one request by a `RecordingObserver`."""

    def __init__(self, seen: Recorded) -> None:
        self._seen = seen

    def sent(self) -> None:
        self._seen.sent += 1

    def chunk(self, size: int) -> None:
        self._seen.sizes.append(size)

    def owed(self, *, owed: bool) -> None:
        self._seen.owed.append(owed)

    def progress(self) -> RequestProgress:
        sizes = self._seen.sizes
        waited_s = 0.5 if self._seen.sent else None
        return RequestProgress(
            age_s=1.0, waited_s=waited_s, pieces=len(sizes), size_bytes=sum(sizes)
        )

    def end(self, status: int, tail: bytes, size: int = 0) -> None:
        assert self._seen.end is None
        if size:
            self._seen.sizes.append(size)
        self._seen.end = (status, tail)


class OneKeyChecker:
    """Check that knows one key, ``right``."""

    def check(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:
        given = authorization or api_key
        if given is None:
            return None
        if given in {b"Bearer right", b"right"}:
            return Key(name="someone")
        raise PermissionError


@dataclass
class Rig:
    """Relay with its routing table, its engine and its clients."""

    relay: Relay
    table: RoutingTable
    engine: EngineServer
    watcher: RecordingObserver
    port: int
    callers: "list[Caller]" = field(default_factory=list)

    async def connect(self) -> "Caller":
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        self.callers.append(caller)
        return caller

    async def ask(self, raw: bytes) -> "Answer":
        """Send one request on a connection of its own."""
        caller = await self.connect()
        try:
            caller.writer.write(raw)
            return await caller.answer(head_only=raw.startswith(b"HEAD "))
        finally:
            await caller.close()

    def tell(self, standing: Standing, *, held: Iterable[str] = ()) -> None:
        """Set the standing of genesis from now on."""
        state = State(standings={"genesis": standing}, committed=("genesis",), held=frozenset(held))
        self.table.take(state)

    def crash(self) -> None:
        """Tell that the engine of genesis has ended by itself, and is about to be started again."""
        coming = {"genesis": Standing.STARTING}
        crashed = frozenset({"genesis"})
        self.table.take(State(standings=coming, committed=("genesis",), crashed=crashed))


@dataclass
class Answer:
    """Response to a client, as h11 parses it."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    """Whether the response had its proper end."""
    interim: list[int]

    @property
    def error(self) -> dict[str, object]:
        """Error object of a body in OpenAI's form."""
        found = json.loads(self.body)["error"]
        assert isinstance(found, dict)
        return found


class Caller:
    """Connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._left = b""

    async def send(self, *pieces: bytes) -> None:
        """Send pieces; the relay has read each before the next, and acted on the last."""
        for piece in pieces:
            self.writer.write(piece)
            await delivered(self.writer)
        await settle()

    async def begun(self) -> bytes:
        """Wait for the next response's head, which `answer` returns all the same."""
        self._left += await self.reader.readuntil(b"\r\n\r\n")
        return self._left

    async def answer(self, *, head_only: bool = False) -> Answer:
        """Read the next response."""
        http = h11.Connection(h11.CLIENT)
        http.send(
            h11.Request(method="HEAD" if head_only else "GET", target="/", headers=[("host", "x")])
        )
        http.send(h11.EndOfMessage())
        if self._left:
            http.receive_data(self._left)
        answer = Answer(0, {}, b"", whole=False, interim=[])
        try:
            async with asyncio.timeout(10):
                await self._hear(http, answer)
        except (h11.RemoteProtocolError, ConnectionError):
            return answer
        self._left = http.trailing_data[0]
        return answer

    async def _hear(self, http: h11.Connection, answer: Answer) -> None:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.InformationalResponse):
                answer.interim.append(event.status_code)
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {n.decode().lower(): v.decode() for n, v in event.headers}
            elif isinstance(event, h11.Data):
                answer.body += bytes(event.data)
            else:
                answer.whole = isinstance(event, h11.EndOfMessage)
                return

    async def ended(self) -> bool:
        """Tell whether the relay closes this connection; return when it has."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def rigged(
    script: Script,
    *,
    limits: Limits = QUICK,
    path: str | None = None,
    loopback: bool = True,
    allowed: Iterable[str] = (),
    profile: Routed | None = None,
    origin_policy: OriginPolicy | None = None,
    key_checker: KeyChecker | None = None,
) -> AsyncIterator[Rig]:
    """A relay whose one profile, genesis, is the engine with this script, and serves."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(EngineServer(script, path))
        endpoint = Endpoint(socket=path) if path else Endpoint(port=engine.port)
        plain = Routed(
            name="genesis", served=("genesis",), engine_name="genesis", endpoint=endpoint
        )
        routed = plain if profile is None else replace(profile, endpoint=endpoint)
        table = RoutingTable({routed.name: routed})
        watcher = RecordingObserver()
        relay = Relay(
            router=table,
            observer=watcher,
            key_checker=OneKeyChecker() if key_checker is None else key_checker,
            limits=limits,
            allowed=frozenset(allowed),
            origin_policy=origin_policy,
        )
        with relay_port(relay, loopback=loopback) as port:
            rig = Rig(relay, table, engine, watcher, port)
            rig.tell(Standing.SERVING)
            try:
                yield rig
            finally:
                for caller in rig.callers:
                    await caller.close()
                await relay.stop(0)


def post(
    document: object = None,
    *,
    path: str = "/v1/chat/completions",
    headers: str = "",
) -> bytes:
    """A request with a JSON body."""
    body = json.dumps(ASKED if document is None else document).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: box\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{headers}\r\n"
    )
    return head.encode() + body


def get(path: str, *, headers: str = "", method: str = "GET") -> bytes:
    """A request without a body."""
    return f"{method} {path} HTTP/1.1\r\nHost: box\r\n{headers}\r\n".encode()
