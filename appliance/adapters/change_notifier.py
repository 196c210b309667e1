"""Notifier of changes: wakes every waiter, and loses no change between a look and a wait."""

import asyncio


class AwaitedChange:
    """Next change as one waiter awaits it: taken from a `ChangeNotifier` before the look."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, timeout_s: float) -> bool:
        """Tell whether something changed since this was taken; False: `timeout_s` passed."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True

    def has_happened(self) -> bool:
        """Tell whether something has changed since this was taken."""
        return self._event.is_set()


class ChangeNotifier:
    """Broadcast event that re-arms itself."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake every waiter that took a change before this call."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def change(self) -> AwaitedChange:
        """Return the next change, to be awaited after a look."""
        return AwaitedChange(self._event)
