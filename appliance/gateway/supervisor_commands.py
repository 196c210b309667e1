"""Commands of the supervisor in the gateway (see `appliance.wire.gateway`): their server and what they do.

`GatewayServer` has the connections, the lines and the answers; `SupervisorCommands` carries commands out.

`RequestList` has the requests of clients that are in flight or held, each of which can be cut by its id.
A request gets its id when it is listed for the first time, so that a request that is never listed costs
nothing. Ids are of this process: another one never takes one of them for a request of its own.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, count
from time import monotonic
from typing import Any, Final, assert_never
from weakref import WeakKeyDictionary

from appliance.gateway.exchange import Exchange
from appliance.gateway.handover import Traffic
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.routing.refusals import REQUEST_CANCELLED
from appliance.wire.gateway import (
    MAX_COMMAND_BYTES,
    ClientRequestRow,
    ClientRequestsDocument,
    CommandRefused,
    CutCommand,
    DrainCommand,
    GatewayAnswer,
    GatewayCommand,
    HoldCommand,
    ReleaseCommand,
    ReloadCommand,
    RequestsCommand,
    RouteCommand,
    StatsCommand,
    decode_command,
    encode_answer,
)
from appliance.wire.json_values import Json
from appliance.wire.server import Bounds, serve_unix

MOST_LISTED: Final = 100
"""Requests in one list, the oldest: reading the end of each response takes some 20 µs, so no other is read."""


class RequestList:
    """List of the requests of one relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._ids: WeakKeyDictionary[Exchange, str] = WeakKeyDictionary()
        self._prefix = os.urandom(3).hex()
        self._numbers = count(1)

    def document(self) -> ClientRequestsDocument:
        """Return the oldest requests, and how many were left off."""
        ages = [(age_s, one) for one in self._exchanges() if (age_s := one.age_s) is not None]
        ages.sort(key=lambda each: -each[0])
        listed = [exchange for _, exchange in ages[:MOST_LISTED]]
        rows = [row for one in listed if (row := one.row(self._id(one))) is not None]
        return {"requests": rows, "left_off": len(ages) - len(rows)}

    def cut(self, wanted: str) -> ClientRequestRow | None:
        """End a request with an error for its client; return its row, None: it is over."""
        exchange = next((one for one in self._exchanges() if self._ids.get(one) == wanted), None)
        row = None if exchange is None else exchange.row(wanted)
        if exchange is not None and row is not None:
            exchange.cut(REQUEST_CANCELLED)
        return row

    def _id(self, exchange: Exchange) -> str:
        return self._ids.setdefault(exchange, f"{self._prefix}-{next(self._numbers)}")

    def _exchanges(self) -> Iterable[Exchange]:
        upstreams = self._relay.upstreams.values()
        requests = chain(self._relay.hold_queue.requests(), *(one.in_flight for one in upstreams))
        return (one for one in requests if isinstance(one, Exchange))


_log = logging.getLogger(__name__)


class SupervisorCommands:
    """Executor of the supervisor's commands.

    Args:
        table: Takes states and holds.
        traffic: Requests to drain.
        meter: Counts of waiting requests, and all counters.
        requests: Has the requests in flight and held.
        reload: Reads keys and profiles again. What it raises is logged and reported.
        listening: Returns where clients are served; None: the answer leaves it out.
    """

    def __init__(
        self,
        table: RoutingTable,
        traffic: Traffic,
        meter: Meter,
        requests: RequestList,
        *,
        reload: Callable[[], None],
        listening: Callable[[], Json] | None = None,
    ) -> None:
        self._table = table
        self._traffic = traffic
        self._meter = meter
        self._requests = requests
        self._reload = reload
        self._listening = listening
        self._began_s = monotonic()

    async def do(self, command: GatewayCommand) -> GatewayAnswer:  # noqa: PLR0911 - one a command
        """Execute a command. Raises `ValueError` when keys or profiles cannot be read."""
        match command:
            case RouteCommand(state):
                self._table.take(state)
            case HoldCommand(names):
                self._table.hold(names)
                return GatewayAnswer(waiting=self._meter.waiting(names))
            case DrainCommand(names, timeout_s):
                return await self._drain(names, timeout_s)
            case ReleaseCommand(state):
                waiting = self._meter.waiting()
                self._table.take(state)
                return GatewayAnswer(released=waiting)
            case StatsCommand():
                return GatewayAnswer(stats=self._stats())
            case RequestsCommand():
                return GatewayAnswer(requests=self._requests.document())
            case CutCommand(request):
                return self._cut(request)
            case ReloadCommand():
                self._try_reload()
            case never:
                assert_never(never)
        return GatewayAnswer()

    def _cut(self, request: str) -> GatewayAnswer:
        row = self._requests.cut(request)
        if row is None:
            return GatewayAnswer()
        return GatewayAnswer(cut=1, requests={"requests": [row], "left_off": 0})

    def _stats(self) -> Json:
        stats = {**self._meter.document(), "uptime_s": round(monotonic() - self._began_s, 1)}
        return stats if self._listening is None else {**stats, "listening": self._listening()}

    async def _drain(self, names: Sequence[str], timeout_s: float) -> GatewayAnswer:
        finished, cut = await self._traffic.drain(names, timeout_s)
        if cut:
            fields = event_fields(JournalEvent.REQUESTS_CUT, profiles=names)
            _log.warning("%d requests were cut after %.0f s", cut, timeout_s, extra=fields)
        return GatewayAnswer(finished=finished, cut=cut)

    def _try_reload(self) -> None:
        try:
            self._reload()
        except Exception as error:
            _log.exception("reload failed: keys and profiles stay as they were")
            raise ValueError(f"not read: {error}") from error


_BOUNDS: Final = Bounds(line_bytes=MAX_COMMAND_BYTES, per_user=128, total=192)
"""Bounds of the socket: the supervisor has a connection for each command, and each of its own
clients may cause one."""
_FULL: Final = encode_answer(CommandRefused("too many connections"))
_LINE_S: Final = 10.0
"""Time for a line from its first byte to its last, and for an answer to be read."""

Do = Callable[[GatewayCommand], Awaitable[GatewayAnswer]]
"""Function that carries out a command. A `ValueError` that it raises becomes the answer."""


class GatewayServer:
    """Server for the commands of the supervisor. The socket's mode decides who may connect.

    Args:
        do: Does what a command says; cancelled when the supervisor has closed the connection.
    """

    def __init__(self, do: Do) -> None:
        self._do = do
        self._conversations: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, listener: socket.socket) -> None:
        """Answer for ever. The socket's file stays, since systemd owns it.

        Cancelled, it takes no new connections; a command that is being done is still answered.
        """
        await serve_unix(listener, self._connected, _BOUNDS, refusal=_FULL)

    def retire(self) -> None:
        """Take no further command, since another process has taken over.

        What is being done, such as a drain, goes on.
        """
        self._closed = True

    async def close(self) -> None:
        """End every conversation, and begin no other."""
        self._closed = True
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._converse(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        await asyncio.wait({task})

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The next line is awaited during a command, which is the only way to see the client leave.
        upcoming = asyncio.ensure_future(_next_line(reader))
        try:
            while (line := await upcoming) and not self._closed:
                upcoming = asyncio.ensure_future(_next_line(reader))
                answer = await self._unless_left(line, upcoming)
                if answer is None:
                    return
                writer.write(encode_answer(answer))
                async with asyncio.timeout(_LINE_S):
                    await writer.drain()
        except (ConnectionError, ValueError, TimeoutError):
            _log.debug("the supervisor closed its connection")
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    async def _unless_left(
        self, line: bytes, upcoming: asyncio.Future[bytes]
    ) -> GatewayAnswer | CommandRefused | None:
        """Return the answer; None: the client has closed the connection meanwhile."""
        answering = asyncio.create_task(self._answer(line))
        try:
            either: set[asyncio.Future[Any]] = {answering, upcoming}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not await upcoming:
                return None
            return await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, line: bytes) -> GatewayAnswer | CommandRefused:
        try:
            return await self._do(decode_command(line))
        except ValueError as error:
            return CommandRefused(str(error))


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, empty at the end; a line that has begun has to end soon.

    Raises:
        TimeoutError: it did not end in time.
        ValueError: it is too long.
    """
    begun = await reader.read(1)
    if begun in {b"", b"\n"}:
        return begun
    async with asyncio.timeout(_LINE_S):
        return begun + await reader.readline()
