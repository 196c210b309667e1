"""Server of lane.sock: a connection for each probe, lease or finding (see `appliance.wire.lane`)."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Coroutine
from itertools import chain
from typing import Final

from appliance.gateway.lane import GrantedLease, LaneReservations
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.wire.lane import (
    MAX_COMMAND_BYTES,
    LaneBusy,
    LaneEnd,
    LaneEvent,
    LaneLeaseCommand,
    LaneLeased,
    LaneOutcome,
    LaneProbeCommand,
    LaneTraffic,
    LaneUnresponsiveCommand,
    decode_lane_command,
    encode_lane_event,
)
from appliance.wire.server import Bounds, serve_unix, until_left

_log = logging.getLogger(__name__)

_BOUNDS: Final = Bounds(line_bytes=MAX_COMMAND_BYTES, per_user=16, total=32)
_FULL: Final = encode_lane_event(LaneBusy("too many connections"))
_LINE_S: Final = 10.0
"""Time for the command, and for the client to take the last event."""
_MOST_UNREAD_BYTES: Final = 1 << 20
"""Limit of what a client has not read yet; one that is slower is cut."""
_DRAIN_S: Final = 120.0
_TRAFFIC_EVERY_S: Final = 0.1
_LEFT: Final = "the client has left"


class LaneServer:
    """Server of the lane. The socket's mode decides who may connect.

    Args:
        reservations: Of the lane.
        relay: Requests of clients.
        table: Standings of profiles.
        drain_s: Time that an exclusive lease waits for requests in flight.
    """

    def __init__(
        self,
        reservations: LaneReservations,
        relay: Relay,
        table: RoutingTable,
        *,
        drain_s: float = _DRAIN_S,
    ) -> None:
        self._drain_s = drain_s
        self._reservations = reservations
        self._relay = relay
        self._table = table
        self._conversations: set[asyncio.Task[None]] = set()
        self._unresponsive: dict[_EventWriter, tuple[str, ...]] = {}
        """Profiles of which a connection says that they do not answer."""

    async def serve(self, listener: socket.socket) -> None:
        """Serve for ever. The socket's file stays, since systemd owns it.

        Cancelled, it takes no new connections.
        """
        await serve_unix(listener, self._connected, _BOUNDS, refusal=_FULL)

    async def follow(self) -> None:
        """End what holds the lane whenever the state of the box forbids it, for ever."""
        while True:
            changed = self._table.changed()
            self._reservations.recheck()
            await changed

    async def close(self) -> None:
        """End every conversation."""
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._converse(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        await asyncio.wait({task})

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        events = _EventWriter(writer)
        try:
            async with asyncio.timeout(_LINE_S):
                line = await reader.readuntil(b"\n")
            command = decode_lane_command(line)
            match command:
                case LaneProbeCommand():
                    await self._probe(command, reader, events)
                case LaneLeaseCommand():
                    await self._lease(command, reader, events)
                case LaneUnresponsiveCommand():
                    await self._show_unresponsive(command, reader, events)
        except ValueError as error:
            events.emit(LaneEnd(LaneOutcome.FAILED, str(error)))
        except (EOFError, OSError, asyncio.LimitOverrunError):
            # A timeout is an OSError, too.
            writer.transport.abort()

    async def _probe(
        self, command: LaneProbeCommand, reader: asyncio.StreamReader, events: "_EventWriter"
    ) -> None:
        probe = self._reservations.begin_probe(command, events.emit)
        if isinstance(probe, LaneBusy):
            events.emit(probe)
            return
        try:
            async with asyncio.timeout(command.timeout_s):
                await _first_of(probe.ended.wait(), events.until_left(reader))
        except TimeoutError:
            probe.end(LaneOutcome.TOO_LONG, f"no end within {command.timeout_s:g} s")
        finally:
            probe.end(LaneOutcome.FAILED, _LEFT)
            self._reservations.release(probe)

    async def _lease(
        self, command: LaneLeaseCommand, reader: asyncio.StreamReader, events: "_EventWriter"
    ) -> None:
        lease = self._reservations.begin_lease(command)
        if isinstance(lease, LaneBusy):
            events.emit(lease)
            return
        try:
            await _first_of(self._keep(lease, command, events), events.until_left(reader))
        finally:
            lease.end(LaneOutcome.FAILED, _LEFT)
            self._reservations.release(lease)

    async def _show_unresponsive(
        self, command: LaneUnresponsiveCommand, reader: asyncio.StreamReader, events: "_EventWriter"
    ) -> None:
        """Show profiles as unresponsive until the health agent leaves, or dies."""
        self._unresponsive[events] = command.names
        try:
            self._table.show_unresponsive(chain.from_iterable(self._unresponsive.values()))
            await events.until_left(reader)
        finally:
            del self._unresponsive[events]
            self._table.show_unresponsive(chain.from_iterable(self._unresponsive.values()))

    async def _keep(
        self, lease: GrantedLease, command: LaneLeaseCommand, events: "_EventWriter"
    ) -> None:
        """Grant a lease, and report requests of others until its end."""
        if command.exclusive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s):
                    await _first_of(self._relay.until_finished(lease.names), lease.ended.wait())
            if self._relay.in_flight(lease.names):
                events.emit(LaneBusy("requests in flight did not end in time"))
                return
        events.emit(LaneLeased(lease.token))
        reported = 0
        while True:
            lease.changed.clear()
            if lease.requests > reported:
                reported = lease.requests
                events.emit(LaneTraffic(reported))
            if lease.end_reason is not None:
                events.emit(LaneEnd(*lease.end_reason))
                return
            await lease.changed.wait()
            await asyncio.sleep(_TRAFFIC_EVERY_S)


class _EventWriter:
    """Writer of events to one client, which never waits for it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def emit(self, event: LaneEvent) -> None:
        """Write an event; cut a client that reads too slowly."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.write(encode_lane_event(event))
        if transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            _log.warning("a client of the lane reads too slowly and is cut")
            transport.abort()

    async def until_left(self, reader: asyncio.StreamReader) -> None:
        """Wait until the client has left, or was cut."""
        # ValueError: the socket was closed meanwhile.
        with contextlib.suppress(ValueError):
            await until_left(reader, self._writer)


async def _first_of(*waits: Coroutine[object, object, object]) -> None:
    """Wait until one has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
