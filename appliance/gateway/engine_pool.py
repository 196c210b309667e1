"""Pool of connections to one engine: the requests in flight, and how one connection serves them in turn.

A connection serves one request after another, each written whole, each response parsed:

    idle --send--> waiting --head--> responding --end--> idle, or closed
     |                |                  |
     |                +-- lost ----------+--> closed; the request fails
     '-- ended --> closed; the pool takes another connection

A request is written once, whatever happens then: an engine that closes the connection without a
response may have read the request, and worked on it. No socket reports that it has not. A reset
carries no acknowledgement, so TCP_INFO's bytes_acked leaves out bytes that the engine has read,
and after a half-close it leaves out those read later; a unix socket has no acknowledgements. So
the kernel is asked before the first byte whether the end of a kept connection has come
(`Pool.acquire`).

An engine that sends bytes while no request is under way could mix up responses: its connection is
closed.
"""

import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, cast

from appliance.gateway.event_loop import COUNTED_BYTES, ReadBudget, WriteBatch, end_faulty, guarded
from appliance.gateway.request_head import CachedHead
from appliance.gateway.response import Framing, ResponseHead, ResponseParser
from appliance.model.gateway import Limits, Refusal, Routed
from appliance.routing.json_body import BodyChanges, Pieces, compile_changes
from appliance.routing.refusals import GATEWAY_FAULT

_WRITE_HIGH_BYTES: Final = 256 << 10
_LARGE_BYTES: Final = 64 << 10
"""Size from which a body is not copied to follow its head."""


def _true() -> bool:
    return True


class UpstreamRequest(Protocol):
    """Request to an engine, as the pool and the connection call it back."""

    def connected(self, engine: "EngineConnection") -> bool:
        """Take a new connection; False: the request does not need it any more."""
        ...

    def unreachable(self) -> None:
        """Note that the engine accepts no connection."""
        ...

    def begin_response(self, head: ResponseHead) -> None:
        """Take the response head."""
        ...

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Take bytes of the response body; with the last ones, `complete`."""
        ...

    def deliver_whole(self, head: ResponseHead, payload: bytes) -> None:
        """Take a response that came at once, with a `Content-Length`."""
        ...

    def write_to_client(self, data: bytes) -> None:
        """Take bytes that follow a change of protocol."""
        ...

    def engine_lost(self) -> None:
        """Note that the connection closed before the end of the response, or sent what is no HTTP."""
        ...

    def engine_blocked(self, *, blocked: bool) -> None:
        """Note whether the engine reads too slowly to be sent more."""
        ...

    def cut(self, why: Refusal) -> None:
        """End the request now, with an error."""
        ...


class EngineConnection(asyncio.Protocol):
    """Connection to an engine, owned by a pool."""

    __slots__ = (
        "_head_delivered",
        "_head_first",
        "_late",
        "_parser",
        "_paused",
        "_pool",
        "_request",
        "_transport",
        "_tunnel",
        "_used",
        "ended",
        "fileno",
        "idle_since_s",
        "is_closing",
    )

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._request: UpstreamRequest | None = None
        """Request on the connection; None: it is idle, or no response is wanted any more."""
        self._parser: ResponseParser | None = None
        """Parser of the response; None: no byte of the response was received."""
        self._late = b""
        """Bytes that wait until a turn of the event loop has room for them; no others are read."""
        self._head_first = self._head_delivered = self._used = self._paused = self._tunnel = False
        self.idle_since_s = 0.0
        self.is_closing: Callable[[], bool] = _true
        """Tell whether no request may be sent: the transport's own method, because the pool calls it
        for every request, and a property would be a second call."""
        self.fileno = -1
        """Descriptor of the socket; -1: not connected."""
        self.ended = False
        """Whether the kernel has reported that the engine has ended the connection."""

    # Calls of the exchange and the pool.

    def send(
        self, request: UpstreamRequest, head: bytes, body: bytes | Pieces, *, head_first: bool
    ) -> None:
        """Write a request; the response goes to its callbacks.

        Args:
            request: Called back until the end of the response.
            head: Request head.
            body: Whole request body.
            head_first: `begin_response` is called before the body is delivered, also of a short response.
        """
        self._request = request
        self._parser = None
        self._head_first = head_first
        self._head_delivered = False
        if self._transport is None:
            return
        if len(body) < _LARGE_BYTES:
            self._pool.writes.write(self._transport, head + body)
        else:
            buffers = body.buffers if isinstance(body, Pieces) else (body,)
            self._transport.writelines((head, *buffers))

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._pool.writes.write(self._transport, data)

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._transport is not None and not self.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self._transport is not None and not self.is_closing():
            self._paused = False
            if not self._late:
                self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once, without a callback."""
        self._request = None
        self._late = b""
        if self._transport is not None:
            self._transport.abort()

    def shut_down(self) -> None:
        """Close at once, without a callback, and before this call returns as the engine sees it.

        The event loop closes the socket of an aborted connection later, after bytes that were
        written to others meanwhile.
        """
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is not None and not self.is_closing():
            with suppress(OSError), socket.socket(fileno=os.dup(found.fileno())) as own:
                own.shutdown(socket.SHUT_RDWR)
        self.abort()

    def finish(self) -> None:
        """Close when everything is written, without a callback."""
        self._request = None
        if self._transport is not None:
            self._transport.close()

    def end_after_fault(self) -> None:
        request = self._request
        self.abort()
        if request is not None:
            request.cut(GATEWAY_FAULT)

    # Callbacks of the event loop.

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self.is_closing = self._transport.is_closing
        if (found := transport.get_extra_info("socket")) is not None:
            self.fileno = found.fileno()
            self._pool.watch(self)

    def data_received(self, data: bytes) -> None:
        request = self._request
        try:
            if len(data) >= COUNTED_BYTES and self._has_to_wait(data):
                return
            if request is None:
                self.abort()
            elif self._tunnel:
                request.write_to_client(data)
            elif self._parser is not None:
                self._parse(request, self._parser, data)
            elif not self._deliver_cached(request, data):
                if not self._used:
                    self._pool.mark_heard(self)
                self._parser = parser = ResponseParser()
                self._parse(request, parser, data)
                self._cache_head(parser, data)
        except Exception as error:  # noqa: BLE001 - the guard of a callback
            # A request that was just answered is not the connection's any more.
            self._request = request
            end_faulty(error, self.end_after_fault, self.abort)

    def _has_to_wait(self, data: bytes) -> bool:
        """Keep a large chunk that this turn of the event loop has no room for; False: it has."""
        if data is self._late or self._pool.reads.spend(len(data)):
            return False
        self._late = data
        if self._transport is not None and not self.is_closing():
            self._transport.pause_reading()
        self._pool.reads.wait(self, len(data))
        return True

    @guarded
    def read_late(self) -> None:
        if not self._late:
            # The connection was closed meanwhile.
            return
        self.data_received(self._late)
        self._late = b""
        if not self._paused and self._transport is not None and not self.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> None:
        """Let the event loop close the connection; `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.read_late()
        self._pool.forget(self)
        self._transport = None
        self.is_closing = _true
        request, self._request = self._request, None
        parser, self._parser = self._parser, None
        if request is None:
            return
        try:
            if parser is not None and parser.ends_with_connection and exc is None:
                parser.complete = True
                request.deliver(parser.take_body(), complete=True)
            else:
                request.engine_lost()
        except Exception as error:  # noqa: BLE001 - the guard of a callback
            self._request = request
            end_faulty(error, self.end_after_fault, self.abort)

    @guarded
    def pause_writing(self) -> None:
        if self._request is not None:
            self._request.engine_blocked(blocked=True)

    @guarded
    def resume_writing(self) -> None:
        if self._request is not None:
            self._request.engine_blocked(blocked=False)

    # Parsing of responses.

    def _deliver_cached(self, request: UpstreamRequest, data: bytes) -> bool:
        """Deliver a response received at once under a cached head; False: no such response."""
        cached = self._pool.cached_head
        if cached is None or self._head_first:
            return False
        match = cached[0].match(data)
        if match is None:
            return False
        length, end = match
        if end + length != len(data):
            return False
        if self._used and not self._paused:
            self._request = None
            self._pool.release(self)
        else:
            self._end_response(keeps=True)
        request.deliver_whole(cached[1], data[end:])
        return True

    def _cache_head(self, parser: ResponseParser, data: bytes) -> None:
        """Cache the head of a whole response that was received at once, with a length."""
        head = parser.head
        end = data.find(b"\r\n\r\n") + 4
        if (
            head is not None
            and head.framing is Framing.LENGTH
            and head.length
            and parser.keeps
            and end + int(head.length) == len(data)
        ):
            cached = CachedHead.of(data[:end])
            self._pool.cached_head = None if cached is None else (cached, head)

    def _parse(self, request: UpstreamRequest, parser: ResponseParser, data: bytes) -> None:
        parser.feed(data)
        if parser.bad:
            self.abort()
            request.engine_lost()
        elif parser.head is not None:
            self._deliver(request, parser, parser.head)

    def _deliver(
        self, request: UpstreamRequest, parser: ResponseParser, head: ResponseHead
    ) -> None:
        first = not self._head_delivered
        if first:
            self._head_delivered = True
            self._tunnel = head.websocket
            request.begin_response(head)
            if self._request is not request:
                return
        if head.websocket:
            if parser.rest:
                request.write_to_client(parser.rest)
        elif parser.complete:
            payload = parser.take_body()
            self._end_response(keeps=parser.keeps)
            request.deliver(payload, complete=True)
        else:
            payload = parser.take_body()
            if payload or first:
                request.deliver(payload, complete=False)

    def _end_response(self, *, keeps: bool) -> None:
        """Return the connection to the pool, or close it."""
        self._request = self._parser = None
        if keeps:
            if not self._used:
                self._used = True
                self._pool.mark_heard(self)
            if self._paused:
                self.resume()
            self._pool.release(self)
        else:
            self.finish()


_MOST_IDLE: Final = 256
_IDLE_S: Final = 2.0
"""Time for which an idle connection is kept; two sweeps add up to 2 s. Engines close theirs after 5 s
(uvicorn's and llama.cpp's default), and a request must not cross with that: it is sent once."""
_STARVED_S: Final = 0.1
"""Time after which a new connection that is still silent may be waiting for a worker of the engine.
llama.cpp's server has a thread for each connection, which stays with it while it is kept: 40
requests at once, twice, took 4.6 s that way, and 0.1 s since kept ones are closed for them."""


class Pool:
    """Pool of connections to one engine."""

    def __init__(
        self, routed: Routed, limits: Limits, writes: WriteBatch, reads: ReadBudget
    ) -> None:
        self._endpoint = routed.endpoint
        self.writes = writes
        self.reads = reads
        self._connect_s = limits.connect_s
        self._idle: deque[EngineConnection] = deque()
        self._ended = select.epoll()
        """Connections that the engine has ended: one call to the kernel returns all."""
        self._watched: dict[int, EngineConnection] = {}
        """Connections to the engine, by descriptor."""
        self._polled_turn = 0
        """Turn of the event loop in which `_ended` was last polled."""
        self._silent: set[EngineConnection] = set()
        """New connections on which no byte was received yet."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._starved = False
        """Whether a silent connection has waited too long: no connection is kept until all have had
        a byte."""
        self._closed = False
        self.cached_head: tuple[CachedHead, ResponseHead] | None = None
        """Head of the engine's last response that was received at once with a length; None: no such
        response."""

    @property
    def idle(self) -> int:
        """Return the number of idle connections."""
        return len(self._idle)

    def acquire(self) -> EngineConnection | None:
        """Take the idle connection that was used last; None: there is none."""
        if not self._idle:
            return None
        writes = self.writes
        if not writes.pending or self._polled_turn != writes.turn:
            # What is written in one turn of the event loop goes out at its end: one poll is enough.
            self._polled_turn = writes.turn
            if self._ended.poll(0, 1):
                self._close_ended()
        while self._idle:
            engine = self._idle.pop()
            if not engine.is_closing():
                return engine
        return None

    def watch(self, engine: EngineConnection) -> None:
        """Have the kernel report the engine's end of a connection, until the connection is closed."""
        if not self._closed:
            self._watched[engine.fileno] = engine
            self._ended.register(engine.fileno, select.EPOLLRDHUP)

    def _close_ended(self) -> None:
        """Close idle connections whose end has come; others take no more requests."""
        for fileno, _ in self._ended.poll(0):
            self._ended.unregister(fileno)
            # One that is forgotten has its socket until the event loop closes it.
            if (engine := self._watched.get(fileno)) is not None:
                engine.ended = True
        for engine in [one for one in self._idle if one.ended]:
            self._idle.remove(engine)
            engine.abort()

    def release(self, engine: EngineConnection) -> None:
        """Keep a connection after its response."""
        if engine.ended or self._closed or self._starved or len(self._idle) >= _MOST_IDLE:
            engine.finish()
            return
        engine.idle_since_s = 0.0
        self._idle.append(engine)

    def mark_heard(self, engine: EngineConnection) -> None:
        """Note the first byte on a connection."""
        self._silent.discard(engine)
        if not self._silent:
            self._starved = False

    def forget(self, engine: EngineConnection) -> None:
        """Drop a connection that has closed."""
        if self._watched.get(engine.fileno) is engine:
            del self._watched[engine.fileno]
        self.mark_heard(engine)
        with suppress(ValueError):
            self._idle.remove(engine)

    def connect(self, request: UpstreamRequest) -> None:
        """Open a connection for a request, and call it back."""
        task = asyncio.get_running_loop().create_task(self._connect(request))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, request: UpstreamRequest) -> None:
        try:
            await self._connect_once(request)
        except Exception as error:  # noqa: BLE001 - the guard of a task
            end_faulty(error, partial(request.cut, GATEWAY_FAULT))

    async def _connect_once(self, request: UpstreamRequest) -> None:
        try:
            async with asyncio.timeout(self._connect_s):
                engine = await self._open()
        except (OSError, TimeoutError):
            request.unreachable()
            return
        if not request.connected(engine):
            self.release(engine)
            return
        self._silent.add(engine)
        self._relieve_later(engine)

    def _relieve_later(self, engine: EngineConnection) -> None:
        asyncio.get_running_loop().call_later(_STARVED_S, self._relieve, engine)

    def _relieve(self, engine: EngineConnection) -> None:
        """Close idle connections while a silent one may be waiting for their workers."""
        if engine in self._silent:
            self._relieve_later(engine)
            self._starved = True
            self.close_idle()

    async def _open(self) -> EngineConnection:
        loop = asyncio.get_running_loop()
        if self._endpoint.socket is not None:
            _, engine = await loop.create_unix_connection(
                lambda: EngineConnection(self), self._endpoint.socket
            )
        else:
            _, engine = await loop.create_connection(
                lambda: EngineConnection(self), "127.0.0.1", self._endpoint.port or 0
            )
        return engine

    def sweep(self, now_s: float) -> None:
        """Close connections that have been idle too long, counted from their first sweep."""
        for engine in tuple(self._idle):
            engine.idle_since_s = engine.idle_since_s or now_s
            if now_s - engine.idle_since_s > _IDLE_S:
                self._idle.remove(engine)
                engine.finish()

    def close_idle(self) -> None:
        while self._idle:
            self._idle.popleft().finish()

    def close(self) -> None:
        """Close idle connections now, and every other one when its response has ended."""
        self._closed = True
        self.close_idle()
        self._ended.close()


class Upstream:
    """Upstream of one profile: its engine's pool, requests in flight, and changes of requests."""

    __slots__ = (
        "_limits",
        "changes",
        "drained",
        "head_lines",
        "in_flight",
        "other_changes",
        "pool",
        "reads",
        "routed",
        "unchanged",
        "writes",
    )

    def __init__(
        self, routed: Routed, limits: Limits, writes: WriteBatch, reads: ReadBudget
    ) -> None:
        self._limits = limits
        self.writes = writes
        self.reads = reads
        self.in_flight: set[UpstreamRequest] = set()
        self.drained = asyncio.Event()
        """Event that is set when the last request in flight ends; cleared by each waiter."""
        self.pool = Pool(routed, limits, writes, reads)
        self._compile(routed)

    def _compile(self, routed: Routed) -> None:
        self.routed = routed
        self.head_lines = own_head_lines(routed)
        """Return the header lines that every request to the engine begins with."""
        self.changes: Mapping[str | None, BodyChanges] = {
            name: _body_changes(routed, engine_name)
            for name, engine_name in (*routed.engine_names.items(), (None, None))
        }
        """Changes of a body by the model that it names; None: it names none."""
        self.other_changes: BodyChanges = _body_changes(routed, routed.engine_name)
        """Changes of a body that names a model by another name than the engine's."""
        known = {routed.engine_name: self.other_changes, **self.changes}
        self.unchanged = frozenset(
            name for name, its in known.items() if not its.others and its.name == name
        )
        """Models whose plain bodies stay as they are: the engine knows them by the name that clients send."""

    def renew(self, routed: Routed) -> None:
        """Use a profile that was applied anew."""
        if routed.endpoint != self.routed.endpoint:
            self.pool.close()
            self.pool = Pool(routed, self._limits, self.writes, self.reads)
        self._compile(routed)

    def remove(self, request: UpstreamRequest) -> None:
        """Drop a request that is over."""
        self.in_flight.discard(request)
        if not self.in_flight:
            self.drained.set()


def own_head_lines(routed: Routed) -> bytes:
    """Return the lines ``Host`` and, where the engine has a key, ``Authorization``."""
    endpoint = routed.endpoint
    host = "localhost" if endpoint.port is None else f"127.0.0.1:{endpoint.port}"
    lines = f"Host: {host}\r\n"
    if routed.engine_key is not None:
        lines += f"Authorization: Bearer {routed.engine_key}\r\n"
    return lines.encode("latin-1")


def _body_changes(routed: Routed, model: str | None) -> BodyChanges:
    handling = routed.handling
    return compile_changes(
        model=model, set_=handling.set_parameters, strip=handling.strip_parameters
    )
