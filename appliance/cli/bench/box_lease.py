"""Lease on the box while a bench measures: the health agent's probes pause, and traffic is told.

A real request beside a bench makes its figures worthless, so without ``--exclusive`` the first one
ends it. Without a health agent a bench runs unwatched, and says so.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from appliance.model.errors import UnreachableError
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import (
    HEALTH,
    HealthEvent,
    LeasedEvent,
    LeaseLostEvent,
    LeaseRequest,
    LeaseTrafficEvent,
)
from appliance.wire.lane import TOKEN_HEADER

_LEASED_WITHIN_S: Final = 330.0
"""Time for the lease: an exclusive one waits for the requests in flight, as long as clients may wait."""


class BenchLease:
    """Lease of one block, or its absence."""

    def __init__(self, token: str, *, exclusive: bool, absent: str = "") -> None:
        self.headers: Mapping[str, str] = {TOKEN_HEADER: token} if token else {}
        """Headers by which the gateway knows the bench's own requests."""
        self.absent = absent
        """Reason why there is no lease; empty: there is one."""
        self.requests = 0
        """Requests of others since the lease began."""
        self._exclusive = exclusive
        self._spoilt: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def spoilt(self) -> str:
        """Wait until the figures are worthless, and return the reason."""
        return await asyncio.shield(self._spoilt)

    def note(self, event: HealthEvent) -> None:
        """Take an event of the lease."""
        if isinstance(event, LeaseTrafficEvent):
            self.requests = event.requests
            if not self._exclusive:
                self.spoil(f"{event.requests} real requests came meanwhile")
        elif isinstance(event, LeaseLostEvent):
            self.spoil(f"the lease ended: {event.message}")

    def spoil(self, reason: str) -> None:
        """Make the figures worthless, for the first reason that is given."""
        if not self._spoilt.done():
            self._spoilt.set_result(reason)


@asynccontextmanager
async def bench_lease(
    path: Path, names: Sequence[str], *, exclusive: bool
) -> AsyncIterator[BenchLease]:
    """Hold a lease as long as the block lasts.

    Args:
        path: The health agent's socket.
        names: Profiles that are measured.
        exclusive: Let real requests to them wait.

    Raises:
        UnreachableError: no health agent answers, and the lease must be exclusive.
        RequestRefusedError: there is another lease, or a profile does not serve.
        PermissionDeniedError: this user may not open the socket.
    """
    request = LeaseRequest(names=tuple(names), exclusive=exclusive, text="appliance bench")
    async with AsyncExitStack() as stack:
        try:
            events = await stack.enter_async_context(open_conversation(HEALTH, path, request))
        except UnreachableError as error:
            if exclusive:
                raise
            yield BenchLease("", exclusive=False, absent=str(error))
            return
        lease = BenchLease(await _token(events), exclusive=exclusive)
        watching = asyncio.create_task(_watch(events, lease))
        try:
            yield lease
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def _token(events: AsyncGenerator[HealthEvent, None]) -> str:
    """Return the token of the lease once it has begun."""
    try:
        async with asyncio.timeout(_LEASED_WITHIN_S):
            async for event in events:
                if isinstance(event, LeasedEvent):
                    return event.token
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, LeaseLostEvent):
                    raise UnreachableError(f"no lease: {event.message}")
    except TimeoutError as error:
        raise UnreachableError("the health agent gave no lease in time") from error
    raise UnreachableError(HEALTH.not_our_protocol)


async def _watch(events: AsyncGenerator[HealthEvent, None], lease: BenchLease) -> None:
    with suppress(asyncio.CancelledError):
        try:
            async for event in events:
                lease.note(event)
        except UnreachableError as error:
            lease.spoil(f"the lease ended: {error}")
        else:
            lease.spoil("the lease ended")
