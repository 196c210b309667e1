"""Dead man's switch over a month: boots that are no silence, and power cuts that are."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.alerts.box_messages import BoxWords
from appliance.health.heartbeat import Heartbeat
from tests.bench.life_world import DAY_S
from tests.fakes.beat_notifier import FakeBeatNotifier
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.virtual_time import VirtualTimeLoop, advance

_LONGEST_BOOT_S: Final = 300.0
_SILENT_AFTER_S: Final = 300.0
_REBOOT_TAKES_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silences:
    """Messages about the silence of a box, as a phone had them."""

    false: int
    """Messages in a month with a boot a day."""
    slowest_s: float
    """Longest time from a power cut to its message."""
    missed: int
    """Power cuts without a message."""


def live_with_boots_and_cuts(seed: int, directory: Path, days: int = 30) -> Silences:
    """Return what is told in a month with a boot a day, and of as many power cuts after it."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_Box(seed, directory).live(days))


class _Box:
    def __init__(self, seed: int, directory: Path) -> None:
        self._chance = random.Random(seed)  # noqa: S311
        self._clock = VirtualHealthClock()
        self._record = directory / "heartbeat.json"
        self._notifier: FakeBeatNotifier | None = None

    async def live(self, days: int) -> Silences:
        self._notifier = notifier = FakeBeatNotifier(now=self._clock.unix_s)
        for _ in range(days):
            async with self._beating() as heart:
                await advance(self._chance.uniform(0.2, 1.0) * DAY_S)
                await heart.end(is_shutdown=True)
            await advance(self._chance.uniform(20.0, _LONGEST_BOOT_S))
        false = len(notifier.phone())
        late_s = []
        for _ in range(days):
            async with self._beating():
                await advance(self._chance.uniform(60.0, 3600.0))
            cut_s, before = self._clock.unix_s(), len(notifier.delivered)
            await advance(3600.0)
            notifier.phone()
            late_s += [at_s - cut_s for at_s, _, _ in notifier.delivered[before:]]
        return Silences(false=false, slowest_s=max(late_s, default=0.0), missed=days - len(late_s))

    @asynccontextmanager
    async def _beating(self) -> AsyncIterator[Heartbeat]:
        """Beat meanwhile; the end is that of a power cut."""
        assert self._notifier is not None
        heart = Heartbeat(
            notifier=self._notifier,
            targets=lambda: ["phone"],
            trouble=str,
            words=BoxWords(host="garage", clock=lambda unix_s: f"{unix_s:.0f}"),
            silent_after_s=_SILENT_AFTER_S,
            reboot_takes_s=_REBOOT_TAKES_S,
            record=self._record,
            clock=self._clock,
        )
        task = asyncio.create_task(heart.run())
        try:
            yield heart
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
