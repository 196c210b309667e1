"""Whether this box reaches other machines."""

import pytest

from appliance.alerts.watchdog_rules.snapshot import BoxLook, WatchLook
from appliance.health.telling.own_network import OwnNetwork
from appliance.model.words import Mark


def look(unix_s: float, **up: bool | None) -> BoxLook:
    watches = tuple(WatchLook(name=n, mark=Mark.LIVE, is_up=u) for n, u in up.items())
    return BoxLook(unix_s=unix_s, monotonic_s=unix_s, supervisor_answers=True, watches=watches)


@pytest.mark.parametrize(
    ("up", "is_down"),
    [
        ({"a": False, "b": False, "here": True}, True),
        ({"a": False, "b": True}, False),
        ({"a": False, "b": None}, False),
        ({"a": False}, False),
        ({"here": False}, False),
        ({}, False),
    ],
)
def test_several_services_elsewhere_are_down_at_once(
    up: dict[str, bool | None], *, is_down: bool
) -> None:
    """One cause is likelier than several at one time; a single service may be down itself."""
    network = OwnNetwork(lambda: None)
    first = network.down_since(look(100.0, **up), {"a", "b"})
    assert (first is not None) is is_down
    assert network.down_since(look(110.0, **up), {"a", "b"}) == first
    assert network.down_since(look(120.0, a=True, b=True), {"a", "b"}) is None


def test_the_heartbeat_knows_it_too() -> None:
    """The earlier of both times counts."""
    network = OwnNetwork(lambda: 50.0)
    assert network.down_since(look(100.0), {"a"}) == 50.0
    assert network.down_since(look(100.0, a=False, b=False), {"a", "b"}) == 50.0
