"""The health agent's clock on the virtual time of a test's event loop."""

import asyncio
from typing import Final

_UNIX_S: Final = 1_760_000_000.0


class VirtualHealthClock:
    """The protocol `HealthClock`, in tests with the mark ``virtual_time``."""

    def __init__(self) -> None:
        self.boot_id = "00000000-0000-4000-8000-000000000001"
        self.step_s = 0.0
        """Seconds by which the wall clock was set."""
        self.suspended_s = 0.0
        """Seconds for which the box was suspended."""

    def unix_s(self) -> float:
        return _UNIX_S + self.boot_s() + self.step_s

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    def boot_s(self) -> float:
        return self.monotonic_s() + self.suspended_s

    async def sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.monotonic_s()))

    async def wait(self, news: asyncio.Event, until_s: float | None) -> bool:
        try:
            async with asyncio.timeout_at(until_s):
                return await news.wait()
        except TimeoutError:
            return news.is_set()
