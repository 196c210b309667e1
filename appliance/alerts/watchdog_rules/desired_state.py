"""Desired state of a profile: whether it should serve now.

Committed names, holds and operations are the supervisor's decisions; whether somebody has stopped a unit by
hand is seen in the unit, as the repair of the supervisor does (`switch.repair`):

====================================================  ===========================================
unit of a committed profile                           it should serve
====================================================  ===========================================
runs, starts, stops, waits for its restart            yes
failed, and nobody has stopped it                     yes
failed at a stop that ended badly                     no
stopped after it ran, without the gate's refusal      no: by hand, or for a rival that has gone
never ran in this boot                                yes, if somebody has watched since the boot;
                                                      else not known: systemd forgets stopped units
====================================================  ===========================================
"""

from collections.abc import Iterable
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import OperationLook, UnitLook
from appliance.model.observed import ActiveState

_REFUSED: Final = "exec-condition"
_AT_REST: Final = frozenset({ActiveState.INACTIVE, ActiveState.FAILED})


def is_desired(
    name: str,
    *,
    is_committed: bool,
    is_held: bool,
    operation: OperationLook | None,
    unit: UnitLook | None,
    rivals: Iterable[UnitLook],
    is_watched_since_boot: bool,
) -> bool | None:
    """Tell whether a profile should serve; None: not known.

    Args:
        name: The profile.
        is_committed: Whether a boot starts it.
        is_held: Whether a hold is in force, or a command runs in place of models.
        operation: Operation that runs; None: none.
        unit: Its unit; None: it could not be read.
        rivals: Units of the profiles that cannot run beside it.
        is_watched_since_boot: Whether the supervisor runs since the boot, and so keeps what units did.
    """
    if not is_committed or is_held or _ends(operation, name):
        return False
    if any(rival.active not in _AT_REST for rival in rivals):
        return False
    if unit is None:
        return None
    return _was_left(unit, is_watched_since_boot=is_watched_since_boot)


def _ends(operation: OperationLook | None, name: str) -> bool:
    """Tell whether an operation stops a profile for another one."""
    return operation is not None and name in operation.profiles and name not in operation.target


def _was_left(unit: UnitLook, *, is_watched_since_boot: bool) -> bool | None:
    """Tell whether nobody has stopped the unit by hand; None: not known."""
    if unit.active is ActiveState.FAILED:
        return not unit.was_stopped
    if unit.active is not ActiveState.INACTIVE or unit.result == _REFUSED:
        return True
    if unit.result == "success" and unit.active_since_unix_s is None:
        return True if is_watched_since_boot else None
    return False
