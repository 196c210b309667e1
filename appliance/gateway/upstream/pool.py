"""The way to one profile's engine: its connections, and the requests that are under way."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

from appliance.domain.gateway import Limits, Refusal, Routed
from appliance.gateway.http.head_cache import Known
from appliance.gateway.http.response_head import AnswerHead
from appliance.gateway.upstream.connection import EngineConnection
from appliance.planning.routing.changes import Changes, change

_IDLE: Final = 256
"""Connections kept, at most."""
_IDLE_S: Final = 3.0
"""And for how long, give or take a sweep. Engines close theirs after 5 s; a request that meets that is sent again."""


_STARVED_S: Final = 0.1
"""A new connection that was asked for so long and has said nothing may wait for a worker of the
engine. llama.cpp's server has a thread for each connection, which stays with it while it is kept:
40 requests at once, twice, took 4.6 s that way, and 0.1 s since kept ones make room."""


class Seeker(Protocol):
    """Who waits for a connection."""

    def connected(self, engine: EngineConnection) -> bool:
        """Here it is; False: it is not wanted any more."""
        ...

    def unreachable(self) -> None:
        """There is none: the engine does not accept."""
        ...


class Pool:
    """Connections to one engine."""

    def __init__(self, routed: Routed, limits: Limits) -> None:
        self._endpoint = routed.endpoint
        self._connect_s = limits.connect_s
        self._idle: deque[EngineConnection] = deque()
        self._all: set[EngineConnection] = set()
        self._silent: set[EngineConnection] = set()
        """New connections on which no byte has come yet."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._starved = False
        """One of those has waited too long: connections are not kept until it has been heard."""
        self._closed = False
        self.known: tuple[Known, AnswerHead] | None = None
        """The head of the engine's last answer with a length."""

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    def take(self) -> EngineConnection | None:
        """The connection that was used last; None: none is idle."""
        while self._idle:
            engine = self._idle.pop()
            if engine.usable:
                return engine
        return None

    def give(self, engine: EngineConnection) -> None:
        """A connection may be used again."""
        if self._closed or self._starved or len(self._idle) >= _IDLE:
            engine.finish()
            return
        engine.idle_since_s = 0.0
        self._idle.append(engine)

    def heard(self, engine: EngineConnection) -> None:
        """The first byte has come on a connection."""
        self._silent.discard(engine)
        if not self._silent:
            self._starved = False

    def forget(self, engine: EngineConnection) -> None:
        """A connection is gone."""
        self._all.discard(engine)
        self.heard(engine)
        with suppress(ValueError):
            self._idle.remove(engine)

    def connect(self, seeker: Seeker) -> None:
        """Make a connection for somebody."""
        task = asyncio.get_running_loop().create_task(self._connect(seeker))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, seeker: Seeker) -> None:
        try:
            async with asyncio.timeout(self._connect_s):
                engine = await self._opened()
        except (OSError, TimeoutError):
            seeker.unreachable()
            return
        self._all.add(engine)
        if not seeker.connected(engine):
            self.give(engine)
            return
        self._silent.add(engine)
        self._relieve_later(engine)

    def _relieve_later(self, engine: EngineConnection) -> None:
        asyncio.get_running_loop().call_later(_STARVED_S, self._relieve, engine)

    def _relieve(self, engine: EngineConnection) -> None:
        """Make room for a connection that may be waiting for the workers of idle ones."""
        if engine in self._silent:
            self._starved = True
            self.rest()
            self._relieve_later(engine)

    async def _opened(self) -> EngineConnection:
        loop = asyncio.get_running_loop()
        if self._endpoint.socket is not None:
            _, engine = await loop.create_unix_connection(self._made, self._endpoint.socket)
        else:
            port = self._endpoint.port or 0
            _, engine = await loop.create_connection(self._made, "127.0.0.1", port)
        return engine

    def _made(self) -> EngineConnection:
        return EngineConnection(self)

    def sweep(self, now_s: float) -> None:
        """Close what has been idle for too long, counted from the first sweep that met it so."""
        for engine in tuple(self._idle):
            engine.idle_since_s = engine.idle_since_s or now_s
            if now_s - engine.idle_since_s > _IDLE_S:
                self._idle.remove(engine)
                engine.finish()

    def rest(self) -> None:
        """Close everything that is idle."""
        while self._idle:
            self._idle.popleft().finish()

    def close(self) -> None:
        """Keep nothing from now on."""
        self._closed = True
        self.rest()


class Flying(Protocol):
    """A request that is under way to an engine, or its answer."""

    def cut(self, why: Refusal) -> None:
        """End it now, with an error."""
        ...


class Lane:
    """A profile as the relay uses it."""

    __slots__ = ("_limits", "changes", "flying", "host", "kept", "landed", "pool", "routed")

    def __init__(self, routed: Routed, limits: Limits) -> None:
        self._limits = limits
        self.flying: set[Flying] = set()
        self.landed = asyncio.Event()
        """Nothing is flying; up to date only for those that cleared it and wait."""
        self.pool = Pool(routed, limits)
        self._become(routed)

    def _become(self, routed: Routed) -> None:
        self.routed = routed
        self.host = _host(routed)
        """Lines that every request to it begins with."""
        self.changes: Changes = _changes(routed, routed.engine_name)
        """In a request that names a model."""
        self.kept: Changes = _changes(routed, None)
        """In a request that names none."""

    def renew(self, routed: Routed) -> None:
        """The profile was applied anew."""
        if routed.endpoint != self.routed.endpoint:
            self.pool.close()
            self.pool = Pool(routed, self._limits)
        self._become(routed)

    def leave(self, flying: Flying) -> None:
        """A request is over."""
        self.flying.discard(flying)
        if not self.flying:
            self.landed.set()


def _host(routed: Routed) -> bytes:
    endpoint = routed.endpoint
    host = "localhost" if endpoint.port is None else f"127.0.0.1:{endpoint.port}"
    lines = f"Host: {host}\r\n"
    if routed.engine_key is not None:
        lines += f"Authorization: Bearer {routed.engine_key}\r\n"
    return lines.encode("latin-1")


def _changes(routed: Routed, model: str | None) -> Changes:
    return change(model=model, set_=routed.set_parameters, strip=routed.strip_parameters)
