"""A client's connection: requests come in whole, one after another.

    head --> body --> busy --> head … --> closing
      |       |         '----> tunnel --> closing
      '-------'--> closing: refused, too slow

What comes while a request is being answered waits for its turn, and beyond `_AHEAD` bytes is not
read. Where a body has a length, nothing but the length decides where it ends.
"""

import asyncio
from enum import IntEnum
from math import inf
from typing import Final, cast

from appliance.domain.gateway import Key, Refusal
from appliance.gateway.downstream.socket_options import reset_on_close, tune
from appliance.gateway.http import request_head, request_parser, response_head
from appliance.gateway.http.head_cache import Known
from appliance.gateway.http.request_head import RequestHead
from appliance.gateway.http.request_parser import Body
from appliance.gateway.relay.exchange import Exchange
from appliance.gateway.relay.protocols import Owner
from appliance.gateway.relay.reply import error
from appliance.gateway.relay.shared_room import BUSY
from appliance.planning.routing.fair_share import Share, Use

ASK_AGAIN_S: Final = 1.0
"""So long a connection that is to end, unknown to its client, waits for a request: that one is
answered, and the answer says that it was the last."""
_AHEAD: Final = 64 << 10
_WRITE_HIGH: Final = 64 << 10
_LINGER_S: Final = 2.0
"""So long what a refused client still sends is read, lest it never sees why."""
_SMALL_BYTES: Final = 4 << 10
"""Of a body for which there is always room."""
_KNOWN_BYTES: Final = 4 << 10
"""Longer heads are parsed each time: a thousand clients would make us remember 100 MiB."""
_NOT_FOUND: Final = 3
"""Of the four bytes at a head's end."""


class Step(IntEnum):
    """Where a connection is."""

    HEAD = 1
    BODY = 2
    BUSY = 3
    TUNNEL = 4
    CLOSING = 5


_HEAD, _BODY, _BUSY, _TUNNEL, _CLOSING = Step


class ClientConnection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_ahead_bytes",
        "_blocked_bytes",
        "_body",
        "_exchange",
        "_head",
        "_key",
        "_known",
        "_loop",
        "_loopback",
        "_overlooked",
        "_overrun",
        "_owner",
        "_paused",
        "_place",
        "_queued",
        "_rest",
        "_step",
        "_transport",
        "deadline_s",
        "local",
    )

    def __init__(self, owner: Owner, *, loopback: bool, local: bool = True) -> None:
        self._owner = owner
        self.local = local
        """It is of this machine."""
        self._place = ""
        """Who is at the other end, when somebody has asked."""
        self._loopback = loopback
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._step: Step = _HEAD
        self._rest = b""
        """What came and has not been looked at."""
        self._ahead_bytes = 0
        """Of `_rest`, how many are counted."""
        self._known: tuple[Known, RequestHead] | None = None
        """The last head."""
        self._head: RequestHead | None = None
        self._key: Key | None = None
        self._body: Body | None = None
        """What is being read."""
        self._overlooked = False
        """An empty line has come before the request."""
        self._overrun = False
        """Something that was read belongs to the next request: there can be none."""
        self._paused = False
        self._queued = False
        """What came ahead of its turn waits for it."""
        self._exchange: Exchange | None = None
        self._blocked_bytes = 0
        """Of what the client does not take, when that was last looked at."""
        self.deadline_s = inf
        """When its patience ends, by the event loop's clock; inf: while it is answered, and then
        until the next sweep, because reading the clock for each request is dear."""

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        tune(self._transport)
        self.deadline_s = self._loop.time() + self._owner.limits.idle_s
        refusal = self._owner.joined(self)
        if refusal is not None and not self._transport.is_closing():
            self._refuse(refusal)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        step = self._step
        if step is _HEAD:
            if not self._rest:
                self._read_head(data)
            elif self._queued:
                self._hear_ahead(data)
            else:
                self._read_head(self._rest + data)
        elif step is _BODY:
            self._read_body(data)
        elif step is _BUSY:
            self._hear_ahead(data)
        elif step is _TUNNEL and self._exchange is not None:
            self._exchange.upstream(data)

    def eof_received(self) -> None:
        """The client says no more: the connection is closed, `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The client is gone."""
        self._transport = None
        self._step = _CLOSING
        self._forget_body()
        self._forget_ahead()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.gone()
        self._owner.left(self)

    def pause_writing(self) -> None:
        """The client does not take what there is for it."""
        self._blocked_bytes = self._unwritten()
        if self._step is not _CLOSING:
            self.deadline_s = self._loop.time() + self._owner.limits.stuck_s
        if self._exchange is not None:
            self._exchange.client_blocked(blocked=True)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._blocked_bytes = 0
        if self._step is _BUSY or self._step is _TUNNEL:
            self.deadline_s = inf
        elif self._step is _HEAD:
            self._queue()
        if self._exchange is not None:
            self._exchange.client_blocked(blocked=False)

    # Heads.

    def _read_head(self, data: bytes) -> None:
        known = self._known
        if known is not None:
            fits = known[0].fits(data)
            if fits is not None:
                self._begin(known[1], fits[0], data, fits[1])
                return
        if data.startswith(b"\r\n") and not self._overlooked:
            # One empty line before a request is allowed, as old clients sent one after a body.
            data = data[2:]
            self._overlooked = True
        end = data.find(b"\r\n\r\n") + 4
        most = self._owner.limits.head_bytes
        if end > most or (end == _NOT_FOUND and len(data) > most):
            self._refuse(request_parser.large_head())
        elif end > _NOT_FOUND:
            self._parse(data, end)
        elif data and data != b"\r" and not request_head.may_become(data):
            self._refuse(request_parser.malformed())
        else:
            if data and not self._rest:
                self.deadline_s = self._loop.time() + self._owner.limits.head_s
            self._rest = data

    def _parse(self, data: bytes, end: int) -> None:
        raw = data[:end]
        head = request_parser.head(raw, self._owner.limits.headers)
        if isinstance(head, Refusal):
            self._refuse(head)
            return
        self._head = head
        refusal = self._owner.examined(head)
        if refusal is not None:
            self._refuse(refusal)
            return
        if head.length >= 0 and end <= _KNOWN_BYTES:
            known = Known.of(raw)
            self._known = None if known is None else (known, head)
        self._begin(head, head.length, data, end)

    def _begin(self, head: RequestHead, length: int, data: bytes, end: int) -> None:
        """A head is good: see whose request it is, then go for the body.

        Args:
            head: It.
            length: Of the body; -1: it comes in chunks.
            data: What has come, from the head's first byte.
            end: Where the head ends in it.
        """
        self._head = head
        self._overlooked = False
        owner = self._owner
        admitted = owner.admitted(head, length, loopback=self._loopback)
        if isinstance(admitted, Refusal):
            self._refuse(admitted)
            return
        self._key = admitted
        if length >= 0:
            after = end + length
            size = len(data)
            if size >= after:
                self._rest = data[after:] if size > after else b""
                owner.buffered_bytes += length
                if length > _SMALL_BYTES and (refusal := owner.buffered(self, 0)) is not None:
                    owner.buffered_bytes -= length
                    self._refuse(refusal)
                    return
                self._start(head, data[end:after])
                return
        self._rest = b""
        self._await_body(head, length, data[end:])

    # Bodies.

    def _await_body(self, head: RequestHead, length: int, data: bytes) -> None:
        self._step = _BODY
        now_s = self._loop.time()
        self._body = Body(length, end_s=now_s + self._owner.limits.whole_body_s)
        self.deadline_s = now_s + self._owner.limits.body_s
        if data:
            self._read_body(data)
        elif head.expects:
            self.write(response_head.CONTINUE)

    def _read_body(self, data: bytes) -> None:
        head, body = self._head, self._body
        assert head is not None and body is not None  # noqa: S101, PT018 - they come first
        owner = self._owner
        limits = owner.limits
        before = len(body.data)
        self._rest = body.feed(data, limits)
        refusal = owner.buffered(self, len(body.data) - before) or body.fault(limits)
        if refusal is not None:
            self._refuse(refusal)
        elif body.complete:
            self._body = None
            self._overrun = body.overrun
            self._start(head, bytes(body.data))

    def _forget_body(self) -> None:
        if self._body is not None:
            self._owner.buffered_bytes -= len(self._body.data)
            self._body = None

    def _hear_ahead(self, data: bytes) -> None:
        """Keep what comes ahead of its turn."""
        self._rest += data
        if len(self._rest) > _AHEAD:
            self.engine_blocked(blocked=True)
        self._count_ahead()

    def _count_ahead(self) -> bool:
        """Count what has come ahead of its turn; False: there is no room for it."""
        more = len(self._rest) - self._ahead_bytes
        self._ahead_bytes += more
        if self._owner.buffered(self, more) is not None:
            self.give_way(BUSY)
            return False
        return True

    def _forget_ahead(self) -> bytes:
        """Take what has come ahead of its turn."""
        rest, self._rest = self._rest, b""
        if self._ahead_bytes:
            self._owner.buffered_bytes -= self._ahead_bytes
            self._ahead_bytes = 0
        return rest

    # The exchange, and its end.

    def _start(self, head: RequestHead, body: bytes) -> None:
        self._step = _BUSY
        self.deadline_s = inf
        owner = self._owner
        close = head.close or self._overrun or owner.closing
        exchange = self._exchange = Exchange(owner, self, head, body, self._key, close=close)
        if self._rest and not self._count_ahead():
            return
        exchange.start()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None:
            self._transport.write(data)

    def finished(self, *, close: bool) -> None:
        """The answer is complete: on to the next request."""
        self._exchange = None
        if close:
            self._close()
            return
        self._step = _HEAD
        self._head = None
        if self._blocked_bytes:
            # Its next request waits until it has taken this answer.
            self.deadline_s = self._loop.time() + self._owner.limits.stuck_s
            self.engine_blocked(blocked=True)
        else:
            # While its deadline is inf, the next sweep sets one.
            if self._owner.closing:
                self.deadline_s = self._loop.time() + ASK_AGAIN_S
            if self._rest or self._paused:
                self._queue()

    def _queue(self) -> None:
        """Have `_next` called when it is this connection's turn."""
        if not self._queued:
            self._queued = True
            self._owner.queue(self._next)

    def _next(self) -> None:
        """Look at what came while the last request was answered."""
        self._queued = False
        if self._step is not _HEAD or self._transport is None or self._blocked_bytes:
            return
        self.deadline_s = self._loop.time() + self._owner.limits.idle_s
        self.engine_blocked(blocked=False)
        if self._rest:
            self._read_head(self._forget_ahead())

    def broken(self) -> None:
        """The answer will never be complete, and the client has to notice."""
        self._exchange = None
        self._step = _CLOSING
        if self._transport is not None:
            reset_on_close(self._transport)
            self._transport.abort()

    def tunnel(self) -> None:
        """From here on the client speaks another protocol."""
        self._step = _TUNNEL
        rest = self._forget_ahead()
        self.engine_blocked(blocked=False)
        if rest and self._exchange is not None:
            self._exchange.upstream(rest)

    def engine_blocked(self, *, blocked: bool) -> None:
        """Read no more for now; or read on."""
        if self._transport is None or self._transport.is_closing() or blocked is self._paused:
            return
        self._paused = blocked
        if blocked:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Refusals, time, and the end.

    def _refuse(self, why: Refusal) -> None:
        """Answer a request that is not read to its end, and close."""
        self._forget_body()
        self._forget_ahead()
        self.write(error(self._head, why, close=True))
        self._linger()

    def _linger(self) -> None:
        """Say no more, but let the client finish: closing at once would undo what was said."""
        self._step = _CLOSING
        self.deadline_s = self._loop.time() + _LINGER_S
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _close(self) -> None:
        if self._rest or self._overrun:
            self._forget_ahead()
            self.engine_blocked(blocked=False)
            self._linger()
            return
        self._step = _CLOSING
        self.deadline_s = self._loop.time() + self._owner.limits.stuck_s
        if self._transport is not None:
            self._transport.close()

    def expire_if_due(self, now_s: float) -> None:
        """Look at the deadline, and at how fast a body comes."""
        if self._body is not None:
            self._body.look()
        if now_s < self.deadline_s:
            if self._step is _HEAD and self.deadline_s == inf:
                self.deadline_s = now_s + self._owner.limits.idle_s
            return
        if self._blocked_bytes and self._step is not _CLOSING:
            unwritten = self._unwritten()
            if unwritten < self._blocked_bytes:
                self._blocked_bytes = unwritten
                self.deadline_s = now_s + self._owner.limits.stuck_s
            else:
                self.abort()
        elif self._body is not None and self._body.goes_on(now_s, self._owner.limits):
            self.deadline_s = now_s + self._owner.limits.body_s
        elif self._step is _BODY or (self._step is _HEAD and self._rest):
            self._refuse(request_parser.TOO_SLOW)
        elif self._step is _HEAD:
            self._close()
        else:
            self.abort()

    def end_soon(self, at_s: float) -> None:
        """Close at some time, unless a request comes before."""
        if self._step is _HEAD and not self._rest:
            self.deadline_s = min(self.deadline_s, at_s)

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    # Room for others.

    @property
    def owner(self) -> str:
        """Whose connection it is: a key's, a user's of this machine, or another machine's."""
        if self._key is not None:
            return f"key {self._key.name}"
        if not self._place and self._transport is not None:
            peer = self._transport.get_extra_info("peername")
            own = self._transport.get_extra_info("sockname")
            self._place = self._owner.peers.owner(peer, own)
        return self._place

    def share(self, number: int) -> Share:
        """What it takes of the connections; `number` have come before it."""
        if self._step is _BUSY or self._step is _TUNNEL:
            return Share(self.owner, 1, Use.WORKING, -number)
        if self._step is _BODY and self._body is not None:
            return Share(self.owner, 1, Use.READING, self._body.pace)
        if self._step is _HEAD and self._rest:
            return Share(self.owner, 1, Use.READING, 0.0)
        return Share(self.owner, 1, Use.IDLE, self.deadline_s)

    def bytes_share(self, number: int) -> Share | None:
        """What it takes of the bytes; None: nothing."""
        if self._body is not None:
            return Share(self.owner, len(self._body.data), Use.READING, self._body.pace)
        if self._exchange is None:
            return None
        size = self._ahead_bytes + self._exchange.kept_bytes
        return Share(self.owner, size, Use.WORKING, -number) if size else None

    def give_way(self, why: Refusal) -> None:
        """End it now, for somebody else: nobody waits until the client has read why."""
        if self._step is _BODY or (self._step is _HEAD and self._rest):
            self.write(error(self._head, why, close=True))
        if self._exchange is not None:
            self._exchange.cut(why)
        self._forget_body()
        self._forget_ahead()
        self._step = _CLOSING
        if self._unwritten():
            self.abort()
        elif self._transport is not None:
            self._transport.close()

    def _unwritten(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()
