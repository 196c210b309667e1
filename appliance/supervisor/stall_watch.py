"""Watch over serving engines for one that makes no progress (`status.stalls`)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from appliance.model.errors import UnitError
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.model.observed import Observed
from appliance.model.profile import Catalogue
from appliance.status.stalls import Activity, Look, Stall, seen, stall, stall_words
from appliance.system.ports import Clock, Units

_log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
ReadStats = Callable[[], Awaitable[Mapping[str, object] | None]]


class StallWatch:
    """Watch that compares two samples of each engine; sends nothing to the engines.

    Args:
        look: The applied profiles, and their units at the supervisor's last observation.
        units: Tells how much CPU time each has used.
        stats: Reads the gateway's figures, which tell which requests wait for bytes.
        clock: For the time between two looks.
    """

    def __init__(
        self,
        look: Callable[[], tuple[Catalogue, Observed]],
        *,
        units: Units,
        stats: ReadStats,
        clock: Clock,
    ) -> None:
        self._units = units
        self._read_stats = stats
        self._clock = clock
        self._look = look
        self._activities: dict[str, Activity] = {}
        self._stalls: dict[str, Stall] = {}

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self.turn()
            await asyncio.sleep(EVERY_S)

    def stalls(self) -> Mapping[str, Stall]:
        """Return the profiles that make no progress, as of the last sample."""
        return dict(self._stalls)

    async def turn(self) -> None:
        """Take one sample of every profile that serves."""
        catalogue, observed = self._look()
        serving = [name for name in observed.serving() if name in catalogue]
        stats = await self._read_stats() if serving else None
        profiles = (stats or {}).get("profiles")
        figures = profiles if isinstance(profiles, Mapping) else {}
        activities: dict[str, Activity] = {}
        for name in serving:
            try:
                cpu_s = await self._units.cpu_s(name)
            except UnitError:
                cpu_s = None  # the supervisor's own observation reports it
            look = Look(at_s=self._clock.monotonic_s(), cpu_s=cpu_s)
            activities[name] = seen(self._activities.get(name), look)
        found = {
            name: one
            for name, activity in activities.items()
            if (one := stall(activity, figures.get(name) or {})) is not None
        }
        for name in found.keys() - self._stalls.keys():
            stalled = event_fields(JournalEvent.PROFILE_STALLED, profiles=(name,))
            _log.warning("%s: %s", name, stall_words(found[name]), extra=stalled)
        for name in self._stalls.keys() - found.keys():
            _log.info("%s: makes progress again", name)
        self._activities, self._stalls = activities, found
