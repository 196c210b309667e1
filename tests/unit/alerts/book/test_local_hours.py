"""Planned windows and quiet hours, on days on which the clock is changed too."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from appliance.alerts.book.alert_book import AlertPolicy, PlannedWindow
from appliance.alerts.book.local_hours import quiet_until, windows_at

ROME = "Europe/Rome"
"""The clock goes from 2:00 to 3:00 on 28 March 2027, and from 3:00 to 2:00 on 31 October."""


def unix_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def spans_of(window: PlannedWindow, begin: str, hours: int, zone: str = ROME) -> list[str]:
    """Return the UTC times at which a window begins and ends, found by the minute."""
    policy, found, was_in = AlertPolicy(time_zone=zone), [], False
    for minute in range(hours * 60):
        moment = unix_s(begin) + 60 * minute
        is_in = bool(windows_at([window], policy, moment))
        if is_in != was_in:
            found.append(datetime.fromtimestamp(moment, UTC).strftime("%d %H:%M"))
        was_in = is_in
    return found


def window(begin: str, minutes: int, *days: str) -> PlannedWindow:
    return PlannedWindow(name="w", begin=begin, minutes=minutes, days=days)


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (window("12:00", 60), ["29 10:00", "29 11:00", "30 10:00", "30 11:00"]),
        (window("23:30", 60), ["28 22:00", "28 22:30", "29 21:30", "29 22:30", "30 21:30"]),
        (window("23:30", 60, "tue"), ["29 21:30", "29 22:30"]),
        (window("12:00", 60, "mon", "fri"), []),
    ],
)
def test_a_window_recurs_in_local_time(planned: PlannedWindow, found: list[str]) -> None:
    """Tuesday 29 and Wednesday 30 June: each day, over midnight, on the days of its beginning."""
    assert spans_of(planned, "2027-06-28T22:00", 48) == found


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (window("02:30", 60), ["28 01:00", "28 02:30"]),
        (window("02:00", 60), ["28 01:00", "28 02:00"]),
        (window("01:00", 180), ["28 00:00", "28 03:00"]),
        (window("01:30", 60), ["28 00:30", "28 01:30"]),
        (window("03:00", 60), ["28 01:00", "28 02:00"]),
    ],
)
def test_a_window_in_the_hour_that_is_skipped(planned: PlannedWindow, found: list[str]) -> None:
    """A window that begins in the missing hour begins with the change, and lasts its time at least."""
    assert spans_of(planned, "2027-03-27T20:00", 12) == found


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (window("02:30", 60), ["31 00:30", "31 02:30"]),
        (window("02:10", 30), ["31 00:10", "31 01:40"]),
        (window("01:30", 60), ["30 23:30", "31 01:30"]),
        (window("03:00", 60), ["31 02:00", "31 03:00"]),
    ],
)
def test_a_window_in_the_hour_that_comes_twice(planned: PlannedWindow, found: list[str]) -> None:
    """A window in the doubled hour lasts from the first time that the clock shows it to the last."""
    assert spans_of(planned, "2027-10-30T20:00", 12) == found


@pytest.mark.parametrize(
    ("quiet", "moment", "end"),
    [
        (("22:00", "07:00"), "2027-06-29T19:59", None),
        (("22:00", "07:00"), "2027-06-29T20:00", "2027-06-30T05:00"),
        (("22:00", "07:00"), "2027-06-30T04:59", "2027-06-30T05:00"),
        (("22:00", "07:00"), "2027-06-30T05:00", None),
        (("12:00", "13:00"), "2027-06-30T10:30", "2027-06-30T11:00"),
        (("22:00", "07:00"), "2027-03-28T00:30", "2027-03-28T05:00"),
        (("22:00", "07:00"), "2027-10-31T00:30", "2027-10-31T06:00"),
        (("22:00", "02:30"), "2027-03-28T00:59", "2027-03-28T01:00"),
        (("22:00", "02:30"), "2027-03-28T01:00", None),
        (("22:00", "02:30"), "2027-10-31T00:45", "2027-10-31T01:30"),
        (("02:30", "07:00"), "2027-03-28T01:00", "2027-03-28T05:00"),
        (("07:00", "07:00"), "2027-06-30T10:00", "2027-07-01T05:00"),
    ],
)
def test_quiet_hours_end_when_the_clock_shows_it(
    quiet: tuple[str, str], moment: str, end: str | None
) -> None:
    """Quiet hours go by the clock on the wall, on days on which it is changed too."""
    policy = AlertPolicy(time_zone=ROME, quiet_from=quiet[0], quiet_to=quiet[1])
    expected = None if end is None else unix_s(end)
    assert quiet_until(policy, unix_s(moment)) == expected


def test_there_may_be_no_quiet_hours() -> None:
    """Without a beginning or an end there are none."""
    assert quiet_until(AlertPolicy(), 0.0) is None
    assert quiet_until(AlertPolicy(quiet_from="22:00"), 0.0) is None


@pytest.fixture
def box_in_rome(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", ROME)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("box_in_rome")
@pytest.mark.parametrize("zone", ["", "No/Where", "../etc/passwd"])
def test_the_zone_of_the_box_is_used_where_none_is_known(zone: str) -> None:
    """An empty name, or one that this box has no rules for, is the zone of the box."""
    policy = AlertPolicy(time_zone=zone, quiet_from="22:00", quiet_to="02:30")
    assert quiet_until(policy, unix_s("2027-10-31T00:45")) == unix_s("2027-10-31T01:30")
    assert spans_of(window("02:30", 60), "2027-03-27T20:00", 12, zone) == ["28 01:00", "28 02:30"]
