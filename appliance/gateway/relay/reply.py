"""What one client is told: the engine's answer, a stream that begins before it, or an error.

    unsaid --begin--> relaying --> over
       |---open-----> opened --begin--> relaying | explaining --> over
       '---fail-----> over

An answer that fails before its head is out is an error like any other. In a stream of events it
is an error event and then the proper end. In any other body there is no honest way to say it but
to break the connection, so that nobody takes the part for the whole.
"""

import json
from enum import Enum
from typing import Final, Protocol

from appliance.domain.gateway import Api, Refusal
from appliance.gateway.http import response_head
from appliance.gateway.http.request_head import RequestHead
from appliance.gateway.http.response_head import AnswerHead, Framing
from appliance.planning.routing import refusals

TAIL_BYTES: Final = 8 << 10
"""Of a body, for the observer."""
_EXPLAINED_BYTES: Final = 64 << 10
"""Of an engine's error that is put into a stream."""
_OK: Final = 200
_UNAUTHORIZED: Final = 401


class Ear(Protocol):
    """Where a client listens."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...


class Stage(Enum):
    """How far an answer is."""

    UNSAID = 1
    OPENED = 2
    """A stream has begun that the engine does not know of yet."""
    RELAYING = 3
    EXPLAINING = 4
    """The engine answered an opened stream with an error, which is collected."""


class Reply:
    """The answer to one request."""

    __slots__ = (
        "_chunks",
        "_ear",
        "_events",
        "_explained",
        "_head",
        "_last",
        "_last_size",
        "_previous",
        "_waiting",
        "close",
        "stage",
        "status",
    )

    def __init__(self, ear: Ear, head: RequestHead, *, close: bool) -> None:
        self._ear = ear
        self._head = head
        self.close = close
        """The connection ends with this answer."""
        self.stage = Stage.UNSAID
        self.status = 0
        """What the client was told; 0: nothing yet."""
        self._chunks = self._events = False
        self._waiting = b""
        """A head that goes out with the first bytes of its body."""
        self._explained = b""
        self._previous: list[bytes] = []
        self._last: list[bytes] = []
        self._last_size = 0

    def say(self, body: bytes) -> None:
        """Give an answer of our own."""
        self.status = _OK
        head_only = self._head.method == b"HEAD"
        self._ear.write(response_head.whole(_OK, body, close=self.close, head_only=head_only))

    def open(self, comment: str) -> None:
        """Begin a stream of events before there is an answer, or go on with it."""
        out = refusals.comment(comment)
        if self.stage is Stage.UNSAID:
            self.stage = Stage.OPENED
            self._events = True
            self._chunks = not self._head.old
            self.status = _OK
            head = response_head.stream(chunks=self._chunks, close=self.close)
            self._ear.write(head + (response_head.chunk(out) if self._chunks else out))
        else:
            self._ear.write(response_head.chunk(out) if self._chunks else out)

    def begin(self, answer: AnswerHead) -> None:
        """The engine's head is there."""
        if self.stage is Stage.OPENED:
            good = answer.status == _OK and answer.events
            self.stage = Stage.RELAYING if good else Stage.EXPLAINING
            self.status = answer.status
            return
        self.stage = Stage.RELAYING
        self.status = answer.status
        unknown = answer.framing is Framing.CHUNKED or answer.framing is Framing.CLOSE
        # Nothing can be added to a body whose length has been told.
        self._events = answer.events and unknown
        self._chunks = unknown and not self._head.old
        self._waiting = response_head.relayed(answer, chunks=self._chunks, close=self.close)
        if self._head.method == b"HEAD":
            self._chunks = False

    def whole(self, answer: AnswerHead, payload: bytes) -> None:
        """The engine's answer is there at once."""
        if self.stage is Stage.OPENED:
            self.begin(answer)
            self.deliver(payload, complete=True)
            return
        self.stage = Stage.RELAYING
        self.status = answer.status
        self._remember(payload)
        self._ear.write(response_head.complete(answer, payload, close=self.close))

    def switch(self, answer: AnswerHead) -> None:
        """The engine agrees to another protocol."""
        self.stage = Stage.RELAYING
        self.status = answer.status
        self.close = True
        self._ear.write(response_head.switched(answer))

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Pass on bytes of the engine's body."""
        if self.stage is Stage.EXPLAINING:
            self._explain(payload, complete=complete)
            return
        out = self._waiting
        if out:
            self._waiting = b""
        if payload:
            self._remember(payload)
            out = (
                b"%b%x\r\n%b\r\n" % (out, len(payload), payload) if self._chunks else out + payload
            )
        if complete and self._chunks:
            out += response_head.END
        if out:
            self._ear.write(out)

    def fail(self, why: Refusal) -> bool:
        """Tell that there is no answer, or no more of it.

        Returns:
            Whether the client can know it. If not, the connection has to be broken.
        """
        if self.stage is Stage.UNSAID or self._waiting:
            self._waiting = b""
            self._ear.write(self._error(why))
        elif self._events:
            event = refusals.event(
                self._head.place.api, why.status, why.code, why.message, why.param
            )
            self._ear.write(
                response_head.chunk(event) + response_head.END if self._chunks else event
            )
        else:
            return False
        self.status = why.status
        return True

    def _error(self, why: Refusal) -> bytes:
        return error(self._head, why, close=self.close)

    def _explain(self, payload: bytes, *, complete: bool) -> None:
        if len(self._explained) < _EXPLAINED_BYTES:
            self._explained += payload
        if complete:
            self.fail(
                Refusal(
                    status=self.status,
                    code="engine_error",
                    message=_said(self._explained) or f"the engine answered {self.status}",
                )
            )

    def _remember(self, payload: bytes) -> None:
        self._last.append(payload if len(payload) < TAIL_BYTES else payload[-TAIL_BYTES:])
        self._last_size += len(payload)
        if self._last_size >= TAIL_BYTES:
            self._previous, self._last, self._last_size = self._last, [], 0

    def tail(self) -> bytes:
        """The last bytes of the body."""
        if not self._previous and len(self._last) == 1:
            return self._last[0]
        return b"".join((*self._previous, *self._last))[-TAIL_BYTES:]


def error(head: RequestHead | None, why: Refusal, *, close: bool) -> bytes:
    """A refusal as a whole answer.

    Args:
        head: The request's; None: it cannot be read.
        why: What is said.
        close: The connection ends with it.
    """
    api = Api.OTHER if head is None else head.place.api
    headers = b""
    if why.retry_after_s is not None:
        headers = b"Retry-After: %d\r\n" % why.retry_after_s
    if why.status == _UNAUTHORIZED:
        headers += b"WWW-Authenticate: Bearer\r\n"
    body = refusals.body(api, why.status, why.code, why.message, why.param)
    head_only = head is not None and head.method == b"HEAD"
    return response_head.whole(why.status, body, headers=headers, close=close, head_only=head_only)


def _said(body: bytes) -> str | None:
    """The message of an engine's error; None: it has none."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    found = document.get("error", document) if isinstance(document, dict) else None
    message = found.get("message") if isinstance(found, dict) else found
    return message if isinstance(message, str) else None
