"""Exchange of one request for its response, from the whole request to the end of the response.

    start --> held <--> connecting --> waiting --> responding --> over
      |        |            |             |            |
      '--------+------------+-------------+------------'--> over: refused, lost, cut, hung up

Nothing here waits: the event loop, the engine's connection, the pool and the hold queue call in,
and every call is a step. The module is long, because each step reads and changes the one state.
"""

import asyncio
from enum import Enum
from typing import Final, Protocol

from appliance.gateway.engine_pool import EngineConnection, Upstream
from appliance.gateway.event_loop import guarded
from appliance.gateway.relay import REROUTED, Observation, Relay
from appliance.gateway.reply import TAIL_BYTES, Reply, ReplyClient, ReplyStage
from appliance.gateway.request_body import Scan, body_refusal, parse_body, parse_body_in_steps
from appliance.gateway.request_head import RequestHead, build_engine_head
from appliance.gateway.response import ResponseHead, build_relayed_response, parse_output_tokens
from appliance.model.gateway import Api, Key, Refusal, Routed
from appliance.routing.form_body import FormBody
from appliance.routing.json_body import LONG_BYTES, JsonBody, Pieces
from appliance.routing.json_scanner import BodyError, scan_plain_object
from appliance.routing.refusals import (
    ENGINE_FAILED,
    ENGINE_UNREACHABLE,
    GATEWAY_FAULT,
    engine_died_twice,
    model_not_ready,
    websocket_refused,
)
from appliance.wire.gateway import ClientRequestRow

_RETRY_S: Final = 0.1
"""Pause between two attempts to connect, until the supervisor has sent a new state."""
_GRACE_S: Final = 1.0
"""Time for that state: systemd notifies the supervisor, and that the gateway, in a few
milliseconds."""
_SWITCHING_PROTOCOLS: Final = 101
_TOO_MANY: Final = 429
_SERVER_FAULT: Final = 500
_NOT_IMPLEMENTED: Final = 501
_DIGESTED_BYTES: Final = 512 << 10
"""Bytes at each end of a long body that its digest is made of: 0.3 ms for both."""
_NO_REQUEST: Final = (b"", b"")


class ExchangeState(Enum):
    START = 1
    HELD = 2
    CONNECTING = 3
    WAITING = 4
    RESPONDING = 5
    TUNNEL = 6
    OVER = 7


_START, _HELD, _CONNECTING, _WAITING, _RESPONDING, _TUNNEL, _OVER = ExchangeState
"""Members by name: looking one up in its Enum is slow in Python 3.11."""


_SHOWN: Final = {
    _HELD: "held",
    _CONNECTING: "sent",
    _WAITING: "sent",
    _RESPONDING: "answering",
    _TUNNEL: "tunnel",
}


class ExchangeClient(ReplyClient, Protocol):
    """Connection of the client, as far as an exchange uses it."""

    @property
    def owner(self) -> str:
        """Return the owner of the connection: a key, a user of this machine, or another machine."""
        ...

    def write_whole(self, response: bytes, *, close: bool) -> None:
        """Write a whole response, and go on to the next request, or close."""
        ...

    def response_finished(self, *, close: bool) -> None:
        """Go on to the next request after a complete response, or close."""
        ...

    def start_tunnel(self) -> None:
        """Relay bytes of another protocol from now on."""
        ...

    def block_reading(self, *, blocked: bool) -> None:
        """Stop reading, or continue."""
        ...

    def break_off(self) -> None:
        """Break the connection, so that the client notices an incomplete response."""
        ...

    def leave(self, exchange: "Exchange") -> None:
        """Break the connection, unless it has gone on to another request."""
        ...


class Exchange:
    """Exchange of one request for its response."""

    __slots__ = (
        "__weakref__",
        "_body",
        "_client",
        "_close",
        "_digest",
        "_document",
        "_engine",
        "_grace_end_s",
        "_head",
        "_model",
        "_observation",
        "_observed_profile",
        "_plain",
        "_relay",
        "_reply",
        "_request",
        "_retry",
        "_state",
        "_upstream",
        "key",
        "streams",
    )

    def __init__(
        self,
        relay: Relay,
        client: ExchangeClient,
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
        """Reply to the client; None: nothing was sent that needs one."""
        self._document: JsonBody | FormBody | None = None
        """Parsed body; None: the body is empty, relayed unread, or plain."""
        self._plain = False
        """Whether the body is a plain JSON object: most bodies are, and need no document."""
        self.streams = False
        """Whether the client asks for a stream of events."""
        self._model: str | None = None
        """Model that the request names; None: it names none."""
        self._digest = 0
        """Digest of the request, by which a repetition is known; 0: none was needed."""
        self._upstream: Upstream | None = None
        self._observation: Observation | None = None
        self._observed_profile = ""
        self._engine: EngineConnection | None = None
        self._request: tuple[bytes, bytes | Pieces] = _NO_REQUEST
        """Head and body as the engine receives them."""
        self._retry: asyncio.TimerHandle | Scan[JsonBody | FormBody | None] | None = None
        """Timer, or scan of a long body, that calls this exchange again; cancelled at its end."""
        self._grace_end_s = 0.0
        self._state = _START

    @property
    def owner(self) -> str:
        return self._client.owner

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of the body, while it may be needed again."""
        return len(self._body)

    @property
    def age_s(self) -> float | None:
        """Return how long ago the request began; None: it is not routed yet, or over."""
        if self._observation is None or self._state in {_START, _OVER}:
            return None
        return self._observation.progress().age_s

    def row(self, request_id: str) -> ClientRequestRow | None:
        """Return the request as people see it, without any text of the client; None: not routed yet, or over."""
        if self._observation is None or self._state in {_START, _OVER}:
            return None
        api = self._head.path_class.api
        # Anthropic's streams begin with a count that is not of what has come.
        counts = self._reply is not None and api is not Api.ANTHROPIC
        progress = self._observation.progress()
        waited_s = progress.waited_s
        return {
            "id": request_id,
            "profile": self._observed_profile,
            "api": api.value,
            "key": None if self.key is None else self.key.name,
            "state": _SHOWN[self._state],
            "streams": self.streams,
            "age_s": round(progress.age_s, 1),
            "waited_s": None if waited_s is None else round(waited_s, 1),
            "pieces": progress.pieces,
            "bytes": progress.size_bytes,
            "tokens": parse_output_tokens(self.reply.tail()) if counts else None,
        }

    @property
    def reply(self) -> Reply:
        """Return the reply to the client, made when first needed: most responses need none."""
        if self._reply is None:
            self._reply = Reply(self._client, self._head, close=self._close)
        return self._reply

    def start(self) -> None:
        """Handle the request, which was received as a whole."""
        if self._head.is_answered_here:
            self._answer()
            return
        body = self._body
        if body:
            plain = scan_plain_object(body) if self._head.form is None else None
            if plain is None:
                self._parse(body)
                return
            self._plain = True
            self._model, self.streams = plain
        else:
            self._model = self._head.model
        self._route()

    def _answer(self) -> None:
        """Answer the request without an engine."""
        if self._head.preflight is None:
            self._list_models(self._head.path_class.model)
        else:
            self.reply.allow(self._head.preflight)
            self._end()

    def _parse(self, body: bytes) -> None:
        """Parse a body that is not plain, a long one in steps."""
        if len(body) > LONG_BYTES:
            steps = parse_body_in_steps(self._head, body)
            self._retry = self._relay.scans.add(self._client.owner, steps, self._scanned)
            return
        try:
            document = parse_body(self._head, body)
        except BodyError as error:
            self.refuse(body_refusal(error))
        else:
            self._scanned(document)

    @guarded
    def _scanned(self, document: JsonBody | FormBody | Refusal | None) -> None:
        """Continue after the scan of a body."""
        self._retry = None
        if isinstance(document, Refusal):
            self.refuse(document)
            return
        if document is not None:
            self._document = document
            self._model = document.model
            self.streams = document.streams
        self._route()

    def _list_models(self, name: str | None) -> None:
        router = self._relay.router
        body = router.models(self.key) if name is None else router.model(name, self.key)
        if isinstance(body, Refusal):
            self.refuse(body)
            return
        self.reply.send_json(body)
        self._end()

    # From the request to an engine.

    @guarded
    def advance(self) -> None:
        """Route the request again, after a change or a pause."""
        self._route()

    def _route(self) -> None:
        """Route the request by the present state: to an engine, into the queue, or to a refusal."""
        router = self._relay.router
        if self.key is None and (ready := router.ready.get(self._model)) is not None:
            # The case of most requests, with two calls less.
            self._send(ready)
            return
        routed = router.route(self._model, self.key)
        if isinstance(routed, Refusal):
            self.refuse(routed)
            return
        is_work = not self._head.is_read or bool(self._body)
        readiness = router.readiness(routed.name, self.key, is_work=is_work)
        if readiness is True:
            self._send(routed)
            return
        if readiness is False and self._may_pass(routed.name):
            self._send(routed)
            return
        self._observe(routed.name)
        if readiness is not False:
            self.refuse(readiness)
        elif is_work:
            self._hold()
        else:
            self.refuse(model_not_ready(routed.name))

    def _may_pass(self, profile: str) -> bool:
        """Tell whether a profile is kept from all requests but those of the lane's lease."""
        holder = self._relay.lane_holder
        if holder is None or not self._relay.router.is_reserved(profile):
            return False
        return holder.owns(self._head.lease)

    def _observe(self, profile: str) -> None:
        if self._observed_profile == profile:
            return
        if self._observation is not None:
            self._observation.end(REROUTED, b"")
        self._observed_profile = profile
        self._observation = self._relay.observer.begin(profile, self.key)

    def _hold(self) -> None:
        holder = self._relay.lane_holder
        if holder is not None:
            holder.make_way()
        self._leave_upstream()
        self._grace_end_s = 0.0
        self._state = _HELD
        self._relay.hold_queue.add(self)

    def _send(self, routed: Routed) -> None:
        relay = self._relay
        if relay.crashes.suspects and self._died_with(routed.name):
            self._observe(routed.name)
            self.refuse(engine_died_twice(routed.name))
            return
        if relay.lane_holder is not None and self._upstream is None:
            # First of all: a probe ends before a byte of this request is written.
            relay.lane_holder.request_sent(self._head.lease)
        upstream = relay.upstreams.get(routed.name)
        if upstream is None or upstream.routed is not routed:
            upstream = relay.renew_upstream(routed)
        body: bytes | Pieces = self._body
        if self._document is not None or (self._plain and self._model not in upstream.unchanged):
            changed = self._change_body(upstream)
            if changed is None:
                return
            body = changed
        plain = self._reply is not None and self._reply.stage is ReplyStage.OPENED
        head = build_engine_head(self._head, len(body), upstream.head_lines, plain=plain)
        self._request = head, body
        if self._upstream is not upstream:
            if self._upstream is not None:
                self._leave_upstream()
            self._upstream = upstream
            upstream.in_flight.add(self)
        engine = upstream.pool.acquire()
        if engine is None:
            self._observe(routed.name)
            self._connect(upstream)
            return
        if self._observation is None:
            self._observation = relay.observer.begin_sent(routed.name, self.key)
            self._observed_profile = routed.name
        else:
            self._observe(routed.name)
            self._observation.sent()
        self._send_on(engine)

    def _change_body(self, upstream: Upstream) -> bytes | Pieces | None:
        """Return the body as the engine shall have it; None: it cannot be changed so, and is refused."""
        if self._document is None:
            self._document = JsonBody(self._body, plain=(self._model, self.streams))
        changes = upstream.changes.get(self._model, upstream.other_changes)
        try:
            return self._document.apply(changes)
        except BodyError as error:
            self._observe(upstream.routed.name)
            self.refuse(body_refusal(error))
            return None

    def _died_with(self, profile: str) -> bool:
        """Tell whether the profile's engine has died too often while it had this very request."""
        self._make_digest()
        now_s = asyncio.get_running_loop().time()
        return self._relay.crashes.refuses(profile, self._digest, now_s)

    def _make_digest(self) -> None:
        """Make the digest while the body is there: SipHash, whose key is random in each process."""
        if not self._digest:
            body = self._body
            if len(body) > 2 * _DIGESTED_BYTES:
                body = body[:_DIGESTED_BYTES] + body[-_DIGESTED_BYTES:]
            self._digest = hash((self._head.path, len(self._body), body))

    def _connect(self, upstream: Upstream) -> None:
        self._state = _CONNECTING
        upstream.pool.connect(self)

    def connected(self, engine: EngineConnection) -> bool:
        """Send the request on a new connection; False: the exchange does not need it any more."""
        if self._state is not _CONNECTING:
            return False
        self._send_on(engine)
        if self._observation is not None:
            self._observation.sent()
        return True

    def _send_on(self, engine: EngineConnection) -> None:
        self._state = _WAITING
        self._engine = engine
        head, body = self._request
        engine.send(self, head, body, head_first=self._head.head_first)

    def unreachable(self) -> None:
        """Route again in a moment: the supervisor may have sent a new state by then."""
        if self._state is not _CONNECTING:
            return
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._grace_end_s = self._grace_end_s or now_s + _GRACE_S
        if now_s >= self._grace_end_s:
            self.refuse(ENGINE_UNREACHABLE)
        else:
            self._retry = loop.call_later(_RETRY_S, self.advance)

    # Calls of the engine's connection.

    def begin_response(self, head: ResponseHead) -> None:
        self._make_digest()
        self._forget_request()
        if head.websocket or head.status == _SWITCHING_PROTOCOLS:
            self._switch_protocols(head)
            return
        if self._head.websocket and _is_for_client(head.status):
            self._drop_engine()
            self.refuse(websocket_refused(self._head.path, head.status))
            return
        self._state = _RESPONDING
        if self._relay.closing:
            self.reply.close = True
        self.reply.begin(head)
        if self._head.method == b"HEAD":
            self._drop_engine()
            self.reply.deliver(b"", complete=True)
            self._end()

    def _switch_protocols(self, head: ResponseHead) -> None:
        if not self._head.websocket:
            self._drop_engine()
            self.engine_lost()
            return
        self._state = _TUNNEL
        if self._observation is not None:
            self._observation.owed(owed=False)
        self.reply.switch_protocols(head)
        self._client.start_tunnel()

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Relay bytes of the response body."""
        reply = self._reply or self.reply  # without the property's call for each chunk
        if payload and self._observation is not None:
            self._observation.chunk(len(payload))
        if complete:
            self._engine = None
        reply.deliver(payload, complete=complete)
        if complete:
            self._end()

    def deliver_whole(self, head: ResponseHead, payload: bytes) -> None:
        """Relay a response that was received whole."""
        self._engine = None
        if self._reply is not None:
            if self._observation is not None:
                self._observation.chunk(len(payload))
            self._reply.close = self._reply.close or self._relay.closing
            self._reply.deliver_whole(head, payload)
            self._end()
            return
        close = self._close or self._relay.closing
        response = build_relayed_response(head, payload, headers=self._head.cors, close=close)
        self._client.write_whole(response, close=close)
        self._finish(head.status, payload[-TAIL_BYTES:], len(payload))

    def write_to_client(self, data: bytes) -> None:
        """Relay bytes of another protocol to the client."""
        self._client.write(data)

    def write_to_engine(self, data: bytes) -> None:
        """Relay bytes of another protocol to the engine."""
        if self._engine is not None:
            self._engine.write(data)

    def engine_lost(self) -> None:
        """Fail the response, because the engine has closed the connection; the request is not sent again."""
        self._engine = None
        if self._state is _TUNNEL:
            self._end()
        else:
            self._fail(ENGINE_FAILED)

    def engine_blocked(self, *, blocked: bool) -> None:
        """Read no more from the client of a tunnel while its engine reads too slowly."""
        if self._state is _TUNNEL:
            self._client.block_reading(blocked=blocked)

    # Calls of the client's connection, the hold queue and drains.

    def client_blocked(self, *, blocked: bool) -> None:
        """Read no more from the engine while the client reads too slowly."""
        if self._engine is None:
            return
        if self._observation is not None and self._state is not _TUNNEL:
            self._observation.owed(owed=not blocked)
        if blocked:
            self._engine.pause()
        else:
            self._engine.resume()

    def client_gone(self) -> None:
        """End the exchange, because the client has closed the connection."""
        self._drop_engine()
        self._finish(0, b"" if self._reply is None else self._reply.tail())

    def show_life(self) -> None:
        """Send a sign of life to the client of a held stream, whose response begins with the first."""
        self.reply.show_life(self._model)

    def refuse(self, why: Refusal) -> None:
        """Refuse the request; no other response may follow."""
        self._fail(why)

    def cut(self, why: Refusal) -> None:
        """End the exchange now, in whatever state it is."""
        self._drop_engine()
        if self._state is _OVER:
            # Only after a fault in the midst of the end.
            self._forget_request()
            self._client.leave(self)
        elif self._state is _TUNNEL:
            self._end()
        else:
            self._fail(why)

    def end_after_fault(self) -> None:
        self.cut(GATEWAY_FAULT)

    def abort(self) -> None:
        self._client.leave(self)

    # Ends of the exchange.

    def _fail(self, why: Refusal) -> None:
        reply = self.reply
        if reply.fail(why):
            self._end()
            return
        self._finish(why.status, reply.tail())
        self._client.break_off()

    def _end(self) -> None:
        reply = self.reply
        self._finish(reply.status, reply.tail())
        # Only a client that was sent `Connection: close` expects the end.
        self._client.response_finished(close=reply.close)

    def _finish(self, status: int, tail: bytes, size: int = 0) -> None:
        if self._state is _HELD:
            self._relay.hold_queue.remove(self)
        elif status >= _SERVER_FAULT or self._digest or not status:
            self._note_end(status)
        self._state = _OVER
        if self._upstream is not None:
            # `_leave_upstream` without the call, since every request comes here.
            self._upstream.remove(self)
            self._upstream = None
        if self._retry is not None:
            self._retry.cancel()
        if self._observation is not None:
            self._observation.end(status, tail, size)
        self._forget_request()

    def _note_end(self, status: int) -> None:
        """Note how a request ended that an engine may have had when it died."""
        if self._state is not _WAITING and self._state is not _RESPONDING:
            return
        crashes, profile = self._relay.crashes, self._observed_profile
        if not status or status >= _SERVER_FAULT:
            # An engine of several processes answers 500 for the one that has died, and then ends.
            self._make_digest()
            crashes.lost(profile, self._digest, asyncio.get_running_loop().time())
        elif crashes.suspects:
            crashes.answered(profile, self._digest)

    def _leave_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.remove(self)
            self._upstream = None

    def _forget_request(self) -> None:
        """Free the request's bytes: a response has begun, or none will be sent."""
        self._relay.buffered_bytes -= len(self._body)
        self._request = _NO_REQUEST
        self._body = b""
        self._document = None

    def _drop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abort()


def _is_for_client(status: int) -> bool:
    """Tell whether a status is about the request, and not about the engine's own state."""
    return (status < _SERVER_FAULT and status != _TOO_MANY) or status == _NOT_IMPLEMENTED
