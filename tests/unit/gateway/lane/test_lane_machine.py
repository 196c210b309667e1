"""State machine of the lane between clients, probes, leases and operations, without sockets.

Checked at every byte that the engine gets: no request of a client finds a probe there, and no probe
is begun while a request of a client is there or waits. Left alone, the lane becomes free.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
)

from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.keys import KeyRing
from appliance.gateway.lane import GrantedLease, LaneReservations, ProbeExchange
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Endpoint, Handling
from appliance.wire.lane import (
    TOKEN_HEADER,
    LaneBusy,
    LaneEnd,
    LaneEvent,
    LaneLeaseCommand,
    LaneOutcome,
    LaneProbeCommand,
)
from tests.fuzz.targets import LIMITS
from tests.fuzz.world import End, World

_NAMES: Final = ("a", "b")
_DOWN: Final = "down"
"""Profile that is down, and to which nobody switches: its requests wait."""
_SERVES: Final = State(standings=dict.fromkeys(_NAMES, Standing.SERVING), committed=_NAMES)
_PROBE: Final = b"GET /probe "
_NOWHERE: Final = Path("/nonexistent")
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class GatedWorld(World):
    """World in which a connection of a probe is made when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Future[None]] = []
        self.gated = False
        """Whether the next connection waits."""

    async def create_connection(self, protocol_factory: Any, *args: Any, **named: Any) -> Any:
        if self.gated:
            self.gated = False
            self.gates.append(self.create_future())
            await self.gates[-1]
        return await super().create_connection(protocol_factory, *args, **named)


class LaneMachine(RuleBasedStateMachine):
    """Rules of everything that can happen to the lane."""

    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.world = GatedWorld()
        self.world.engine = self.hear
        self.requests: dict[End, bytes] = {}
        """Requests of clients at the engine, without a response."""
        self.probes: list[End] = []
        """Connections on which a probe was sent."""
        self.waiting: list[End] = []
        """Clients of the profile that is down."""
        self.exchange: ProbeExchange | None = None
        self.events: list[LaneEvent] = []
        self.lease: GrantedLease | None = None
        with self.running():
            catalogue = {
                name: Routed(name=name, served=(), engine_name=name, endpoint=Endpoint(port=1))
                for name in _NAMES
            }
            catalogue[_DOWN] = Routed(
                name=_DOWN,
                served=(),
                engine_name=_DOWN,
                endpoint=Endpoint(port=1),
                handling=Handling(on_request=True),
            )
            self.table = RoutingTable(catalogue)
            self.table.take(_SERVES)
            self.relay = Relay(
                router=self.table,
                observer=Meter(),
                key_checker=KeyRing(_NOWHERE),
                limits=LIMITS,
            )
            self.lane = LaneReservations(
                self.relay, self.table, LIMITS, replaced=lambda: self.replaced
            )
            self.replaced = False
            self.lane.open()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the world's event loop be the running one, and settle it afterwards."""
        asyncio.events._set_running_loop(self.world)
        try:
            yield
        finally:
            asyncio.events._set_running_loop(None)
        self.settle()

    def settle(self) -> None:
        """Let everything happen that takes no time."""
        self.world.run_until_complete(_settle())
        assert not self.world.troubles, self.world.troubles

    # --- the engine's view ---------------------------------------------------------------

    def hear(self, end: End, data: bytes) -> None:
        """Check each request at the moment of its arrival."""
        if data.startswith(_PROBE):
            assert not self.requests, "a probe begins while a request is in flight"
            assert not len(self.relay.hold_queue), "a probe begins while a request waits"
            assert not self._live(), "two probes at once"
            self.probes.append(end)
        else:
            assert not self._live(), "a request meets a probe"
            assert TOKEN_HEADER.lower().encode() not in data.lower()
            self.requests[end] = data

    def _live(self) -> list[End]:
        """Return the connections of probes that the engine does not see ended."""
        return [end for end in self.probes if not end.is_closing()]

    # --- clients -------------------------------------------------------------------------

    @rule(target=clients, name=st.sampled_from(_NAMES), own=st.booleans())
    def request(self, name: str, *, own: bool) -> End:
        """A client sends a request."""
        token = self.lease.token if own and self.lease is not None else ""
        body = b'{"model":"%s"}' % name.encode()
        head = f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += f"{TOKEN_HEADER}: {token}\r\n" if token else ""
        with self.running():
            client = End(ClientConnection(self.relay, loopback=True))
            client.say(head.encode() + b"\r\n" + body)
        return client

    @rule()
    def request_down(self) -> None:
        """A client sends a request for a profile that is down, which waits for a switch."""
        body = b'{"model":"%s"}' % _DOWN.encode()
        head = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        with self.running():
            client = End(ClientConnection(self.relay, loopback=True))
            client.say(head + body)
        self.waiting.append(client)

    @rule()
    def leave_down(self) -> None:
        """Clients of that profile close their connections."""
        waiting, self.waiting = self.waiting, []
        with self.running():
            for client in waiting:
                client.hang_up()

    @rule(client=consumes(clients))
    def leave(self, client: End) -> None:
        """A client closes its connection."""
        with self.running():
            client.hang_up()
        self.forget_closed()

    @rule()
    def answer(self) -> None:
        """The engine responds to its oldest request."""
        if self.requests:
            end = next(iter(self.requests))
            del self.requests[end]
            with self.running():
                end.say(_ANSWER)

    # --- probes and leases ---------------------------------------------------------------

    @rule(name=st.sampled_from(_NAMES), gated=st.booleans())
    def probe(self, name: str, *, gated: bool) -> None:
        """The health agent asks for a probe, whose connection may take its time."""
        events: list[LaneEvent] = []
        self.world.gated = gated
        with self.running():
            found = self.lane.begin_probe(
                LaneProbeCommand(name, "/probe", None, 10.0), events.append
            )
        self.world.gated = False
        leased = self.lease is not None and self.lease.end_reason is None
        assert not leased or isinstance(found, LaneBusy)
        if isinstance(found, ProbeExchange):
            self.exchange, self.events = found, events

    @rule(gated=st.booleans())
    def probe_in_quiet(self, *, gated: bool) -> None:
        """A probe is admitted, once everything else has ended."""
        self.end_everything()
        self.leave_probe()
        self.probe("a", gated=gated)
        assert self.relay.lane_holder is self.exchange

    @rule()
    def connect(self) -> None:
        """Connections that waited are made."""
        gates, self.world.gates = self.world.gates, []
        for gate in gates:
            gate.set_result(None)
        self.settle()

    @rule()
    def end_probe(self) -> None:
        """The engine responds to the probe."""
        for end in self._live():
            with self.running():
                end.say(_ANSWER)

    @rule()
    def leave_probe(self) -> None:
        """The health agent leaves."""
        if self.exchange is not None:
            with self.running():
                self.exchange.end(LaneOutcome.FAILED, "left")
                self.lane.release(self.exchange)

    @rule(names=st.sampled_from([("a",), ("a", "b")]), exclusive=st.booleans())
    def take_lease(self, names: tuple[str, ...], *, exclusive: bool) -> None:
        """A bench asks for a lease."""
        with self.running():
            found = self.lane.begin_lease(LaneLeaseCommand(names, exclusive))
        if isinstance(found, GrantedLease):
            self.lease = found

    @rule()
    def end_lease(self) -> None:
        """The bench leaves."""
        if self.lease is not None:
            with self.running():
                self.lease.end(LaneOutcome.FAILED, "left")
                self.lane.release(self.lease)
            self.lease = None

    # --- the box -------------------------------------------------------------------------

    @rule(
        standing=st.sampled_from(Standing),
        held=st.sampled_from([(), ("b",), ("a", "b")]),
        paused=st.booleans(),
    )
    def change(self, standing: Standing, held: tuple[str, ...], *, paused: bool) -> None:
        """The supervisor sends another state."""
        state = State(
            standings={"a": standing, "b": Standing.SERVING},
            committed=_NAMES,
            held=frozenset(held),
            paused=paused,
        )
        with self.running():
            self.table.take(state)
            self.lane.recheck()

    @rule()
    def serve(self) -> None:
        """The operation is over."""
        with self.running():
            self.table.take(_SERVES)
            self.lane.recheck()

    @rule(replaced=st.booleans())
    def hand_over(self, *, replaced: bool) -> None:
        """A hand-over begins and fails, or an older process lives or ends."""
        self.replaced = replaced
        with self.running():
            self.lane.close("hand-over")
            self.lane.open()

    # --- what always holds ---------------------------------------------------------------

    def forget_closed(self) -> None:
        """Forget requests whose connections are gone."""
        for end in [end for end in self.requests if end.is_closing()]:
            del self.requests[end]

    @invariant()
    def a_probe_ends_once(self) -> None:
        """The last event of a probe is its end, which no other follows."""
        self.forget_closed()
        ends = [isinstance(event, LaneBusy | LaneEnd) for event in self.events]
        assert not any(ends[:-1])
        assert self.exchange is None or not ends or ends[-1] is self.exchange.over

    @invariant()
    def no_request_waits_for_nobody(self) -> None:
        """Requests wait for an operation, for the lease that lasts, or for a switch."""
        state = self.table.state
        if state == _SERVES and (self.lease is None or self.lease.end_reason is not None):
            unanswered = [client for client in self.waiting if not client.written]
            assert len(self.relay.hold_queue) == len(unanswered)

    @invariant()
    def no_probe_beside_a_request_that_waits(self) -> None:
        """A request that waits has ended the probe at the engine."""
        assert not len(self.relay.hold_queue) or not self._live()

    def teardown(self) -> None:
        """Left alone, everything ends, and a probe is admitted and answered."""
        try:
            self.end_everything()
            self.leave_probe()
            self.probe("b", gated=False)
            self.end_probe()
            assert self.events[-1] == LaneEnd(LaneOutcome.ENDED)
            self.world.run_until_complete(self.relay.stop(0))
            self.settle()
        finally:
            self.world.close()

    def end_everything(self) -> None:
        """Have operations, leases and requests end."""
        self.serve()
        self.end_lease()
        self.leave_down()
        self.connect()
        self.replaced = False
        while self.requests or len(self.relay.hold_queue):
            assert self.requests, "a request waits for nobody"
            self.answer()
            self.forget_closed()


async def _settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


TestLane = LaneMachine.TestCase
TestLane.settings = settings(stateful_step_count=40, deadline=None)
