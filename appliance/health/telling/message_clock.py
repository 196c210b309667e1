"""Clock of messages: local times as people read them."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

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
