"""Looks at the `[[watch]]` entries: a unit of this box, or a URL that the checker asks.

A URL is asked at its own pace while it answers, and at each look while it does not: else one failure
would count as several.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from appliance.alerts.snapshot import UnitLook, WatchLook
from appliance.health.clock import HealthClock
from appliance.health.watching.periodic_reading import PeriodicReading
from appliance.model.observed import ActiveState
from appliance.model.words import Mark
from appliance.settings.tables import WatchSettings

TIMEOUT_S: Final = 4.0
"""Time for an address of another machine, which may wake a disk first."""
_PATIENCE_S: Final = 6.5
"""Time for the answer about it, with the start of the checker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlAnswer:
    """Answer of a URL."""

    is_up: bool
    detail: str = ""
    """Phrase about what was wrong; empty: nothing."""


AskUrl = Callable[[str, float], Awaitable[UrlAnswer | None]]
"""Function that asks a URL within some seconds; None: there is nobody to ask it."""


async def ask_no_url(_url: str, _timeout_s: float) -> UrlAnswer | None:
    """Return None: there is no checker."""
    return None


class WatchChecks:
    """Checker of the entries.

    Args:
        entries: As the settings have them.
        ask: Asks a URL.
        clock: Of the health agent.
    """

    def __init__(self, entries: Sequence[WatchSettings], ask: AskUrl, clock: HealthClock) -> None:
        self._entries = entries
        self._urls = {
            entry.name: PeriodicReading(
                f"the watch {entry.name}",
                partial(ask, entry.url, TIMEOUT_S),
                clock,
                every_s=entry.every,
                patience_s=_PATIENCE_S,
            )
            for entry in entries
            if entry.url is not None
        }
        self._down: frozenset[str] = frozenset()

    def units(self) -> tuple[str, ...]:
        """Return the units that are watched."""
        return tuple(entry.unit for entry in self._entries if entry.unit is not None)

    async def urls(self) -> Mapping[str, UrlAnswer | None]:
        """Return the answer of each URL by its entry's name; None: not known."""
        answers = await asyncio.gather(
            *(
                r.latest(every_s=0.0 if name in self._down else None)
                for name, r in self._urls.items()
            )
        )
        found = dict(zip(self._urls, answers, strict=True))
        self._down = frozenset(n for n, a in found.items() if a is not None and not a.is_up)
        return found

    def looks(
        self,
        units: Mapping[str, UnitLook] | None,
        urls: Mapping[str, UrlAnswer | None],
        marks: Mapping[str, str],
    ) -> tuple[WatchLook, ...]:
        """Return every entry.

        Args:
            units: Units by name; None: they could not be read.
            urls: Result of `urls`.
            marks: Marks that operators have set, by name.
        """
        return tuple(
            WatchLook(
                name=entry.name,
                mark=_mark(entry, marks),
                is_up=is_up,
                detail=detail,
                host="" if entry.url is None else urlsplit(entry.url).hostname or "",
                read_s=self._urls[entry.name].read_s if entry.name in self._urls else None,
            )
            for entry in self._entries
            for is_up, detail in (_state(entry, units, urls),)
        )


def _mark(entry: WatchSettings, marks: Mapping[str, str]) -> Mark:
    told = marks.get(entry.name, "")
    return Mark(told) if told in set(Mark) else entry.mark


def _state(
    entry: WatchSettings,
    units: Mapping[str, UnitLook] | None,
    urls: Mapping[str, UrlAnswer | None],
) -> tuple[bool | None, str]:
    """Return whether an entry is up, and what is wrong with it."""
    if entry.unit is None:
        answer = urls.get(entry.name)
        return (None, "") if answer is None else (answer.is_up, answer.detail)
    unit = None if units is None else units.get(entry.unit)
    if unit is None:
        return None, ""
    is_up = unit.active in {ActiveState.ACTIVE, ActiveState.RELOADING}
    return is_up, "" if is_up else f"{entry.unit} is {unit.active} ({unit.sub})"
