"""Desk for leases of the box: one bench at a time, in which no probe begins."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from appliance.health.clock import HealthClock
from appliance.model.errors import BusyError, LaneBusyError
from appliance.system.ports import LaneLease, ProbeLane

_PATIENCE_S: Final = 20.0
"""Time for a probe that is under way to end, and for a moment without requests."""
_TRY_AGAIN_S: Final = 0.5


class LeaseDesk:
    """Desk for leases.

    Args:
        lane: Lane of the gateway, which keeps the probes of everybody away.
        clock: For the wait.
    """

    def __init__(self, lane: ProbeLane, clock: HealthClock) -> None:
        self._lane = lane
        self._clock = clock
        self.on_change: Callable[[], None] = lambda: None
        """Called when a lease is wanted, and when it has ended."""
        self.holder: str | None = None
        """Text of who has the lease, or waits for it, for people; None: nobody."""

    def is_leased(self) -> bool:
        """Tell whether somebody has the lease, or waits for it."""
        return self.holder is not None

    @asynccontextmanager
    async def lease(
        self, names: Sequence[str], *, exclusive: bool, text: str
    ) -> AsyncIterator[LaneLease]:
        """Take the lease, and give it back at the end of the block.

        Args:
            names: Profiles that the bench asks.
            exclusive: Whether requests of others to these profiles wait.
            text: What it is for, for people.

        Raises:
            BusyError: somebody has it, or the gateway gives none for a while.
        """
        if self.holder is not None:
            raise BusyError(f"the box is leased ({self.holder}): try again when that has ended")
        self.holder = text or "a bench"
        self.on_change()
        try:
            async with AsyncExitStack() as stack:
                yield await self._entered(stack, names, exclusive=exclusive)
        finally:
            self.holder = None
            self.on_change()

    async def _entered(
        self, stack: AsyncExitStack, names: Sequence[str], *, exclusive: bool
    ) -> LaneLease:
        """Take a lease of the lane, trying for a while. Raises `BusyError`."""
        until_s = self._clock.monotonic_s() + _PATIENCE_S
        while True:
            try:
                return await stack.enter_async_context(self._lane.lease(names, exclusive=exclusive))
            except LaneBusyError as error:
                now_s = self._clock.monotonic_s()
                if now_s >= until_s:
                    raise BusyError(f"the gateway gives no lease: {error}") from error
            await self._clock.sleep_until(now_s + _TRY_AGAIN_S)
