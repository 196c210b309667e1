"""Front of an engine that notes every request: a port that passes bytes on in both directions.

It sees requests as the engine does, in the order in which the gateway sends them, so it can tell
whether a probe was begun while a request of a client was in flight.
"""

import asyncio
import os
import re
import socket
import time
from dataclasses import dataclass
from typing import Final, cast

from appliance.gateway.response import ResponseParser

MARK: Final = b"x-courtesy: client"
"""Header line of requests of clients; probes have none."""
_ONE_TOKEN: Final = re.compile(rb'"(?:max_tokens|n_predict)": ?1[,}]')
_METHODS: Final = (b"POST ", b"GET ")


@dataclass(slots=True, eq=False)
class Flight:
    """One request at the engine; times are monotonic."""

    of_client: bool
    began_s: float
    is_piece: bool
    """Whether one token is asked for, as with the pieces of a probe's prompt."""
    ended_s: float | None = None
    """End of the response or of the connection; None: in flight."""


class EngineFront:
    """Front of the engine at a loopback port."""

    def __init__(self, engine_port: int) -> None:
        self.engine_port = engine_port
        self.port = 0
        self.probes = 0
        self.overlaps = 0
        """Count of probes that were begun while a request of a client was in flight."""
        self.last_piece_s: float | None = None
        """Time that the last whole piece took; None: none has ended."""
        self.probe: Flight | None = None
        """Probe in flight; None: none."""
        self._clients: set[Flight] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _GatewaySide(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def begin(self, data: bytes, *, left: bool) -> Flight:
        """Note a request; `left`: its connection has already been shut down behind it."""
        is_piece = _ONE_TOKEN.search(data) is not None
        flight = Flight(MARK in data.lower(), time.monotonic(), is_piece)
        if flight.of_client:
            self._clients.add(flight)
        else:
            self.probes += 1
            self.overlaps += bool(self._clients) and not left
            self.probe = flight
        return flight

    def end(self, flight: Flight, *, is_whole: bool = False) -> None:
        if flight.ended_s is None:
            flight.ended_s = time.monotonic()
            self._clients.discard(flight)
            if self.probe is flight:
                self.probe = None
            if flight.is_piece and is_whole:
                self.last_piece_s = flight.ended_s - flight.began_s


class _GatewaySide(asyncio.Protocol):
    """Connection of the gateway."""

    def __init__(self, front: EngineFront) -> None:
        self._front = front
        self._transport: asyncio.Transport | None = None
        self._engine: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self._flight: Flight | None = None
        self._response = ResponseParser()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        engine, _ = await loop.create_connection(
            lambda: _EngineSide(self), "127.0.0.1", self._front.engine_port
        )
        self._engine = engine
        if self._transport is None:
            engine.abort()
            return
        engine.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if data.startswith(_METHODS):
            self._response = ResponseParser()
            self._flight = self._front.begin(data, left=self._is_shut_down())
        if self._engine is None:
            self._early.append(data)
        else:
            self._engine.write(data)

    def _is_shut_down(self) -> bool:
        """Tell whether the end of the connection is already in the kernel's queue."""
        assert self._transport is not None
        number = os.dup(self._transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=number) as own:
            try:
                return own.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

    def from_engine(self, data: bytes) -> None:
        """Pass a piece of the response on."""
        self._response.feed(data)
        self._response.take_body()
        flight = self._flight
        if flight is not None and self._response.complete:
            self._front.end(flight, is_whole=True)
            self._flight = None
        if self._transport is not None:
            self._transport.write(data)

    def engine_left(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def eof_received(self) -> None:
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._leave()

    def _leave(self) -> None:
        if self._engine is not None:
            self._engine.abort()
        if self._flight is not None:
            self._front.end(self._flight)
            self._flight = None


class _EngineSide(asyncio.Protocol):
    """Connection to the engine."""

    def __init__(self, gateway: _GatewaySide) -> None:
        self._gateway = gateway

    def data_received(self, data: bytes) -> None:
        self._gateway.from_engine(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._gateway.engine_left()
