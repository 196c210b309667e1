"""Reply to one client: the engine's response, a stream that begins before it, or an error.

    not started --begin--> relaying --> over
       |---open-----> opened --begin--> relaying | collecting an error --> over
       '---fail-----> over

A failure before the response head is out is an error like any other. In a stream of events it is
an error event and then the proper end. In any other body, a coded stream among them, there is no
honest way to report it but to break the connection, so that no client takes the part for the whole.

Half an event goes out only with its rest, so that an error event never follows half of one, which
clients would parse first. One that is too long is passed on in parts; a stream that fails within it
is broken off.
"""

from enum import Enum
from time import time
from typing import Final, Protocol

from appliance.gateway.request_head import PreflightRequest, RequestHead
from appliance.gateway.response import (
    LAST_CHUNK,
    Framing,
    ResponseHead,
    build_json_response,
    build_preflight_response,
    build_relayed_head,
    build_relayed_response,
    build_stream_head,
    build_switch_head,
    encode_chunk,
)
from appliance.model.gateway import Api, Refusal
from appliance.model.json_reader import decode_json
from appliance.routing.refusals import (
    encode_error,
    encode_error_event,
    encode_sign_of_life,
    engine_error,
)

TAIL_BYTES: Final = 8 << 10
"""Bytes at the end of a response body that the observer receives."""
_ERROR_BYTES: Final = 64 << 10
"""Longest message of an engine's error that is put into a stream."""
_HALF_BYTES: Final = 256 << 10
"""Longest part of an event that waits for its rest."""
_EVENT_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
_CARRIED: Final = 2
"""Bytes of an end that may have come before the others."""
_OK: Final = 200
_NO_CONTENT: Final = 204
_UNAUTHORIZED: Final = 401
_UPGRADE_REQUIRED: Final = 426
_UNSUPPORTED: Final = 415


class ReplyClient(Protocol):
    """Connection of the client, as far as a reply uses it."""

    def write(self, data: bytes) -> None:
        """Write bytes, unless the connection is lost."""
        ...


class ReplyStage(Enum):
    NOT_STARTED = 1
    OPENED = 2
    """Stage: a stream has begun before the engine has responded."""
    RELAYING = 3
    COLLECTING_ERROR = 4
    """Stage: the engine has responded to an opened stream with an error, whose body is
    collected."""


_COLLECTING_ERROR: Final = ReplyStage.COLLECTING_ERROR
"""Stage by a name of the module, since an enum's attribute takes 37 ns in Python 3.11, for each chunk."""


class Reply:
    """Reply to one request."""

    __slots__ = (
        "_chunked",
        "_client",
        "_error_body",
        "_events",
        "_half",
        "_head",
        "_last",
        "_last_size",
        "_pending_head",
        "_previous",
        "_torn",
        "close",
        "stage",
        "status",
    )

    def __init__(self, client: ReplyClient, head: RequestHead, *, close: bool) -> None:
        self._client = client
        self._head = head
        self.close = close
        """Whether the connection ends with this reply."""
        self.stage = ReplyStage.NOT_STARTED
        self.status = 0
        """Status that the client was sent; 0: none yet."""
        self._chunked = self._events = False
        self._half = bytearray()
        """Part of an event that waits for its rest."""
        self._torn = False
        """Whether the part of the event before that has gone out."""
        self._pending_head = b""
        """Response head that is sent with the first bytes of the body."""
        self._error_body = b""
        self._previous: list[bytes] = []
        self._last: list[bytes] = []
        self._last_size = 0

    def send_json(self, body: bytes) -> None:
        """Send a whole response of the gateway itself."""
        self.status = _OK
        head_only = self._head.method == b"HEAD"
        response = build_json_response(
            _OK, body, headers=self._head.cors, close=self.close, head_only=head_only
        )
        self._client.write(response)

    def allow(self, preflight: PreflightRequest) -> None:
        """Answer a browser that the web page may send its request."""
        self.status = _NO_CONTENT
        self._client.write(
            build_preflight_response(preflight, headers=self._head.cors, close=self.close)
        )

    def show_life(self, model: str | None) -> None:
        """Send a sign of life, in a stream of events that begins before the engine responds."""
        head = self._head
        out = encode_sign_of_life(head.path_class.api, head.path, model, time())
        if self.stage is ReplyStage.NOT_STARTED:
            self.stage = ReplyStage.OPENED
            self._events = True
            self._chunked = not self._head.old
            self.status = _OK
            lines = build_stream_head(
                headers=self._head.cors, chunked=self._chunked, close=self.close
            )
            self._client.write(lines + (encode_chunk(out) if self._chunked else out))
        else:
            self._client.write(encode_chunk(out) if self._chunked else out)

    def begin(self, head: ResponseHead) -> None:
        """Begin with the engine's response head."""
        if self.stage is ReplyStage.OPENED:
            good = head.status == _OK and head.events
            self.stage = ReplyStage.RELAYING if good else ReplyStage.COLLECTING_ERROR
            self.status = head.status
            return
        self.stage = ReplyStage.RELAYING
        self.status = head.status
        unknown = head.framing is Framing.CHUNKED or head.framing is Framing.CLOSE
        # Nothing can be added to a body whose length has been sent.
        self._events = head.events and unknown
        self._chunked = unknown and not self._head.old
        self._pending_head = build_relayed_head(
            head, headers=self._head.cors, chunked=self._chunked, close=self.close
        )
        if self._head.method == b"HEAD":
            self._chunked = False

    def deliver_whole(self, head: ResponseHead, payload: bytes) -> None:
        """Send an engine's response that was received whole."""
        if self.stage is ReplyStage.OPENED:
            self.begin(head)
            self.deliver(payload, complete=True)
            return
        self.stage = ReplyStage.RELAYING
        self.status = head.status
        self._remember(payload)
        self._client.write(
            build_relayed_response(head, payload, headers=self._head.cors, close=self.close)
        )

    def switch_protocols(self, head: ResponseHead) -> None:
        """Pass on that the engine agrees to another protocol."""
        self.stage = ReplyStage.RELAYING
        self.status = head.status
        self.close = True
        self._client.write(build_switch_head(head))

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Relay bytes of the engine's body."""
        if self.stage is _COLLECTING_ERROR:
            self._collect_error(payload, complete=complete)
            return
        out = self._pending_head
        if out:
            self._pending_head = b""
        if payload:
            self._remember(payload)
        if self._events and (self._half or not payload.endswith(_EVENT_ENDS)):
            payload = self._take_events(payload, complete=complete)
        if payload:
            out = (
                b"%b%x\r\n%b\r\n" % (out, len(payload), payload) if self._chunked else out + payload
            )
        if complete and self._chunked:
            out += LAST_CHUNK
        if out:
            self._client.write(out)

    def fail(self, why: Refusal) -> bool:
        """End the response with an error that the client can read.

        Returns:
            False: the error cannot be sent any more, and the connection has to be broken.
        """
        if self.stage is ReplyStage.NOT_STARTED or self._pending_head:
            self._pending_head = b""
            self._client.write(build_error_response(self._head, why, close=self.close))
        elif self._events and not self._torn:
            event = encode_error_event(self._head.path_class.api, why)
            self._client.write(encode_chunk(event) + LAST_CHUNK if self._chunked else event)
        else:
            return False
        self.status = why.status
        return True

    def _take_events(self, payload: bytes, *, complete: bool) -> bytes:
        """Return what may go out: whole events, the end of the body, or what waits for too long."""
        half = self._half
        start = max(0, len(half) - _CARRIED)
        half += payload
        size = 0
        for end in _EVENT_ENDS:
            # Each search begins at what the last one has found, mostly near the end.
            if (at := half.rfind(end, start)) >= 0:
                start, size = at, at + len(end)
        self._torn = self._torn and not size
        while half.startswith(b":", size) and (line := half.find(b"\n", size)) >= 0:
            # A comment that no empty line ends is an engine's sign of life.
            size = line + 1
        if complete:
            size = len(half)
        elif len(half) - size > _HALF_BYTES:
            size, self._torn = len(half) - _CARRIED, True
        out = bytes(half[:size])
        del half[:size]
        return out

    def _collect_error(self, payload: bytes, *, complete: bool) -> None:
        if len(self._error_body) < _ERROR_BYTES:
            self._error_body += payload
        if complete:
            self.fail(engine_error(self.status, _error_message(self._error_body)))

    def _remember(self, payload: bytes) -> None:
        self._last.append(payload if len(payload) < TAIL_BYTES else payload[-TAIL_BYTES:])
        self._last_size += len(payload)
        if self._last_size >= TAIL_BYTES:
            self._previous, self._last, self._last_size = self._last, [], 0

    def tail(self) -> bytes:
        """Return the last bytes of the body."""
        if not self._previous and len(self._last) == 1:
            return self._last[0]
        return b"".join((*self._previous, *self._last))[-TAIL_BYTES:]


def build_error_response(
    head: RequestHead | None, why: Refusal, *, close: bool, cors: bytes = b""
) -> bytes:
    """Return a refusal as a whole response.

    Args:
        head: Request head; None: it could not be parsed.
        why: Refusal.
        close: The connection ends with the response.
        cors: Lines for a web page, where there is no head that has them.
    """
    api = Api.OTHER if head is None else head.path_class.api
    headers = cors if head is None else head.cors
    if why.retry_after_s is not None:
        headers += b"Retry-After: %d\r\n" % why.retry_after_s
    if why.status == _UNAUTHORIZED:
        headers += b"WWW-Authenticate: Bearer\r\n"
    if why.status == _UPGRADE_REQUIRED:
        headers += b"Upgrade: HTTP/1.1\r\nConnection: Upgrade\r\n"
    if why.status == _UNSUPPORTED:
        headers += b"Accept-Encoding: gzip, zstd\r\n"
    head_only = head is not None and head.method == b"HEAD"
    return build_json_response(
        why.status, encode_error(api, why), headers=headers, close=close, head_only=head_only
    )


def _error_message(body: bytes) -> str | None:
    """Return the message of an engine's error; None: it has none."""
    try:
        document = decode_json(body)
    except ValueError:
        return None
    found = document.get("error", document) if isinstance(document, dict) else None
    message = found.get("message") if isinstance(found, dict) else found
    return message if isinstance(message, str) else None
