"""Clocks of the health agent."""

import asyncio
import time
from pathlib import Path
from typing import Final, Protocol

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class HealthClock(Protocol):
    """Clocks, and waiting by them."""

    @property
    def boot_id(self) -> str:
        """Return the kernel's name for this boot, by which monotonic times of two boots differ."""

    def unix_s(self) -> float:
        """Return the wall clock, which may be set, in seconds since the epoch."""

    def monotonic_s(self) -> float:
        """Return a clock that is never set and stands still while the box is suspended."""

    def boot_s(self) -> float:
        """Return a clock that is never set and goes on while the box is suspended."""

    async def sleep_until(self, at_s: float) -> None:
        """Wait until `monotonic_s` is `at_s`; return at once if that has passed."""

    async def wait(self, news: asyncio.Event, until_s: float | None) -> bool:
        """Wait for an event; return whether it is set, False when `monotonic_s` is `until_s`.

        Args:
            news: The event.
            until_s: End of the wait; None: never.
        """


class SystemHealthClock:
    """Clocks of this machine."""

    def __init__(self, boot_id: Path = _BOOT_ID) -> None:
        self._boot_id = boot_id.read_text(encoding="ascii").strip()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def unix_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.monotonic_s()))

    async def wait(self, news: asyncio.Event, until_s: float | None) -> bool:
        left_s = None if until_s is None else max(0.0, until_s - self.monotonic_s())
        try:
            async with asyncio.timeout(left_s):
                return await news.wait()
        except TimeoutError:
            return news.is_set()
