"""One request, from when it is there to the end of its answer.

    start --> held <--> connecting --> waiting --> answering --> over
      |        |            |             |            |
      '--------+------------+-------------+------------'--> over: refused, lost, cut, hung up

Nothing here waits: the event loop, the engine's connection, the pool and the queue of those that
are held call in, and every call is a step.
"""

import asyncio
from enum import Enum
from typing import Final

from appliance.domain.gateway import Key, Refusal, Routed
from appliance.gateway.http import request_body, request_head, response_head
from appliance.gateway.http.request_head import RequestHead
from appliance.gateway.http.response_head import AnswerHead
from appliance.gateway.relay.ports import Measured
from appliance.gateway.relay.protocols import Client, Relay
from appliance.gateway.relay.reply import TAIL_BYTES, Reply, Stage
from appliance.gateway.relay.scan_queue import Scan
from appliance.gateway.upstream.connection import EngineConnection, Loss
from appliance.gateway.upstream.pool import Lane
from appliance.planning.routing.bodies import BodyError, Document
from appliance.planning.routing.multipart import Form
from appliance.planning.routing.splicing import LONG_BYTES, Pieces

_AGAIN_S: Final = 0.1
"""Between two attempts to connect, while it is not clear yet what happened to the engine."""
_GRACE_S: Final = 1.0
"""So long: systemd tells the supervisor, and the supervisor us, in a few milliseconds."""
_MOVED: Final = 307
"""For the observer: the request waits for another profile now."""
_SWITCHING_PROTOCOLS: Final = 101
_NOTHING: Final = (b"", b"")

GONE: Final = Refusal(
    status=502,
    code="engine_failed",
    message="the engine closed the connection before its answer was complete",
)
UNREACHABLE: Final = Refusal(
    status=503,
    code="engine_unreachable",
    message="the engine accepts no connections",
    retry_after_s=2,
)


class Step(Enum):
    """Where a request is."""

    START = 1
    HELD = 2
    CONNECTING = 3
    WAITING = 4
    ANSWERING = 5
    TUNNEL = 6
    OVER = 7


_START, _HELD, _CONNECTING, _WAITING, _ANSWERING, _TUNNEL, _OVER = Step
"""An Enum's members are dear to look up in this version of Python."""


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_again",
        "_body",
        "_client",
        "_close",
        "_document",
        "_engine",
        "_grace_end_s",
        "_head",
        "_lane",
        "_measured",
        "_model",
        "_profile",
        "_relay",
        "_reply",
        "_request",
        "_step",
        "key",
    )

    def __init__(
        self,
        relay: Relay,
        client: Client,
        head: RequestHead,
        body: bytes,
        key: Key | None,
        *,
        close: bool,
    ) -> None:
        self._relay = relay
        self._client = client
        self._head = head
        self._body = body
        self.key = key
        self._close = close
        self._reply: Reply | None = None
        """What the client is told; None: nothing yet."""
        self._document: Document | Form | None = None
        self._model: str | None = None
        self._lane: Lane | None = None
        self._measured: Measured | None = None
        self._engine: EngineConnection | None = None
        self._request: tuple[bytes, bytes | Pieces] = _NOTHING
        self._profile = ""
        self._again: asyncio.TimerHandle | Scan | None = None
        """What calls this request again, to be cancelled: a timer, or the reading of a long body."""
        self._grace_end_s = 0.0
        self._step = _START

    @property
    def streams(self) -> bool:
        """Whether the client asks for a stream of events."""
        return self._document is not None and self._document.streams

    @property
    def owner(self) -> str:
        """Whose request it is."""
        return self._client.owner

    @property
    def kept_bytes(self) -> int:
        """Of its body, while that may be needed again."""
        return len(self._body)

    @property
    def reply(self) -> Reply:
        """The answer; most are so simple that none has to be made."""
        if self._reply is None:
            self._reply = Reply(self._client, self._head, close=self._close)
        return self._reply

    def start(self) -> None:
        """The request is there, all of it."""
        place = self._head.place
        if place.listing:
            self._list(place.entry)
            return
        body = self._body
        if body:
            if len(body) > LONG_BYTES:
                steps = request_body.opened_in_steps(self._head, body)
                self._again = self._relay.scans.add(self._client.owner, steps, self._scanned)
                return
            try:
                document = self._document = request_body.opened(self._head, body)
            except BodyError as error:
                self.refuse(request_body.refused(error))
                return
            if document is not None:
                self._model = document.model
        self.advance()

    def _scanned(self, found: Document | Form | BodyError | None) -> None:
        """A long body has been read."""
        self._again = None
        if isinstance(found, BodyError):
            self.refuse(request_body.refused(found))
            return
        if found is not None:
            self._document = found
            self._model = found.model
        self.advance()

    def _list(self, name: str | None) -> None:
        router = self._relay.router
        found = router.models(self.key) if name is None else router.model(name, self.key)
        if isinstance(found, Refusal):
            self.refuse(found)
            return
        self.reply.say(found)
        self._end()

    # From the request to an engine.

    def advance(self) -> None:
        """Go on, by what serves now: to an engine, into the queue, or to a refusal."""
        router = self._relay.router
        routed = router.route(self._model, self.key)
        if isinstance(routed, Refusal):
            self.refuse(routed)
            return
        ready = router.ready(routed.name, self.key)
        self._observe(routed.name)
        if ready is True:
            self._send(routed)
        elif ready is False:
            self._hold(routed.name)
        else:
            self.refuse(ready)

    def _observe(self, profile: str) -> None:
        if self._profile == profile:
            return
        if self._measured is not None:
            self._measured.ended(_MOVED, b"")
        self._profile = profile
        self._measured = self._relay.observer.began(profile, self.key)

    def _hold(self, profile: str) -> None:
        self._leave()
        self._grace_end_s = 0.0
        self._step = _HELD
        self._relay.waiting.add(self, profile)

    def _send(self, routed: Routed) -> None:
        lane = self._relay.lane(routed)
        body: bytes | Pieces = self._body
        if self._document is not None:
            try:
                changes = lane.kept if self._model is None else lane.changes
                body = self._document.rewritten(changes)
            except BodyError as error:
                self.refuse(request_body.refused(error))
                return
        plain = self._reply is not None and self._reply.stage is Stage.OPENED
        self._request = request_head.outgoing(self._head, len(body), lane.host, plain=plain), body
        if self._lane is not lane:
            self._leave()
            self._lane = lane
            lane.flying.add(self)
        engine = lane.pool.take()
        if engine is None:
            self._connect(lane)
        else:
            self._hand_over(engine)

    def _connect(self, lane: Lane) -> None:
        self._step = _CONNECTING
        lane.pool.connect(self)

    def connected(self, engine: EngineConnection) -> bool:
        """There is a connection; False: it is not wanted any more."""
        if self._step is not _CONNECTING:
            return False
        self._hand_over(engine)
        return True

    def _hand_over(self, engine: EngineConnection) -> None:
        self._step = _WAITING
        self._engine = engine
        head, body = self._request
        engine.send(self, head, body, head_only=self._head.method == b"HEAD")
        if self._measured is not None:
            self._measured.sent()

    def unreachable(self) -> None:
        """There is no connection: wait for a moment for the news of what happened."""
        if self._step is not _CONNECTING:
            return
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._grace_end_s = self._grace_end_s or now_s + _GRACE_S
        if now_s >= self._grace_end_s:
            self.refuse(UNREACHABLE)
        else:
            self._again = loop.call_later(_AGAIN_S, self.advance)

    # What the engine's connection tells.

    def answered(self, answer: AnswerHead) -> None:
        """The head of the answer."""
        self._forget_request()
        if answer.websocket or answer.status == _SWITCHING_PROTOCOLS:
            self._switch(answer)
            return
        self._step = _ANSWERING
        if self._relay.closing:
            self.reply.close = True
        self.reply.begin(answer)

    def _switch(self, answer: AnswerHead) -> None:
        if not self._head.websocket:
            self._drop_engine()
            self.lost(Loss.BROKEN)
            return
        self._step = _TUNNEL
        if self._measured is not None:
            self._measured.due(due=False)
        self.reply.switch(answer)
        self._client.tunnel()

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Bytes of the answer's body."""
        reply = self.reply
        if payload and self._measured is not None:
            self._measured.chunk(len(payload))
        if complete:
            self._engine = None
        reply.deliver(payload, complete=complete)
        if complete:
            self._end()

    def whole(self, answer: AnswerHead, payload: bytes) -> None:
        """The answer, all of it."""
        self._engine = None
        if self._reply is not None:
            if self._measured is not None:
                self._measured.chunk(len(payload))
            self._reply.close = self._reply.close or self._relay.closing
            self._reply.whole(answer, payload)
            self._end()
            return
        close = self._close or self._relay.closing
        self._client.write(response_head.complete(answer, payload, close=close))
        self._over(answer.status, payload[-TAIL_BYTES:], len(payload))
        self._client.finished(close=close)

    def downstream(self, data: bytes) -> None:
        """Bytes of another protocol, from the engine."""
        self._client.write(data)

    def upstream(self, data: bytes) -> None:
        """And from the client."""
        if self._engine is not None:
            self._engine.write(data)

    def lost(self, loss: Loss) -> None:
        """The engine's connection is gone before the answer's end."""
        self._engine = None
        if self._step is _TUNNEL:
            self._end()
        elif loss is Loss.STALE and self._lane is not None:
            # Once: a new connection is never stale.
            self._connect(self._lane)
        else:
            self._fail(GONE)

    def engine_blocked(self, *, blocked: bool) -> None:
        """The engine does not read what the client sends."""
        if self._step is _TUNNEL:
            self._client.engine_blocked(blocked=blocked)

    # What the client's connection, the queue and a drain tell.

    def client_blocked(self, *, blocked: bool) -> None:
        """The client does not read what the engine sends; or reads again."""
        if self._engine is None:
            return
        if self._measured is not None and self._step is not _TUNNEL:
            self._measured.due(due=not blocked)
        if blocked:
            self._engine.pause()
        else:
            self._engine.resume()

    def gone(self) -> None:
        """The client has hung up."""
        self._drop_engine()
        self._over(0, b"" if self._reply is None else self._reply.tail())

    def comment(self, text: str) -> None:
        """Keep the client of a held stream company."""
        self.reply.open(text)

    def refuse(self, why: Refusal) -> None:
        """There will be no answer but this."""
        self._fail(why)

    def cut(self, why: Refusal) -> None:
        """End it now, whatever it does."""
        self._drop_engine()
        if self._step is _TUNNEL:
            self._end()
        else:
            self._fail(why)

    # Ends.

    def _fail(self, why: Refusal) -> None:
        reply = self.reply
        if reply.fail(why):
            self._end()
            return
        self._over(why.status, reply.tail())
        self._client.broken()

    def _end(self) -> None:
        reply = self.reply
        self._over(reply.status, reply.tail())
        # Only a client that was told so expects the connection to end.
        self._client.finished(close=reply.close)

    def _over(self, status: int, tail: bytes, size: int = 0) -> None:
        if self._step is _HELD:
            self._relay.waiting.remove(self)
        self._step = _OVER
        self._leave()
        if self._again is not None:
            self._again.cancel()
        if self._measured is not None:
            self._measured.ended(status, tail, size)
        self._forget_request()

    def _leave(self) -> None:
        if self._lane is not None:
            self._lane.leave(self)
            self._lane = None

    def _forget_request(self) -> None:
        """Its bytes are not needed any more: an answer has begun, or there will be none."""
        self._relay.buffered_bytes -= len(self._body)
        self._request = _NOTHING
        self._body = b""
        self._document = None

    def _drop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abort()
