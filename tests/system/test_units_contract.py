"""The contract of the port `Units` on a booted systemd; in tests/contracts the fake keeps it."""

from pathlib import Path
from typing import Final

from appliance.model.names import unit_of
from tests.contracts import units_contract
from tests.system.fleet import Fleet
from tests.system.rig import Box

_PYTHON: Final = "/opt/appliance/current/bin/python"
_DROP_IN: Final = """[Service]
RestartSec={restart_s}s
ExecCondition=/bin/sleep 0.1
ExecStop=/bin/sleep {stop_s}
"""
"""A gate and a stop that are long enough to be seen."""
_RESTART_S: Final = {units_contract.ONE: 2.0, units_contract.RIVAL: 0.1}
"""A pause for the cases that look at it, and one for the case that crashes to the start limit."""
_STOP_S: Final = {units_contract.ONE: 0.15, units_contract.RIVAL: 1.0}
"""A stop that is waited for, and one that three requests and a look fit into on a busy machine."""


def test_systemd_keeps_the_contract_of_units(box: Box) -> None:
    """A real systemd behaves through the adapter as the fake systemd does."""
    fleet = Fleet(box)
    fleet.pair()
    for name, restart_s in _RESTART_S.items():
        folder = f"/etc/systemd/system/{unit_of(name)}.d"
        drop_in = _DROP_IN.format(restart_s=restart_s, stop_s=_STOP_S[name])
        box.write(f"{folder}/contract.conf", drop_in)
    box.run("systemctl daemon-reload; systemctl stop appliance-supervisor.service")
    program = Path(units_contract.__file__).read_text()
    done = box.run(_PYTHON, "-I", "-", stdin=program, check=False, timeout_s=300)
    assert done.returncode == 0, done.stderr
