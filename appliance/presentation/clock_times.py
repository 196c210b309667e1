"""Times as the reader's clock shows them, and as programs read them."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

LATEST_UNIX_S: Final = 1e11
"""Year 5138: a later time is damage, and beyond it the C library has no calendar."""


def local_minute(unix_s: float) -> str:
    """Return day and minute, with the year where it is another one: ``Tue 17 Nov 04:10``."""
    moment = time.localtime(_told(unix_s))
    is_this_year = moment.tm_year == time.localtime().tm_year
    return time.strftime("%a %d %b %H:%M" if is_this_year else "%a %d %b %Y %H:%M", moment)


def utc_second(unix_s: float) -> str:
    """Return a time of UTC for programs: ``2026-11-17T04:10:00Z`` (RFC 3339)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_told(unix_s)))


def _told(unix_s: float) -> float:
    return max(0.0, min(unix_s, LATEST_UNIX_S))
