"""Reservations of the lane: who has it, and when nobody may.

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
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from appliance.gateway.lane.granted_lease import GrantedLease
from appliance.gateway.lane.probe_exchange import Emit, ProbeExchange
from appliance.gateway.relay.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Limits, Standing
from appliance.wire.lane import LaneBusy, LaneLeaseCommand, LaneOutcome, LaneProbeCommand

_STARTS: Final = "the gateway starts"


class LaneReservations:
    """Reservations of one lane.

    Args:
        relay: Requests of clients.
        table: Standings of profiles.
        limits: Of engines.
        replaced: Tells whether a process that this one has replaced still lives.
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
        """Reason for which nobody may have the lane; None: the lane is open."""

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
