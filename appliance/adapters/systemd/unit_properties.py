"""Meanings of unit properties that systemd does not say itself (org.freedesktop.systemd1(5))."""

from collections.abc import Mapping
from typing import Any, Final

NOT_COUNTED: Final = (1 << 64) - 1
"""Value of a counter that systemd does not keep, or cannot."""
GAVE_UP: Final = "start-limit-hit"
"""Result of a unit that systemd restarts no more."""


def gave_up(details: Mapping[str, Any]) -> bool:
    """Tell whether systemd stopped restarting a failed unit because it failed too often.

    `Result` says so only after a start by hand; after a crash it stays the crash's result. But
    then the unit has waited for its restart between the end of its process and its failed state;
    a unit that was stopped, or that nothing restarts, has not.
    """
    ended_us: int = details.get("ExecMainExitTimestampMonotonic", 0)
    waited_us: int = details.get("InactiveEnterTimestampMonotonic", 0) - ended_us
    return ended_us > 0 and waited_us >= details.get("RestartUSec", 0) > 0
