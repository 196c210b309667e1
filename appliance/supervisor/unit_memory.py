"""Memory of the units' details for people, so that a status need not ask systemd.

What was seen holds until systemd signals anything about one of the units. What no signal tells (a
unit file that was edited or removed by hand, a result that `systemctl reset-failed` cleared) is as
old as the last look. Looks are for people: there are none from a minute after a status on, and
the first status afterwards looks for itself. A program that scrapes the status, every 15 s say, causes no
looks but its own, which it needs when the last one is old. Looks take at most a fiftieth of the time: with a few profiles
there is one every 5 s, with 500 one every 8 s. While an operation runs, everything changes: then a status
looks. A process that watches the box all day causes a look when the supervisor's own, without details,
has found something else, and else one a minute at most: systemd signals also what is nothing new.
"""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from appliance.model.errors import UnitError
from appliance.model.observed import Observed
from appliance.model.profile import Catalogue
from appliance.system.ports import Clock, Units

WATCHED_S: Final = 60.0
"""Time after a status during which another one is expected."""
_KNOWN_S: Final = 300.0
"""Age of a look that is good enough for a process where the supervisor's own looks find the same."""
_UNSURE_S: Final = 60.0
"""The same after a signal."""
_EVERY_S: Final = 5.0
_TIMES: Final = 50.0
"""Ratio of the pause after a look to the duration of that look."""


class StatusReader(Enum):
    """Reader of a status, by what is read for it."""

    PERSON = auto()
    """Is likely to look again: units, gateway and engines are read for a minute."""
    SCRAPER = auto()
    """Program that asks now and then: what is old is read once."""
    WATCHER = auto()
    """Process that is told each change all day: nothing is read but what has changed."""


class UnitMemory:
    """Memory of the last detailed look at the units.

    Args:
        units: What is looked at.
        clock: For the age of the look.
    """

    def __init__(self, units: Units, clock: Clock) -> None:
        self._units = units
        self._clock = clock
        self._observed = Observed(units={})
        self._names: frozenset[str] | None = None
        """Profiles that were observed; None: none yet."""
        self._glance: Observed | None = None
        """Look without details before this one; None: the look was for no watcher."""
        self._signals = 0
        self._began_s = 0.0
        self._pause_s = _EVERY_S
        self._watched_s = float("-inf")

    async def run(
        self, catalogue: Callable[[], Catalogue], is_operating: Callable[[], bool]
    ) -> None:
        """Observe again and again while an operator reads the status and no operation runs."""
        while True:
            watched = self._clock.monotonic_s() - self._watched_s < WATCHED_S
            if watched and not is_operating():
                with contextlib.suppress(UnitError):  # the supervisor's own look reports the error
                    await self._look(catalogue())
            await asyncio.sleep(self._pause_s)

    async def latest(
        self,
        catalogue: Catalogue,
        reader: StatusReader = StatusReader.PERSON,
        *,
        glance: Observed | None = None,
    ) -> Observed:
        """Return the units of `catalogue` as they are. Raises `UnitError`.

        Args:
            catalogue: The applied profiles.
            reader: Reader of the status.
            glance: The supervisor's last look, without details, for a `WATCHER`; None for others.
        """
        if reader is StatusReader.PERSON:
            self._watched_s = self._clock.monotonic_s()
        if glance is None:
            holds = self._holds(catalogue)
        else:
            holds = self._has_details_of(glance, catalogue)
        return self._observed if holds else await self._look(catalogue, glance)

    def _holds(self, catalogue: Catalogue) -> bool:
        return (
            self._names == frozenset(catalogue)
            and self._signals == self._units.signals
            and self._clock.monotonic_s() - self._began_s <= 2 * self._pause_s
        )

    def _has_details_of(self, glance: Observed, catalogue: Catalogue) -> bool:
        is_sure = self._signals == self._units.signals
        age_s = self._clock.monotonic_s() - self._began_s
        return (
            self._names == frozenset(catalogue)
            and self._glance == glance
            and age_s <= (_KNOWN_S if is_sure else _UNSURE_S)
        )

    async def _look(self, catalogue: Catalogue, glance: Observed | None = None) -> Observed:
        # Counted before the look: a change that is signalled during it makes the next one due.
        signals, began_s = self._units.signals, self._clock.monotonic_s()
        observed = self._observed = await self._units.observe(catalogue, full=True)
        self._names, self._glance = frozenset(catalogue), glance
        self._signals, self._began_s = signals, began_s
        self._pause_s = max(_EVERY_S, _TIMES * (self._clock.monotonic_s() - began_s))
        return observed
