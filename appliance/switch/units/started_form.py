"""Form in which a unit's process was started: the settings that only a new process obeys.

A running model keeps its form until it is restarted, whoever changes the unit: apply, an editor, `systemctl
edit`. Two forms are compared by their digests.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from appliance.switch.units.drift import drop_in
from appliance.switch.units.text import sections_of

_READ_ANEW: Final = frozenset(
    {
        "ExecCondition",
        "Restart",
        "RestartMaxDelaySec",
        "RestartPreventExitStatus",
        "RestartSec",
        "RestartSteps",
        "TimeoutStartFailureMode",
        "TimeoutStartSec",
        "TimeoutStopSec",
    }
)
"""Keys of [Service] that a daemon-reload puts in force, as it does everything in [Unit]."""


def start_digest(unit: str, drop_ins: Iterable[str] = ()) -> str:
    """Return the digest of the form in which a unit would be started now.

    Args:
        unit: Text of the unit.
        drop_ins: Texts of its drop-ins, in systemd's order.
    """
    text = unit
    for one in drop_ins:
        text = drop_in(text, one)
    services = (section for section in sections_of(text) if section.name == "Service")
    entries = (entry for service in services for entry in service.entries)
    # Sorted by key alone: the order of the values of one key means something.
    kept = sorted((e for e in entries if e[0] not in _READ_ANEW), key=lambda entry: entry[0])
    return sha256("\n".join(f"{key}={value}" for key, value in kept).encode()).hexdigest()
