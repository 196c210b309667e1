"""A connection to an engine: requests go out whole, answers come back as they are read.

    idle --send--> waiting --head--> answering --end--> idle, or closed
                      |                  |
                      +-- lost ----------+--> closed; the exchange is told what was missing

An engine that says anything while nothing was asked of it is not to be trusted with the next
request: the connection is closed.
"""

import asyncio
from enum import Enum
from typing import Final, Protocol, cast

from appliance.gateway.http.head_cache import Known
from appliance.gateway.http.response_head import AnswerHead, Framing
from appliance.gateway.http.response_parser import Reading
from appliance.planning.routing.splicing import Pieces

_SENT_BYTES: Final = 256 << 10
_LARGE_BYTES: Final = 64 << 10
_OK: Final = 200
_SWITCHING: Final = 101


class Loss(Enum):
    """How a connection was lost before the answer's end."""

    STALE = 1
    """It had been used before, and was closed before a byte of this answer came."""
    SILENT = 2
    """It was new, and was closed before a byte of the answer came."""
    BROKEN = 3
    """The answer had begun, or was no HTTP."""


class Asker(Protocol):
    """Who waits for an answer."""

    def answered(self, answer: AnswerHead) -> None:
        """The head is there."""
        ...

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Bytes of the body; with the last ones, `complete`."""
        ...

    def whole(self, answer: AnswerHead, payload: bytes) -> None:
        """Head and body at once, where the head says the body's length."""
        ...

    def downstream(self, data: bytes) -> None:
        """Bytes of what follows a change of protocol."""
        ...

    def lost(self, loss: Loss) -> None:
        """The connection is gone before the answer's end."""
        ...

    def engine_blocked(self, *, blocked: bool) -> None:
        """The engine reads too slowly for more; or does so no longer."""
        ...


class Home(Protocol):
    """Where connections wait for their next request."""

    known: tuple[Known, AnswerHead] | None
    """The head of the engine's last answer with a length."""

    def give(self, engine: "EngineConnection") -> None:
        """It may be used again."""
        ...

    def heard(self, engine: "EngineConnection") -> None:
        """The first byte has come on it."""
        ...

    def forget(self, engine: "EngineConnection") -> None:
        """It is gone."""
        ...


class EngineConnection(asyncio.Protocol):
    """One connection to an engine, for one request after another."""

    __slots__ = (
        "_asker",
        "_head_only",
        "_home",
        "_paused",
        "_reading",
        "_told",
        "_transport",
        "_tunnel",
        "_used",
        "idle_since_s",
    )

    def __init__(self, home: Home) -> None:
        self._home = home
        self._transport: asyncio.Transport | None = None
        self._asker: Asker | None = None
        self._reading: Reading | None = None
        self._head_only = self._told = self._used = self._paused = self._tunnel = False
        self.idle_since_s = 0.0

    # What the exchange and the pool do with it.

    def send(self, asker: Asker, head: bytes, body: bytes | Pieces, *, head_only: bool) -> None:
        """Ask something; the answer goes to the asker.

        Args:
            asker: Is told everything, until the answer's end.
            head: The request's.
            body: All of it.
            head_only: The answer has no body, whatever its head says.
        """
        self._asker = asker
        self._reading = None
        self._head_only = head_only
        self._told = False
        if self._transport is None:
            return
        if len(body) < _LARGE_BYTES:
            self._transport.write(head + body)
        else:
            # One copy of it less.
            buffers = body.buffers if isinstance(body, Pieces) else (body,)
            self._transport.writelines((head, *buffers))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None:
            self._transport.write(data)

    def pause(self) -> None:
        """Read no more for now."""
        if self.usable and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and self.usable and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; nobody is told."""
        self._asker = None
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Close when everything is written; nobody is told."""
        self._asker = None
        if self._transport is not None:
            self._transport.close()

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The engine has accepted."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_SENT_BYTES)

    def data_received(self, data: bytes) -> None:
        """Bytes from the engine."""
        asker = self._asker
        if asker is None:
            self.abort()
        elif self._tunnel:
            asker.downstream(data)
        elif self._reading is not None:
            self._read(asker, self._reading, data)
        elif not self._is_known(asker, data):
            if not self._used:
                self._home.heard(self)
            self._reading = reading = Reading()
            self._read(asker, reading, data)
            self._learn(reading, data)

    def eof_received(self) -> None:
        """The engine says no more: the connection is closed, `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._home.forget(self)
        self._transport = None
        asker, self._asker = self._asker, None
        reading, self._reading = self._reading, None
        if asker is None:
            return
        if reading is None:
            asker.lost(Loss.STALE if self._used else Loss.SILENT)
        elif reading.ends_with_connection and exc is None:
            reading.complete = True
            asker.deliver(reading.take(), complete=True)
        else:
            asker.lost(Loss.BROKEN)

    def pause_writing(self) -> None:
        """The engine does not read."""
        if self._asker is not None:
            self._asker.engine_blocked(blocked=True)

    def resume_writing(self) -> None:
        """The engine reads again."""
        if self._asker is not None:
            self._asker.engine_blocked(blocked=False)

    # Answers.

    def _is_known(self, asker: Asker, data: bytes) -> bool:
        """Pass on an answer that came at once, under a head that was read before."""
        known = self._home.known
        if known is None or self._head_only:
            return False
        fits = known[0].fits(data)
        if fits is None:
            return False
        length, end = fits
        if end + length != len(data):
            return False
        self._done(keeps=True)
        asker.whole(known[1], data[end:])
        return True

    def _learn(self, reading: Reading, data: bytes) -> None:
        """Know the head again, if it is one that was read at once and leaves no questions."""
        answer = reading.answer
        end = data.find(b"\r\n\r\n") + 4
        if (
            answer is not None
            and answer.framing is Framing.LENGTH
            and answer.length
            and reading.keeps
            and end + int(answer.length) == len(data)
        ):
            known = Known.of(data[:end])
            self._home.known = None if known is None else (known, answer)

    def _read(self, asker: Asker, reading: Reading, data: bytes) -> None:
        reading.feed(data)
        if reading.bad:
            self.abort()
            asker.lost(Loss.BROKEN)
        elif reading.answer is not None:
            self._pass_on(asker, reading, reading.answer)

    def _pass_on(self, asker: Asker, reading: Reading, answer: AnswerHead) -> None:
        first = not self._told
        if first:
            self._told = True
            self._tunnel = answer.websocket
            asker.answered(answer)
            if self._asker is not asker:
                return
        if answer.websocket:
            if reading.rest:
                asker.downstream(reading.rest)
        elif reading.complete or self._head_only:
            payload = b"" if self._head_only else reading.take()
            self._done(keeps=reading.keeps and not self._head_only)
            asker.deliver(payload, complete=True)
        else:
            payload = reading.take()
            if payload or first:
                asker.deliver(payload, complete=False)

    def _done(self, *, keeps: bool) -> None:
        """The answer is complete: be ready for the next request, or close."""
        self._asker = self._reading = None
        if keeps:
            if not self._used:
                self._used = True
                self._home.heard(self)
            if self._paused:
                self.resume()
            self._home.give(self)
        else:
            self.finish()
