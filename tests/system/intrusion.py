"""Intruder who has taken over one of our processes, in exactly the sandbox of its unit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.system.fleet import Fleet

_PROGRAM: Final = "/usr/local/lib/intruder.py"
_UNITS: Final = "/run/systemd/system"
_KINDS: Final = {
    "appliance-auditor": "auditor",
    "appliance-checker": "checker",
    "appliance-gateway": "gateway",
    "appliance-health": "health",
    "appliance-web": "web",
}


def intrude(fleet: Fleet, unit: str, engine: str, *settings: str) -> Mapping[str, str]:
    """Return the findings of `intruder.py` in a copy of a unit: "done" or an error, by attempt.

    Args:
        fleet: the box.
        unit: a service of ours, without its suffix, whose program is replaced.
        engine: the profile whose engine is tried.
        settings: further lines for the [Service] section.
    """
    box = fleet.box
    box.write(_PROGRAM, Path(__file__).with_name("intruder.py").read_text())
    pids = [*main_pids(fleet, "appliance-supervisor", f"appliance-backend-{engine}")]
    kind = _KINDS.get(unit, "engine")
    drop_in = [
        "[Service]",
        "Type=oneshot",
        "Restart=no",
        "WatchdogSec=0",
        "ExecReload=",
        "ExecCondition=",
        "ExecStart=",
        f"ExecStart=/usr/bin/python3 -I {_PROGRAM} {kind} {' '.join(pids)}",
        "StandardOutput=truncate:/run/intruder.json",
        *settings,
        "",
    ]
    box.run(
        f"cp $(systemctl show -P FragmentPath {unit}) {_UNITS}/intruder.service;"
        f" mkdir -p {_UNITS}/intruder.service.d; cat >{_UNITS}/intruder.service.d/intruder.conf;"
        " systemctl daemon-reload; systemctl start intruder",
        stdin="\n".join(drop_in),
    )
    found: Mapping[str, str] = json.loads(box.run("cat /run/intruder.json").stdout)
    return found


def main_pids(fleet: Fleet, *units: str) -> list[str]:
    """The main process of each unit."""
    return fleet.box.run("systemctl", "show", "-P", "MainPID", *units).stdout.split()


def succeeded(found: Mapping[str, str]) -> set[str]:
    """The ways that led somewhere."""
    return {way for way, how in found.items() if how == "done"}


def described(found: Mapping[str, str]) -> str:
    """Return all findings as text, for a test that fails."""
    return "\n".join(f"{way}: {how}" for way, how in found.items())
