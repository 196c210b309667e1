"""Five hundred profiles on a real systemd, all of which exclude one another."""

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box

PROFILES = 500
"""More than a D-Bus connection has match rules for (512) at two a unit."""


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with that many profiles on the CPU, applied."""
    fleet = Fleet(box)
    for number in range(PROFILES):
        fleet.profile(f"p{number:03d}", 9001 + number)
    fleet.apply()
    return fleet


def test_500_profiles_are_shown_and_switched(fleet: Fleet) -> None:
    """Status lists all of them and a switch works, also after systemd has read its units again."""
    assert len(fleet.status()["profiles"]) == PROFILES
    fleet.switch("p000")
    fleet.switch("p499")
    fleet.box.run("systemctl daemon-reload")
    fleet.switch("p250")
    assert fleet.active() == fleet.committed() == ["p250"]
    shown = fleet.status()
    assert [p["name"] for p in shown["profiles"] if p["state"] == "serving"] == ["p250"]
    assert shown["supervisor"]["state"] == "up"


def test_500_profiles_are_shown_without_the_supervisor(fleet: Fleet) -> None:
    """Also where no unit is in systemd's memory, which holds those of a running model's rivals."""
    fleet.box.run("systemctl stop appliance-supervisor.socket appliance-supervisor")
    fleet.box.run("systemctl daemon-reload")
    for serving in ([], ["p007"]):
        for name in serving:
            fleet.box.run(f"systemctl start appliance-backend-{name}")
        profiles = fleet.status()["profiles"]
        assert [p["name"] for p in profiles if p["state"] == "serving"] == serving
        assert {p["state"] for p in profiles if p["name"] not in serving} == {"stopped"}
        assert len(profiles) == PROFILES
