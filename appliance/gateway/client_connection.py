"""Connection of a client: each request is read whole, one after another.

    head --> body --> busy --> head … --> closing
      |       |         '----> tunnel --> closing
      '-------'--> closing: refused, too slow

A coded body is decoded in the state busy, before its exchange begins.

Bytes that come while a request is in exchange wait for their turn, and beyond `_AHEAD_BYTES` are
not read. Where a body has a length, nothing but the length decides where it ends. The module is long,
because each callback reads and changes the one state.
"""

import asyncio
import socket
import struct
from collections.abc import Generator
from enum import IntEnum
from math import inf
from typing import Final, cast

from appliance.gateway.event_loop import end_faulty, guarded
from appliance.gateway.exchange import Exchange
from appliance.gateway.relay import LAST_REQUEST_S, Relay
from appliance.gateway.reply import build_error_response
from appliance.gateway.request_body import BODY_TURN_BYTES, BodyDecoder, IncomingBody, Scan
from appliance.gateway.request_head import (
    CachedHead,
    Coding,
    RequestHead,
    find_origin,
    may_begin_head,
    parse_request_head,
)
from appliance.gateway.response import CONTINUE
from appliance.model.gateway import Key, Refusal
from appliance.routing.fair_share import Share, ShareUse
from appliance.routing.refusals import (
    BUSY,
    GATEWAY_FAULT,
    HEAD_TOO_LARGE,
    MALFORMED_REQUEST,
    TOO_SLOW,
)

_AHEAD_BYTES: Final = 64 << 10
_LOOK_S: Final = 0.1
"""Pause between two looks at a connection that is not read while its request is in exchange."""
_WRITE_HIGH_BYTES: Final = 64 << 10
_LINGER_S: Final = 2.0
"""Time for which a refused client is still read: closing at once could discard the refusal."""
_SMALL_BYTES: Final = 4 << 10
"""Largest body that is admitted without a check of the capacity."""
_CACHED_HEAD_BYTES: Final = 4 << 10
"""Longest head that is cached: caching longer ones for a thousand clients would take 100 MiB."""
_NOT_FOUND: Final = 3
"""Result of the search for the four bytes at a head's end, plus four."""


_LEFT: Final = frozenset({7, 8})
"""States of a connection whose client has closed or reset it: TCP_CLOSE and TCP_CLOSE_WAIT (Linux,
net/tcp_states.h)."""
_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})


class ConnectionState(IntEnum):
    HEAD = 1
    BODY = 2
    BUSY = 3
    TUNNEL = 4
    CLOSING = 5


_HEAD, _BODY, _BUSY, _TUNNEL, _CLOSING = ConnectionState


class ClientConnection(asyncio.Protocol):
    """Connection of one client.

    Args:
        relay: Relay that the connection belongs to.
        loopback: No key is needed.
        local: The client is on this machine.
    """

    __slots__ = (
        "_ahead_bytes",
        "_blocked_bytes",
        "_body",
        "_cached_head",
        "_decoder",
        "_decoder_bytes",
        "_deferred",
        "_exchange",
        "_head",
        "_key",
        "_looks",
        "_loop",
        "_loopback",
        "_overrun",
        "_paused",
        "_peer_owner",
        "_relay",
        "_rest",
        "_scan",
        "_skipped_line",
        "_state",
        "_transport",
        "deadline_s",
        "local",
    )

    def __init__(self, relay: Relay, *, loopback: bool, local: bool = True) -> None:
        self._relay = relay
        self.local = local
        self._peer_owner = ""
        """Owner by the address of the client; empty: not looked up yet."""
        self._loopback = loopback
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._state: ConnectionState = _HEAD
        self._rest = b""
        """Bytes that were received and are not parsed yet."""
        self._ahead_bytes = 0
        """Number of bytes of `_rest` that are counted as buffered."""
        self._cached_head: tuple[CachedHead, RequestHead] | None = None
        """Head of the last request, and its cached form."""
        self._head: RequestHead | None = None
        self._key: Key | None = None
        self._body: IncomingBody | None = None
        """Body that is being read."""
        self._decoder: BodyDecoder | None = None
        """Decoder of a coded body; None: no body is being decoded."""
        self._decoder_bytes = 0
        """Bytes of both forms of that body that are counted as buffered."""
        self._scan: Scan[BodyDecoder] | None = None
        """Place of that decoder in the queue."""
        self._skipped_line = False
        """Whether an empty line has come before the request."""
        self._overrun = False
        """Whether bytes of the next request were read with the body: no request can follow."""
        self._paused = False
        self._looks = False
        """Whether a timer will look whether the client has left."""
        self._deferred = False
        """Whether `_resume` is to be called."""
        self._exchange: Exchange | None = None
        self._blocked_bytes = 0
        """Unwritten bytes at the last check, while the client reads too slowly; else 0."""
        self.deadline_s = inf
        """Time of the next check of the connection, by the event loop's clock; inf: during an
        exchange, and until the next sweep after it, because reading the clock for each request
        costs time."""

    # Callbacks of the event loop.

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self.deadline_s = self._loop.time() + self._relay.limits.idle_s
        refusal = self._relay.add_client(self)
        if refusal is not None and not self._transport.is_closing():
            self._refuse(refusal)

    def data_received(self, data: bytes) -> None:
        try:
            state = self._state
            if state is _HEAD:
                if not self._rest:
                    self._read_head(data)
                elif self._deferred:
                    self._keep_ahead(data)
                else:
                    self._read_head(self._rest + data)
            elif state is _BODY:
                self._read_body(data)
            elif state is _BUSY:
                self._keep_ahead(data)
            elif state is _TUNNEL and self._exchange is not None:
                self._exchange.write_to_engine(data)
        except Exception as error:  # noqa: BLE001 - the guard of a callback
            end_faulty(error, self.end_after_fault, self.abort)

    def eof_received(self) -> None:
        """Let the event loop close the connection; `connection_lost` follows."""

    @guarded
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._state = _CLOSING
        self._relay.remove_client(self)
        self._drop_body()
        self._take_ahead()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.client_gone()

    @guarded
    def pause_writing(self) -> None:
        self._blocked_bytes = self._unwritten()
        if self._state is not _CLOSING:
            self.deadline_s = self._loop.time() + self._relay.limits.stuck_s
        if self._exchange is not None:
            self._exchange.client_blocked(blocked=True)

    @guarded
    def resume_writing(self) -> None:
        self._blocked_bytes = 0
        if self._state is _BUSY or self._state is _TUNNEL:
            self.deadline_s = inf
        elif self._state is _HEAD:
            self._defer()
        if self._exchange is not None:
            self._exchange.client_blocked(blocked=False)

    # Request heads.

    def _read_head(self, data: bytes) -> None:
        cached = self._cached_head
        if cached is not None:
            match = cached[0].match(data)
            if match is not None:
                self._begin(cached[1], match[0], data, match[1])
                return
        if data.startswith(b"\r\n") and not self._skipped_line:
            # One empty line before a request is allowed, as old clients sent one after a body.
            data = data[2:]
            self._skipped_line = True
        end = data.find(b"\r\n\r\n") + 4
        most = self._relay.limits.head_bytes
        if end > most or (end == _NOT_FOUND and len(data) > most):
            self._refuse(HEAD_TOO_LARGE, data[:most])
        elif end > _NOT_FOUND:
            self._parse_head(data, end)
        elif data and data != b"\r" and not may_begin_head(data):
            self._refuse(MALFORMED_REQUEST, data)
        else:
            if data and not self._rest:
                self.deadline_s = self._loop.time() + self._relay.limits.head_s
            self._rest = data

    def _parse_head(self, data: bytes, end: int) -> None:
        raw = data[:end]
        head = parse_request_head(raw, self._relay.limits.headers)
        if isinstance(head, Refusal):
            self._refuse(head, raw)
            return
        self._head = head
        refusal = self._relay.examine(head, is_encrypted=self._is_encrypted)
        if refusal is not None:
            self._refuse(refusal)
            return
        if head.length >= 0 and end <= _CACHED_HEAD_BYTES:
            cached = CachedHead.of(raw)
            self._cached_head = None if cached is None else (cached, head)
        self._begin(head, head.length, data, end)

    def _begin(self, head: RequestHead, length: int, data: bytes, end: int) -> None:
        """Authenticate a request, then read its body.

        Args:
            head: Parsed request head.
            length: Length of the body; -1: it comes in chunks.
            data: Bytes that have come, from the first byte of the head.
            end: Where the head ends in them.
        """
        self._head = head
        self._skipped_line = False
        relay = self._relay
        if head.needs_no_key and self._loopback and length <= relay.body_bytes:
            # The result of `authenticate` for most requests, without the call.
            self._key = None
        else:
            key = relay.authenticate(head, length, loopback=self._loopback)
            if isinstance(key, Refusal):
                self._refuse(key)
                return
            self._key = key
        if length >= 0:
            after = end + length
            size = len(data)
            if size >= after:
                self._rest = data[after:] if size > after else b""
                relay.buffered_bytes += length
                if length > _SMALL_BYTES and (refusal := relay.count_buffered(self, 0)) is not None:
                    relay.buffered_bytes -= length
                    self._refuse(refusal)
                    return
                self._start_exchange(head, data[end:after])
                return
        self._rest = b""
        self._await_body(head, length, data[end:])

    # Request bodies.

    def _await_body(self, head: RequestHead, length: int, data: bytes) -> None:
        self._state = _BODY
        now_s = self._loop.time()
        self._body = IncomingBody(length, end_s=now_s + self._relay.limits.whole_body_s)
        self.deadline_s = now_s + self._relay.limits.body_s
        if data:
            self._read_body(data)
        elif head.expects:
            self.write(CONTINUE)

    def _read_body(self, data: bytes) -> None:
        head, body = self._head, self._body
        assert head is not None and body is not None  # noqa: S101, PT018 - they come first
        relay = self._relay
        limits = relay.limits
        before = len(body.data)
        self._rest = body.feed(data, limits)
        refusal = relay.count_buffered(self, len(body.data) - before) or body.refusal(limits)
        if refusal is not None:
            self._refuse(refusal)
        elif body.complete:
            self._body = None
            self._overrun = body.overrun
            self._start_exchange(head, body.data)
        elif len(body.data) >= body.pause_at:
            body.pause_at = len(body.data) + BODY_TURN_BYTES
            self.block_reading(blocked=True)
            relay.defer(self._read_on)

    @guarded
    def _read_on(self) -> None:
        """Read more of a body, after other clients have had their turn."""
        if self._state is _BODY or self._state is _CLOSING:
            self.block_reading(blocked=False)

    def _drop_body(self) -> None:
        if self._body is not None:
            self._relay.buffered_bytes -= len(self._body.data)
            self._body = None
        if self._decoder is not None:
            self._relay.buffered_bytes -= self._decoder_bytes
            self._decoder = None
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None

    def _keep_ahead(self, data: bytes) -> None:
        """Keep bytes that were received ahead of their turn."""
        self._rest += data
        self._count_ahead()

    def _count_ahead(self) -> bool:
        """Count bytes received ahead of their turn, and read on only if they are few; False: no room."""
        if len(self._rest) > _AHEAD_BYTES:
            self.block_reading(blocked=True)
        more = len(self._rest) - self._ahead_bytes
        self._ahead_bytes += more
        if self._relay.count_buffered(self, more) is not None:
            self.evict(BUSY)
            return False
        return True

    def _take_ahead(self) -> bytes:
        """Take the bytes that were received ahead of their turn."""
        rest, self._rest = self._rest, b""
        if self._ahead_bytes:
            self._relay.buffered_bytes -= self._ahead_bytes
            self._ahead_bytes = 0
        return rest

    # Exchanges and their end.

    def _start_exchange(
        self, head: RequestHead, body: bytes | bytearray, *, decoded: bool = False
    ) -> None:
        self._state = _BUSY
        self.deadline_s = inf
        if head.coding is not None and body and not decoded:
            # As it lies: a copy of 63 MiB takes 30 ms.
            self._decode(head.coding, body)
            return
        relay = self._relay
        close = head.close or self._overrun or relay.closing
        exchange = Exchange(relay, self, head, bytes(body), self._key, close=close)
        self._exchange = exchange
        if self._rest and not self._count_ahead():
            return
        exchange.start()

    def _decode(self, coding: Coding, body: bytes | bytearray) -> None:
        """Decode a body in steps, between which all other clients are served."""
        decoder = self._decoder = BodyDecoder(coding, body, self._relay.body_bytes)
        self._decoder_bytes = len(body)
        if not self._rest or self._count_ahead():
            steps = self._decode_in_steps(decoder)
            self._scan = self._relay.scans.add(self.owner, steps, self._decoded)

    def _decode_in_steps(
        self, decoder: BodyDecoder
    ) -> Generator[None, None, BodyDecoder | Refusal]:
        for _ in decoder.steps():
            more = decoder.kept_bytes - self._decoder_bytes
            self._decoder_bytes += more
            if (refusal := self._relay.count_buffered(self, more)) is not None:
                return refusal
            yield
        return decoder.refusal or decoder

    @guarded
    def _decoded(self, decoded: BodyDecoder | Refusal) -> None:
        """Continue with a body that was decoded, as with one that came plain."""
        head = self._head
        assert head is not None  # noqa: S101 - the request's
        self._drop_body()
        if isinstance(decoded, Refusal):
            self._refuse(decoded)
            return
        body = decoded.take_plain()
        self._relay.buffered_bytes += len(body)
        self._start_exchange(head, body, decoded=True)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._relay.writes.write(self._transport, data)

    def write_whole(self, response: bytes, *, close: bool) -> None:
        """Write a whole response, and go on to the next request, or close."""
        relay = self._relay
        if self._transport is not None:
            relay.writes.write(self._transport, response)
        if close or self._blocked_bytes or self._rest or self._paused or relay.closing:
            self.response_finished(close=close)
        else:
            # What `response_finished` does for most requests, without the call.
            self._exchange = None
            self._state = _HEAD
            self._head = None

    def response_finished(self, *, close: bool) -> None:
        """Go on to the next request after a complete response, or close."""
        self._exchange = None
        if close:
            self._close()
            return
        self._state = _HEAD
        self._head = None
        if self._blocked_bytes:
            # The next request waits until the client has read this response.
            self.deadline_s = self._loop.time() + self._relay.limits.stuck_s
            self.block_reading(blocked=True)
        else:
            # A deadline that is inf is set by the next sweep.
            if self._relay.closing:
                self.deadline_s = self._loop.time() + LAST_REQUEST_S
            if self._rest or self._paused:
                self._defer()

    def _defer(self) -> None:
        """Have `_resume` called after other connections have had their turn."""
        if not self._deferred:
            self._deferred = True
            self._relay.defer(self._resume)

    @guarded
    def _resume(self) -> None:
        """Read the bytes that were received during the last exchange."""
        self._deferred = False
        if self._state is not _HEAD or self._transport is None or self._blocked_bytes:
            return
        self.deadline_s = self._loop.time() + self._relay.limits.idle_s
        self.block_reading(blocked=False)
        if self._rest:
            self._read_head(self._take_ahead())

    def break_off(self) -> None:
        """Break the connection, so that the client notices an incomplete response."""
        self._exchange = None
        self._state = _CLOSING
        if self._transport is not None:
            _reset_on_close(self._transport)
            self._transport.abort()

    def leave(self, exchange: Exchange) -> None:
        """Break the connection, unless it has gone on to another request."""
        if self._exchange is exchange:
            self.break_off()

    def end_after_fault(self) -> None:
        if self._exchange is not None:
            self._exchange.cut(GATEWAY_FAULT)
        elif self._state is _CLOSING:
            self.abort()
        else:
            self._refuse(GATEWAY_FAULT)

    def start_tunnel(self) -> None:
        """Relay bytes of another protocol from now on."""
        self._state = _TUNNEL
        rest = self._take_ahead()
        self.block_reading(blocked=False)
        if rest and self._exchange is not None:
            self._exchange.write_to_engine(rest)

    def block_reading(self, *, blocked: bool) -> None:
        """Stop reading, or continue."""
        if self._transport is None or self._transport.is_closing() or blocked is self._paused:
            return
        self._paused = blocked
        if blocked:
            self._transport.pause_reading()
            self._look_later()
        else:
            self._transport.resume_reading()

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            self._loop.call_later(_LOOK_S, self._look_for_end)

    @guarded
    def _look_for_end(self) -> None:
        """End the exchange of a client that has left, which cannot be read while reading is paused."""
        self._looks = False
        if not self._paused or self._state is not _BUSY or self._transport is None:
            return
        if _has_left(self._transport):
            self._transport.abort()
        else:
            self._look_later()

    # Refusals, deadlines, and the end of the connection.

    def _refuse(self, why: Refusal, raw: bytes = b"") -> None:
        """Refuse a request that is not read to its end, and close.

        Args:
            why: Refusal.
            raw: What has come of a head that is not parsed.
        """
        self._drop_body()
        self._take_ahead()
        self._write_error(why, raw)
        self._linger()

    def _write_error(self, why: Refusal, raw: bytes) -> None:
        cors = b"" if self._head is not None else self._relay.cors_lines(find_origin(raw))
        self.write(build_error_response(self._head, why, close=True, cors=cors))

    def _linger(self) -> None:
        """Write no more, but let the client finish: closing at once could discard the refusal."""
        self._state = _CLOSING
        self.deadline_s = self._loop.time() + _LINGER_S
        if self._transport is None:
            return
        self._relay.writes.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _close(self) -> None:
        if self._rest or self._overrun:
            self._take_ahead()
            self.block_reading(blocked=False)
            self._linger()
            return
        self._state = _CLOSING
        self.deadline_s = self._loop.time() + self._relay.limits.stuck_s
        if self._transport is not None:
            self._relay.writes.flush()
            self._transport.close()

    @guarded
    def expire_if_due(self, now_s: float) -> None:
        """Check the deadline, and the rate at which a body is received."""
        if self._body is not None:
            self._body.sample_pace()
        if now_s < self.deadline_s:
            if self._state is _HEAD and self.deadline_s == inf:
                self.deadline_s = now_s + self._relay.limits.idle_s
            return
        if self._blocked_bytes and self._state is not _CLOSING:
            unwritten = self._unwritten()
            if unwritten < self._blocked_bytes:
                self._blocked_bytes = unwritten
                self.deadline_s = now_s + self._relay.limits.stuck_s
            else:
                self.abort()
        elif self._body is not None and self._body.may_continue(now_s, self._relay.limits):
            self.deadline_s = now_s + self._relay.limits.body_s
        elif self._state is _BODY or (self._state is _HEAD and self._rest):
            self._refuse(TOO_SLOW, self._rest)
        elif self._state is _HEAD:
            self._close()
        else:
            self.abort()

    def end_soon(self, at_s: float) -> None:
        """Close at a time of the event loop's clock, unless a request comes before."""
        if self._state is _HEAD and not self._rest:
            self.deadline_s = min(self.deadline_s, at_s)

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # Calls when connections or buffered bytes run short.

    @property
    def owner(self) -> str:
        """Return the owner of the connection: a key, a user of this machine, or another machine."""
        if self._key is not None:
            return f"key {self._key.name}"
        if not self._peer_owner and self._transport is not None:
            peer = self._transport.get_extra_info("peername")
            own = self._transport.get_extra_info("sockname")
            self._peer_owner = self._relay.peers.owner(peer, own)
        return self._peer_owner

    def connection_share(self, number: int) -> Share:
        """Return the connection's share of all connections; `number` are older."""
        if self._state is _BUSY or self._state is _TUNNEL:
            return Share(self.owner, 1, ShareUse.WORKING, -number)
        if self._state is _BODY and self._body is not None:
            return Share(self.owner, 1, ShareUse.READING, self._body.pace)
        if self._state is _HEAD and self._rest:
            return Share(self.owner, 1, ShareUse.READING, 0.0)
        return Share(self.owner, 1, ShareUse.IDLE, self.deadline_s)

    def bytes_share(self, number: int) -> Share | None:
        """Return the connection's share of the buffered bytes; None: it has none."""
        if self._body is not None:
            return Share(self.owner, len(self._body.data), ShareUse.READING, self._body.pace)
        if self._decoder is not None:
            return Share(self.owner, self._decoder_bytes, ShareUse.WORKING, -number)
        if self._exchange is None:
            return None
        size = self._ahead_bytes + self._exchange.kept_bytes
        return Share(self.owner, size, ShareUse.WORKING, -number) if size else None

    def evict(self, why: Refusal) -> None:
        """End the connection now, for another client; do not wait for this client to read why."""
        is_read = self._state is _BODY or (self._state is _HEAD and self._rest)
        if is_read or self._decoder is not None:
            self._write_error(why, self._rest)
        if self._exchange is not None:
            self._exchange.cut(why)
        self._drop_body()
        self._take_ahead()
        self._state = _CLOSING
        self._relay.writes.flush()
        if self._unwritten():
            self.abort()
        elif self._transport is not None:
            self._transport.close()

    @property
    def _is_encrypted(self) -> bool:
        """Tell whether the client uses TLS."""
        transport = self._transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    def _unwritten(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


def _reset_on_close(transport: asyncio.Transport) -> None:
    """Reset the connection at its end, so that the client cannot take it for a body's end."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in _INTERNET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _has_left(transport: asyncio.Transport) -> bool:
    """Tell whether the client has closed its connection, also while nothing is read from it.

    The event loop reports the end only after the bytes that were sent before it (tcp(7), TCP_INFO).
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in _INTERNET:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _LEFT
    except OSError:
        return False
