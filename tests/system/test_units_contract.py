"""The contract of the port `Units` on a booted systemd; in tests/contracts the fake keeps it."""

from pathlib import Path

from tests.contracts import units_contract
from tests.system.fleet import Fleet
from tests.system.rig import Box

_PYTHON = "/opt/appliance/current/bin/python"


def test_systemd_keeps_the_contract_of_units(box: Box) -> None:
    """A real systemd behaves through the adapter as the fake systemd does."""
    fleet = Fleet(box)
    fleet.pair()
    box.run("systemctl stop appliance-supervisor.service")
    program = Path(units_contract.__file__).read_text()
    box.run(_PYTHON, "-I", "-", "a", "b", stdin=program)
