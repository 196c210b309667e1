"""Meanings of unit properties that systemd does not say itself (org.freedesktop.systemd1(5))."""

from collections.abc import Mapping
from typing import Any, Final

from appliance.model.observed import EXIT_LEASE_HELD, EXIT_UNFIT, is_stop

NOT_COUNTED: Final = (1 << 64) - 1
"""Value of a counter that systemd does not keep, or cannot."""
GAVE_UP: Final = "start-limit-hit"
"""Result of a unit that systemd restarts no more."""


_NO_RESTART: Final = frozenset({EXIT_UNFIT, EXIT_LEASE_HELD})


def was_stopped(details: Mapping[str, Any]) -> bool:
    """Tell whether somebody stopped a unit that is in systemd's state ``failed``.

    After a stop systemd restarts nothing (``forbid_restart``), so a unit that is to be restarted always and
    was not has been stopped. Where a profile asks for other restarts, a stop shows in the order of
    times: it takes the unit out of the active state before the main process ends.
    """
    result, status = details.get("Result", "success"), details.get("ExecMainStatus", 0)
    if result in {GAVE_UP, "resources"} or gave_up(details):
        return False
    if result == "exit-code" and status in _NO_RESTART:
        return False
    return details.get("Restart") == "always" or is_stop(
        active_exit_s=details.get("ActiveExitTimestampMonotonic", 0),
        inactive_exit_s=details.get("InactiveExitTimestampMonotonic", 0),
        main_exit_s=details.get("ExecMainExitTimestampMonotonic", 0),
    )


def gave_up(details: Mapping[str, Any]) -> bool:
    """Tell whether systemd stopped restarting a failed unit because it failed too often.

    `Result` says so only after a start by hand; after a crash it stays the crash's result. But
    then the unit has waited for its restart between the end of its process and its failed state;
    a unit that was stopped, or that nothing restarts, has not.
    """
    ended_us: int = details.get("ExecMainExitTimestampMonotonic", 0)
    waited_us: int = details.get("InactiveEnterTimestampMonotonic", 0) - ended_us
    return ended_us > 0 and waited_us >= details.get("RestartUSec", 0) > 0
