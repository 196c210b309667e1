"""Lane: reservations for a probe of the health agent or for a lease, and the exchange of a probe.

    free --probe--> probe --over--> free
    free --lease--> lease --over--> free
    probe --lease--> the probe yields, then as from free

=========================================  ================================================
the lane is refused                        while
=========================================  ================================================
to probes, and to leases                   the gateway starts, ends or hands over; the one that
                                           it has replaced lives; an operation or a hold lasts;
                                           a profile does not serve; another lease lasts
to probes, and to leases that share        a request of any client is in flight, or waits
to probes                                  another probe lasts; the engine has died twice while
                                           it had one on the same path, not long ago
=========================================  ================================================

A request of a client that comes after that makes the probe yield (`ProbeExchange`), also while it
still connects. Nothing here waits, so no request is routed between check and reservation.

A probe is exchanged for its response on a connection to the engine that only it uses:

    start --> connecting --> waiting --> responding --> over: complete, failed, too long
                  |             |            |
                  '-------------+------------'--------> over: yielded to a request of a client

It yields in the call that sends the request of the client: the engine sees the end of the probe's
connection before the first byte of that request.
"""

import asyncio
import codecs
import os
from collections.abc import Callable, Sequence
from hmac import compare_digest
from time import monotonic
from typing import Final

from appliance.gateway.engine_pool import EngineConnection, Pool, own_head_lines
from appliance.gateway.event_loop import ReadBudget, WriteBatch
from appliance.gateway.relay import Relay
from appliance.gateway.response import ResponseHead
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Limits, Refusal, Routed, Standing
from appliance.wire.json_values import encode_json
from appliance.wire.lane import (
    PIECE_BYTES,
    LaneAdmitted,
    LaneBusy,
    LaneData,
    LaneEnd,
    LaneEvent,
    LaneHead,
    LaneLeaseCommand,
    LaneOutcome,
    LaneProbeCommand,
)

# --- lease --------------------------------------------------------------------------------


class GrantedLease:
    """Lease of the lane: a `LaneHolder`.

    Args:
        names: Profiles that it is for.
        requests: Requests of others that are in flight when it begins.
    """

    def __init__(self, names: Sequence[str], *, requests: int = 0) -> None:
        self.names = tuple(names)
        self.token = os.urandom(16).hex()
        self.requests = requests
        """Count of requests of others since the lease began."""
        self.end_reason: tuple[LaneOutcome, str] | None = None
        """Outcome of the lease, and why; None: it lasts."""
        self.changed = asyncio.Event()
        """Event that is set when the count has grown, and at the end."""
        self.ended = asyncio.Event()
        if requests:
            self.changed.set()

    def request_sent(self, token: bytes | None) -> None:
        """Count a request that goes to an engine next, unless it is the holder's own."""
        if not self.owns(token):
            self.requests += 1
            self.changed.set()

    def make_way(self) -> None:
        """Do nothing for a request that waits: it is counted when it is sent."""

    def owns(self, token: bytes | None) -> bool:
        """Tell whether a request is the holder's own, by its header."""
        return token is not None and compare_digest(token, self.token.encode())

    def end(self, outcome: LaneOutcome, why: str = "") -> None:
        """End the lease, unless it is over."""
        if self.end_reason is None:
            self.end_reason = outcome, why
            self.changed.set()
            self.ended.set()


# --- probe --------------------------------------------------------------------------------

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
        """End the exchange now, unless it is over; the engine sees the end of the connection."""
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
        """Return False: no request of a client belongs to a probe."""
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


# --- reservations -------------------------------------------------------------------------

_STARTS: Final = "the gateway starts"


class LaneReservations:
    """Reservations of one lane.

    Args:
        relay: Requests of clients.
        table: Standings of profiles.
        limits: Of engines.
        replaced: Returns whether a process that this one has replaced still lives.
    """

    def __init__(
        self,
        relay: Relay,
        table: RoutingTable,
        limits: Limits,
        *,
        replaced: Callable[[], bool],
    ) -> None:
        self._relay = relay
        self._table = table
        self._limits = limits
        self._replaced = replaced
        self._closed: str | None = _STARTS
        """Reason for which the lane is refused to all; None: the lane is open."""

    def open(self) -> None:
        """Admit probes and leases from now on."""
        self._closed = None

    def close(self, why: str) -> None:
        """Admit none, and end what holds the lane."""
        self._closed = why
        self._end_holder(why)

    def begin_probe(self, command: LaneProbeCommand, emit: Emit) -> ProbeExchange | LaneBusy:
        """Reserve the lane for a probe, and begin it. Raises `ValueError`: its body is no JSON."""
        routed = self._table.catalogue.get(command.profile)
        why = self._refusal((command.profile,)) or self._traffic()
        holder = self._relay.lane_holder
        if why is None and isinstance(holder, ProbeExchange) and not holder.over:
            why = "another probe lasts"
        digest, now_s = hash(command.path), asyncio.get_running_loop().time()
        if why is None and self._relay.crashes.refuses(command.profile, digest, now_s):
            why = "the engine has died twice while it had a probe"
        if why is not None or routed is None:
            return LaneBusy(why or f"{command.profile} is not applied")
        probe = ProbeExchange(command, routed, self._limits, emit)
        self._relay.lane_holder = probe
        probe.start()
        return probe

    def begin_lease(self, command: LaneLeaseCommand) -> GrantedLease | LaneBusy:
        """Reserve the lane for a lease.

        Requests for the profiles of an exclusive one wait from now on, unless they are its own.
        """
        why = self._refusal(command.names)
        if why is None and not command.exclusive:
            why = self._traffic()
        if why is not None:
            return LaneBusy(why)
        self._end_holder("a lease begins")
        lease = GrantedLease(command.names, requests=self._others_in_flight(command))
        self._relay.lane_holder = lease
        if command.exclusive:
            self._table.reserve(command.names)
        return lease

    def recheck(self) -> None:
        """End what holds the lane if an operation has begun, or a profile does not serve any more."""
        match self._relay.lane_holder:
            case ProbeExchange(routed=routed):
                names: tuple[str, ...] = (routed.name,)
            case GrantedLease(names=names):
                pass
            case _:
                return
        why = self._standing_refusal(names)
        if why is not None:
            self._end_holder(why)

    def release(self, holder: ProbeExchange | GrantedLease) -> None:
        """Free the lane, if this one still has it, and note how its probe has ended."""
        if isinstance(holder, ProbeExchange) and holder.outcome is not None:
            profile, digest = holder.routed.name, hash(holder.path)
            if holder.outcome is LaneOutcome.ENDED:
                self._relay.crashes.answered(profile, digest)
            else:
                now_s = asyncio.get_running_loop().time()
                self._relay.crashes.lost(profile, digest, now_s)
            holder.outcome = None
        if self._relay.lane_holder is holder:
            self._relay.lane_holder = None
            self._table.reserve(())

    def _end_holder(self, why: str) -> None:
        holder = self._relay.lane_holder
        if isinstance(holder, ProbeExchange | GrantedLease):
            holder.end(LaneOutcome.YIELDED, why)
            self.release(holder)

    # --- reasons ---------------------------------------------------------------------

    def _refusal(self, names: Sequence[str]) -> str | None:
        if self._closed is not None:
            return self._closed
        if self._replaced():
            return "requests of the replaced gateway process are not over"
        if isinstance(self._relay.lane_holder, GrantedLease):
            return "a lease lasts"
        return self._standing_refusal(names)

    def _standing_refusal(self, names: Sequence[str]) -> str | None:
        """Return why profiles may not be used now; None: they serve, and no operation runs."""
        state = self._table.state
        if state.paused:
            return "an operator holds the box"
        if state.held or state.target:
            return "an operation runs"
        for name in names:
            if name not in self._table.catalogue:
                return f"{name} is not applied"
            if state.standing(name) is not Standing.SERVING:
                return f"{name} does not serve"
        return None

    def _traffic(self) -> str | None:
        count = self._relay.requests_under_way()
        return f"requests of clients are under way: {count}" if count else None

    def _others_in_flight(self, command: LaneLeaseCommand) -> int:
        """Return the requests in flight that an exclusive lease does not wait for."""
        return self._relay.in_flight(self._relay.upstreams.keys() - set(command.names))
