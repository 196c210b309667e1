"""Takes one lock out of a box, to show that a run without it reports violations."""

import re
from typing import Final

from tests.chaos.scenario import LEASES, MODELS
from tests.system.rig import Box

KINDS: Final = ("gate", "conflicts", "lease")
_LEASES: Final = " ".join(f"{LEASES}/{name}" for name in ("gpu-all", "gpu-0", "gpu-1", "cpu"))
_LEASE_FILES: Final = "".join(f"f {path} 0640 root appliance-backend\n" for path in _LEASES.split())
"""The gate makes the lease files: without it, something else has to."""
_CUTS: Final = {
    "gate": (r"(?m)^ExecCondition=.*\n", ""),
    "conflicts": (r"(?m)^(Conflicts|After)=.*\n", ""),
    "lease": (r" --lease \S+", ""),
}


def sabotage(box: Box, kind: str) -> None:
    """Edit the installed units, as somebody would who means well.

    Args:
        box: A booted box whose profiles are applied.
        kind: ``gate``: no gate stands before a start. ``conflicts``: starting one model stops no
            other. ``lease``: nobody takes or looks at a lock.
    """
    pattern, replacement = _CUTS[kind]
    for name in MODELS:
        path = box.root / f"etc/systemd/system/appliance-backend-{name}.service"
        text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
        if not count:
            raise ValueError(f"nothing to take out of {path.name} for {kind}")
        path.write_text(text, encoding="utf-8")
    if kind == "gate":
        box.write("/usr/local/lib/tmpfiles.d/leases.conf", _LEASE_FILES)
        box.run("systemd-tmpfiles --create leases.conf")
    box.run("systemctl daemon-reload; sync")
