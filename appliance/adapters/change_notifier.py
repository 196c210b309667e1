"""Tell any number of waiters that something changed, without losing a change."""

import asyncio


class PulseChange:
    """One waiter's view of a `Pulse`, taken before it looked."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, timeout_s: float) -> bool:
        """Whether the pulse beat since this was taken; False: `timeout_s` passed."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class Pulse:
    """A broadcast event that re-arms itself."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def beat(self) -> None:
        """Wake everybody who took a change before now."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def change(self) -> PulseChange:
        """The next beat."""
        return PulseChange(self._event)
