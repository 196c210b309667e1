"""Port `ProbeLane`, over lane.sock (see `appliance.wire.lane`)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from appliance.model.errors import LaneAwayError, LaneBusyError
from appliance.wire.lane import (
    MAX_EVENT_BYTES,
    LaneAdmitted,
    LaneBusy,
    LaneCommand,
    LaneData,
    LaneEnd,
    LaneEvent,
    LaneHead,
    LaneLeaseCommand,
    LaneLeased,
    LaneOutcome,
    LaneProbeCommand,
    LaneTraffic,
    LaneUnresponsiveCommand,
    decode_lane_event,
    encode_lane_command,
)

_PATIENCE_S: Final = 10.0
"""Time for the gateway to connect to an engine, which it gives up after 5 s, and to answer."""
LEASE_S: Final = 150.0
"""Time for an exclusive lease: the gateway waits up to 120 s for requests in flight."""
_AWAY: Final = "the gateway does not answer"
_BROKEN: Final = LaneEnd(LaneOutcome.FAILED, "the gateway has closed the connection")


class SocketProbeLane:
    """Lane of the gateway.

    Args:
        path: Path of lane.sock.
        patience_s: Time for an answer that the gateway owes at once.
    """

    def __init__(self, path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        self._path = path
        self._patience_s = patience_s

    @contextlib.asynccontextmanager
    async def send(
        self, profile: str, path: str, body: Mapping[str, object] | None, *, timeout_s: float
    ) -> AsyncIterator["SocketLaneResponse"]:
        """Send a request; see `ProbeLane.send`."""
        command = LaneProbeCommand(profile, path, body, timeout_s)
        async with self._events(command) as events:
            first = await events.first(self._patience_s)
            yield SocketLaneResponse(events, first, timeout_s + self._patience_s)

    @contextlib.asynccontextmanager
    async def lease(
        self, names: Sequence[str], *, exclusive: bool
    ) -> AsyncIterator["SocketLaneLease"]:
        """Take a lease; see `ProbeLane.lease`."""
        command = LaneLeaseCommand(tuple(names), exclusive)
        async with self._events(command) as events:
            first = await events.first(LEASE_S if exclusive else self._patience_s)
            if not isinstance(first, LaneLeased):
                raise LaneBusyError((first if isinstance(first, LaneEnd) else _BROKEN).why)
            yield SocketLaneLease(events, first.token)

    async def show_unresponsive(self, names: Sequence[str]) -> None:
        """Have profiles shown as unresponsive; see `ProbeLane.show_unresponsive`."""
        with contextlib.suppress(LaneAwayError):
            async with self._events(LaneUnresponsiveCommand(tuple(names))) as events:
                await events.following()

    @contextlib.asynccontextmanager
    async def _events(self, command: LaneCommand) -> AsyncIterator["_Events"]:
        """Connect and send a command; raises `LaneAwayError` if the gateway is not there."""
        try:
            async with asyncio.timeout(self._patience_s):
                reader, writer = await asyncio.open_unix_connection(
                    self._path, limit=MAX_EVENT_BYTES
                )
        except (OSError, TimeoutError) as error:
            raise LaneAwayError(_AWAY) from error
        try:
            writer.write(encode_lane_command(command))
            yield _Events(reader)
        finally:
            # Nothing that matters is unwritten, and a gateway that does not read causes no delay.
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Events:
    """Events of one connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def first(self, within_s: float) -> LaneEvent:
        """Return the first event; raises `LaneBusyError` if nothing was sent."""
        try:
            async with asyncio.timeout(within_s):
                event = await self.following()
        except TimeoutError as error:
            raise LaneAwayError(_AWAY) from error
        if event is None:
            raise LaneAwayError(_AWAY)
        if isinstance(event, LaneBusy):
            raise LaneBusyError(event.why)
        return event

    async def following(self) -> LaneEvent | None:
        """Return the next event; None: the connection broke, or what came was no event."""
        try:
            line = await self._reader.readline()
            return decode_lane_event(line) if line else None
        except (OSError, ValueError):
            return None


class SocketLaneResponse:
    """Response of an engine to a probe: a `LaneResponse`."""

    def __init__(self, events: _Events, first: LaneEvent, within_s: float) -> None:
        self._events = events
        self._within_s = within_s
        self.sent_s = first.sent_s if isinstance(first, LaneAdmitted) else 0.0
        self.status = 0
        self.outcome: LaneOutcome | None = None
        self.detail = ""
        if not isinstance(first, LaneAdmitted):
            self._end(first)

    async def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        """Iterate over pieces of the body and their arrival; see `LaneResponse.chunks`."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._within_s
        while self.outcome is None:
            try:
                async with asyncio.timeout_at(end_s):
                    event = await self._events.following()
            except TimeoutError:
                event = None
            if isinstance(event, LaneHead):
                self.status = event.status
            elif isinstance(event, LaneData):
                yield event.text.encode(), event.at_s
            else:
                self._end(event)

    def _end(self, event: LaneEvent | None) -> None:
        end = event if isinstance(event, LaneEnd) else _BROKEN
        self.outcome, self.detail = end.outcome, end.why


class SocketLaneLease:
    """Lease of the lane: a `LaneLease`."""

    def __init__(self, events: _Events, token: str) -> None:
        self._events = events
        self.token = token
        self.requests = 0
        self.lost: str | None = None

    async def traffic(self) -> AsyncIterator[int]:
        """Iterate over the number of requests of others; see `LaneLease.traffic`."""
        while self.lost is None:
            event = await self._events.following()
            if isinstance(event, LaneTraffic):
                self.requests = event.requests
                yield event.requests
            else:
                self.lost = (event if isinstance(event, LaneEnd) else _BROKEN).why
