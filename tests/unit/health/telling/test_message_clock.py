"""Clock of messages: the zone of the settings, and days where a time of day is not enough."""

from appliance.health.telling.message_clock import message_clock

NOW = 1_763_356_200.0  # Mon 17 Nov 2025 05:10 UTC


def test_times_are_those_of_the_zone() -> None:
    """A moment of the last hours has no day; an older one has."""
    clock = message_clock("Europe/Rome", lambda: NOW)
    assert clock(NOW - 3600) == "05:10"
    assert clock(NOW - 86_400) == "Sun 16 Nov 06:10"
    assert message_clock("UTC", lambda: NOW)(NOW) == "05:10"


def test_the_zone_of_the_box_is_the_default() -> None:
    """Without a zone the local time of this machine is told."""
    assert len(message_clock()(NOW)) > 5
