"""Spans of local time over days on which the clock is changed: planned windows and quiet hours.

A time that the clock skips counts from the moment of the change, one that it shows twice from the
first to the last. A window lasts its minutes, and until the clock shows its end: it is at most an hour
longer on two days of the year, and never shorter. Quiet hours end when the clock shows their end.
"""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from appliance.alerts.book.alert_context import AlertPolicy
from appliance.alerts.book.alert_state import PlannedWindow

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = timedelta(days=1)
_MOST_ZONES: Final = 8


def quiet_until(policy: AlertPolicy, unix_s: float) -> float | None:
    """Return the end of the quiet hours that a moment lies in; None: it lies in none."""
    if policy.quiet_from is None or policy.quiet_to is None:
        return None
    zone = _zone(policy.time_zone)
    begin, end = time.fromisoformat(policy.quiet_from), time.fromisoformat(policy.quiet_to)
    for day in _days_around(unix_s, zone):
        last_day = day if begin < end else day + _DAY
        end_s = _last(datetime.combine(last_day, end), zone)
        if _first(datetime.combine(day, begin), zone) <= unix_s < end_s:
            return end_s
    return None


def windows_at(
    windows: Sequence[PlannedWindow], policy: AlertPolicy, unix_s: float
) -> Sequence[PlannedWindow]:
    """Return the windows that a moment lies in."""
    if not windows:
        return ()
    zone = _zone(policy.time_zone)
    days = _days_around(unix_s, zone)
    return [
        window
        for window in windows
        if any(
            begin_s <= unix_s < end_s
            for day in days
            if not window.days or DAYS[day.weekday()] in window.days
            for begin_s, end_s in [_span(window, day, zone)]
        )
    ]


def _span(window: PlannedWindow, day: date, zone: tzinfo | None) -> tuple[float, float]:
    """Return the Unix times between which a window of a day lies."""
    begin = datetime.combine(day, time.fromisoformat(window.begin))
    length = timedelta(minutes=window.minutes)
    end_s = max(_last(begin + length, zone), _unix(begin, zone) + length.total_seconds())
    return _first(begin, zone), end_s


def _days_around(unix_s: float, zone: tzinfo | None) -> Sequence[date]:
    """Return the days on which a span may have begun that a moment lies in."""
    today = datetime.fromtimestamp(unix_s, zone).date()
    return today - _DAY, today


def _first(local: datetime, zone: tzinfo | None) -> float:
    """Return the first moment at which the clock shows a time, or has skipped it."""
    early_s, late_s = _unix(local, zone), _unix(local.replace(fold=1), zone)
    if early_s <= late_s:
        return early_s
    return _change_between(late_s, early_s, zone)


def _last(local: datetime, zone: tzinfo | None) -> float:
    """Return the last moment at which the clock shows a time, or that of the change if it skips it."""
    early_s, late_s = _unix(local, zone), _unix(local.replace(fold=1), zone)
    if early_s <= late_s:
        return late_s
    return _change_between(late_s, early_s, zone)


def _change_between(before_s: float, after_s: float, zone: tzinfo | None) -> float:
    """Return the moment at which the clock is changed, to the second."""
    offset = _offset(before_s, zone)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if _offset(middle_s, zone) == offset:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s


def _offset(unix_s: float, zone: tzinfo | None) -> timedelta | None:
    return datetime.fromtimestamp(unix_s, zone).astimezone(zone).utcoffset()


def _unix(local: datetime, zone: tzinfo | None) -> float:
    """Return the Unix time of a local one; without a zone the local time is that of the box."""
    return local.replace(tzinfo=zone).timestamp()


@lru_cache(_MOST_ZONES)
def _zone(name: str) -> tzinfo | None:
    """Return the zone of a name; None: the box's, also where the box does not know the name."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, OSError, ValueError):
        return None
