"""Clocks of the health agent."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol
from zoneinfo import ZoneInfo

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


class TrialClock:
    """Clock on which all times pass faster by a factor, from its making on, for trials and tests.

    Args:
        clock: Clocks of this machine.
        speed: The factor.
    """

    def __init__(self, clock: HealthClock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._began_s = clock.monotonic_s()

    @property
    def boot_id(self) -> str:
        return self._clock.boot_id

    def unix_s(self) -> float:
        return self._clock.unix_s() + self._ahead_s()

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s() + self._ahead_s()

    def boot_s(self) -> float:
        return self._clock.boot_s() + self._ahead_s()

    async def sleep_until(self, at_s: float) -> None:
        await self._clock.sleep_until(self._to_machine(at_s))

    async def wait(self, news: asyncio.Event, until_s: float | None) -> bool:
        return await self._clock.wait(news, None if until_s is None else self._to_machine(until_s))

    def _ahead_s(self) -> float:
        return (self._clock.monotonic_s() - self._began_s) * (self._speed - 1)

    def _to_machine(self, at_s: float) -> float:
        return self._began_s + (at_s - self._began_s) / self._speed


_RECENT_S: Final = 12 * 3600.0
"""Age up to which a time of day says which day is meant."""


def message_clock(zone: str = "", now: Callable[[], float] = time.time) -> Callable[[float], str]:
    """Return a function that gives the local time of a moment: ``04:10``, or ``Tue 17 Nov 04:10``.

    Args:
        zone: IANA name; empty: the zone of this machine.
        now: Wall clock.
    """
    place = ZoneInfo(zone) if zone else None

    def text(unix_s: float) -> str:
        moment = datetime.fromtimestamp(unix_s, place)
        is_recent = abs(now() - unix_s) < _RECENT_S
        return moment.strftime("%H:%M" if is_recent else "%a %d %b %H:%M")

    return text
