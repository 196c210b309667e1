"""Readings of sources that may fail: bounded in time, not too often, and told when that changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from appliance.health.clock import HealthClock
from appliance.model.errors import ApplianceError

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 3.0
_EARLY_S: Final = 1.0
"""Time by which a look may come too early and still read: else it would wait for a whole further look."""
T = TypeVar("T")


class PeriodicReading(Generic[T]):
    """Reading of one source.

    Args:
        what: What is read, for the log: ``the units``.
        read: Reads it; raises `ApplianceError`, OSError or ValueError. None: it cannot be seen.
        clock: Of the health agent.
        every_s: Age up to which the last reading serves; 0: each is new.
        patience_s: Longest time of a reading.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[], Awaitable[T | None]],
        clock: HealthClock,
        *,
        every_s: float = 0.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._what = what
        self._read = read
        self._clock = clock
        self._every_s = every_s
        self._patience_s = patience_s
        self._last: T | None = None
        self._last_s = float("-inf")
        self._fault = ""

    @property
    def read_s(self) -> float:
        """Time at which the last reading began; minus infinity: there was none."""
        return self._last_s

    async def latest(self, *, every_s: float | None = None) -> T | None:
        """Return the reading of now, or the last one while it serves; None: it failed.

        Args:
            every_s: Age up to which the last reading serves this time; None: the usual one.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s < (self._every_s if every_s is None else every_s) - _EARLY_S:
            return self._last
        self._last_s = now_s
        fault = ""
        try:
            async with asyncio.timeout(self._patience_s):
                self._last = await self._read()
        except TimeoutError:
            self._last, fault = None, f"no answer in {self._patience_s:g} s"
        except (ApplianceError, OSError, ValueError) as error:
            self._last, fault = None, str(error) or type(error).__name__
        self._tell(fault)
        return self._last

    def _tell(self, fault: str) -> None:
        if fault and not self._fault:
            _log.warning("%s cannot be observed: %s", self._what, fault)
        elif self._fault and not fault:
            _log.info("%s can be observed again", self._what)
        self._fault = fault
