"""Exchange of one probe for its response, on a connection to the engine that only it uses.

    start --> connecting --> waiting --> responding --> over: complete, failed, too long
                  |             |            |
                  '-------------+------------'--------> over: yielded to a request of a client

It yields in the call that sends the request of the client: the engine sees the end of the probe's
connection before the first byte of that request.
"""

import asyncio
import codecs
from collections.abc import Callable
from time import monotonic
from typing import Final

from appliance.gateway.http.response_head import ResponseHead
from appliance.gateway.upstream.engine_connection import EngineConnection
from appliance.gateway.upstream.pool import Pool, own_head_lines
from appliance.gateway.upstream.read_budget import ReadBudget
from appliance.gateway.write_batch import WriteBatch
from appliance.model.gateway import Limits, Refusal, Routed
from appliance.wire.json_values import encode_json
from appliance.wire.lane import (
    PIECE_BYTES,
    LaneAdmitted,
    LaneBusy,
    LaneData,
    LaneEnd,
    LaneEvent,
    LaneHead,
    LaneOutcome,
    LaneProbeCommand,
)

MOST_RESPONSE_BYTES: Final = 4 << 20
"""Limit of a response: 256 tokens take 80 KB."""
REQUEST_ARRIVED: Final = "a request of a client arrived"

Emit = Callable[[LaneEvent], None]


class ProbeExchange:
    """Exchange of one probe: an `UpstreamRequest`, and a `LaneHolder`.

    Args:
        command: The probe. Raises `ValueError` if its body cannot be written as JSON.
        routed: Its profile.
        limits: Of engines.
        emit: Takes each event; the last is `LaneEnd`, or `LaneBusy` if nothing was sent.
        clock: Seconds of CLOCK_MONOTONIC; the event loop's time is rounded to milliseconds.
    """

    def __init__(
        self,
        command: LaneProbeCommand,
        routed: Routed,
        limits: Limits,
        emit: Emit,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.routed = routed
        self.path = command.path
        self.ended = asyncio.Event()
        self.outcome: LaneOutcome | None = None
        """Outcome of a probe that was sent; None: it was not, or is not over."""
        self._head, self._body = _request(command, routed)
        self._emit = emit
        self._clock = clock
        # A pool of its own: a connection of clients is neither used nor kept from them.
        self._pool = Pool(routed, limits, WriteBatch(), ReadBudget())
        self._engine: EngineConnection | None = None
        self._sent = False
        self._bytes = 0
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def over(self) -> bool:
        return self.ended.is_set()

    def start(self) -> None:
        """Connect to the engine, then send the request."""
        self._pool.connect(self)

    def end(self, outcome: LaneOutcome, why: str = "") -> None:
        """End the exchange now, unless it is over; the engine is told by the end of the connection."""
        if self.over:
            return
        self.ended.set()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shut_down()
        self._pool.close()
        self.outcome = outcome if self._sent else None
        unsent = not self._sent and outcome is LaneOutcome.YIELDED
        self._emit(LaneBusy(why) if unsent else LaneEnd(outcome, why))

    # Calls of the relay.

    def request_sent(self, token: bytes | None) -> None:  # noqa: ARG002 - a probe has none
        """Yield: a request of a client goes to an engine next."""
        self.end(LaneOutcome.YIELDED, REQUEST_ARRIVED)

    def make_way(self) -> None:
        """Yield: a request of a client waits, or an operation begins."""
        self.end(LaneOutcome.YIELDED, REQUEST_ARRIVED)

    def owns(self, token: bytes | None) -> bool:  # noqa: ARG002
        """Tell that no request of a client belongs to a probe."""
        return False

    # Calls of the pool and the connection.

    def connected(self, engine: EngineConnection) -> bool:
        """Send the request; False: the exchange is over."""
        if self.over:
            return False
        self._engine, self._sent = engine, True
        sent_s = self._clock()
        engine.send(self, self._head, self._body, head_first=False)
        self._emit(LaneAdmitted(sent_s))
        return True

    def unreachable(self) -> None:
        """Note that the engine accepts no connection."""
        self.end(LaneOutcome.FAILED, "the engine accepts no connection")

    def begin_response(self, head: ResponseHead) -> None:
        """Take the response head."""
        if head.websocket:
            self.end(LaneOutcome.FAILED, "the engine changes the protocol")
        else:
            self._emit(LaneHead(head.status))

    def deliver(self, payload: bytes, *, complete: bool) -> None:
        """Take bytes of the response body."""
        at_s = self._clock()
        self._bytes += len(payload)
        if self._bytes > MOST_RESPONSE_BYTES:
            self.end(LaneOutcome.TOO_LONG, f"the response exceeds {MOST_RESPONSE_BYTES >> 20} MiB")
            return
        for begin in range(0, max(len(payload), complete), PIECE_BYTES):
            piece = payload[begin : begin + PIECE_BYTES]
            final = complete and begin + PIECE_BYTES >= len(payload)
            text = self._text.decode(piece, final)
            if text and not self.over:
                self._emit(LaneData(text, at_s))
        if complete:
            # The connection is the pool's again, which closes it.
            self._engine = None
            self.end(LaneOutcome.ENDED)

    def deliver_whole(self, head: ResponseHead, payload: bytes) -> None:
        """Take a response that came at once."""
        self.begin_response(head)
        self.deliver(payload, complete=True)

    def write_to_client(self, data: bytes) -> None:  # noqa: ARG002
        """Drop bytes of another protocol."""
        self.end(LaneOutcome.FAILED, "the engine changes the protocol")

    def engine_lost(self) -> None:
        """Note that the connection closed before the end of the response."""
        self._engine = None
        self.end(LaneOutcome.FAILED, "the engine broke the connection off")

    def engine_blocked(self, *, blocked: bool) -> None:
        """Let the transport keep what the engine does not read yet: the command is bounded."""

    def cut(self, why: Refusal) -> None:
        """End the request now."""
        self.end(LaneOutcome.YIELDED, why.message)


def _request(command: LaneProbeCommand, routed: Routed) -> tuple[bytes, bytes]:
    lines = own_head_lines(routed)
    if command.body is None:
        return b"GET %b HTTP/1.1\r\n%b\r\n" % (command.path.encode("ascii"), lines), b""
    try:
        body = encode_json(command.body).encode("ascii")
    except (RecursionError, TypeError) as error:
        raise ValueError("body is no JSON") from error
    head = b"POST %b HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (
        command.path.encode("ascii"),
        lines,
        len(body),
    )
    return head, body
