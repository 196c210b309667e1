"""Connection to an engine: one request after another, each written whole, each response parsed.

    idle --send--> waiting --head--> responding --end--> idle, or closed
     |                |                  |
     |                +-- lost ----------+--> closed; the request is told
     '-- ended --> closed; the pool takes another connection

A request is written once, whatever happens then: an engine that closes the connection without a
response may have read the request, and worked on it. No socket tells that it has not. A reset
carries no acknowledgement, so TCP_INFO's bytes_acked leaves out bytes that the engine has read,
and after a half-close it leaves out those read later; a unix socket has no acknowledgements. So
the kernel is asked before the first byte whether the end of a kept connection has come
(`Pool.acquire`).

An engine that sends bytes while no request is under way could mix up responses: its connection is
closed.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from appliance.gateway.callback_guard import end_faulty, guarded
from appliance.gateway.http.head_cache import CachedHead
from appliance.gateway.http.response_head import Framing, ResponseHead
from appliance.gateway.http.response_parser import ResponseParser
from appliance.gateway.upstream.read_budget import COUNTED_BYTES
from appliance.model.gateway import Refusal
from appliance.routing.json_body import Pieces
from appliance.routing.refusals import GATEWAY_FAULT

if TYPE_CHECKING:
    from appliance.gateway.upstream.pool import Pool

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
        """Whether the kernel has told that the engine has ended the connection."""

    # Calls of the exchange and the pool.

    def send(
        self, request: UpstreamRequest, head: bytes, body: bytes | Pieces, *, head_first: bool
    ) -> None:
        """Write a request; the response goes to its callbacks.

        Args:
            request: Called back until the end of the response.
            head: Request head.
            body: Whole request body.
            head_first: The request is told the response's head before its body, also of a short one.
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
