"""Pool of connections to one engine, and the engine's requests in flight."""

import asyncio
import select
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from appliance.gateway.callback_guard import end_faulty
from appliance.gateway.http.head_cache import CachedHead
from appliance.gateway.http.response_head import ResponseHead
from appliance.gateway.upstream.engine_connection import EngineConnection, UpstreamRequest
from appliance.gateway.upstream.read_budget import ReadBudget
from appliance.gateway.write_batch import WriteBatch
from appliance.model.gateway import Limits, Routed
from appliance.routing.json_body import BodyChanges, compile_changes
from appliance.routing.refusals import GATEWAY_FAULT

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
        """Connections that the engine has ended, which one call to the kernel tells of all."""
        self._watched: dict[int, EngineConnection] = {}
        """Connections to the engine, by descriptor."""
        self._asked_turn = 0
        """Turn of the event loop in which the kernel was asked last."""
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
        if not writes.pending or self._asked_turn != writes.turn:
            # What is written in one turn of the event loop goes out at its end: asked once.
            self._asked_turn = writes.turn
            if self._ended.poll(0, 1):
                self._close_ended()
        while self._idle:
            engine = self._idle.pop()
            if not engine.is_closing():
                return engine
        return None

    def watch(self, engine: EngineConnection) -> None:
        """Have the kernel tell when the engine has ended a connection, until it is closed."""
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
    return compile_changes(model=model, set_=routed.set_parameters, strip=routed.strip_parameters)
