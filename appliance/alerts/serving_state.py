"""State of a profile: what is observed of it, whether it should serve, and what that means.

Whether it should serve is known from the committed names, the hold and the operations of the supervisor, never from
a document. A profile that should not serve is well, whatever its unit does: a stop by hand, a hold and another model
in its place are no fault.

============  =======================================================  ===========================
observed      when                                                     if it should serve
============  =======================================================  ===========================
serving       its unit is active, and its engine answers or was not    good
              checked
busy          it does not answer its health path, but it works         unknown
deaf          it does not answer its health path, and does not work    bad; unknown while the
                                                                       alert is no progress
loading       its unit starts, for the first time since somebody or    unknown; bad after 15 min
              something began it                                       outside an operation
reloading     its unit starts again after a crash                      bad; unknown in an operation
stopping      its unit stops                                           as loading
down          its unit has failed, is stopped, waits for a restart     bad
              or was refused its memory
unseen        neither systemd nor the supervisor told                  unknown
============  =======================================================  ===========================

Whether somebody has stopped a unit by hand is seen in the unit, as the repair of the supervisor does (`switch.repair`):

====================================================  ===========================================
unit of a committed profile                           it should serve
====================================================  ===========================================
runs, starts, stops, waits for its restart            yes
failed, and was not stopped by hand                   yes
failed at a stop that ended badly                     no
stopped after it ran, without the gate's refusal      no: by hand, or for a rival that has gone
never ran in this boot                                yes, if somebody has watched since the boot;
                                                      else not known: systemd forgets stopped units
====================================================  ===========================================
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from appliance.alerts.snapshot import (
    BoxLook,
    ProfileLook,
    UnitLook,
)
from appliance.model.alerts import Sign
from appliance.model.observed import ActiveState
from appliance.model.status import OperationRow
from appliance.status.stalls import STALLED_AFTER_S

LOADING_PATIENCE_S: Final = 900.0
"""Time for a load or a stop outside an operation, as at a boot: 40 GB of weights from a disk that reads
100 MB/s take 400 s, and a load without progress is ended by its own deadline, after 300 s."""


GIVEN_UP: Final = "start-limit-hit"
"""Result of a unit that systemd starts no more, after too many starts (systemd.unit(5))."""
_AT_REST: Final = frozenset({ActiveState.INACTIVE, ActiveState.FAILED})


class ServingState(StrEnum):
    SERVING = "serving"
    BUSY = "busy"
    DEAF = "deaf"
    LOADING = "loading"
    RELOADING = "reloading"
    STOPPING = "stopping"
    DOWN = "down"
    UNSEEN = "unseen"


_SIGNS: Final[Mapping[ServingState, Sign]] = {
    ServingState.SERVING: Sign.GOOD,
    ServingState.BUSY: Sign.UNKNOWN,
    ServingState.DEAF: Sign.BAD,
    ServingState.LOADING: Sign.UNKNOWN,
    ServingState.RELOADING: Sign.BAD,
    ServingState.STOPPING: Sign.UNKNOWN,
    ServingState.DOWN: Sign.BAD,
    ServingState.UNSEEN: Sign.UNKNOWN,
}
_UNDER_WAY: Final = frozenset({ServingState.LOADING, ServingState.STOPPING})
_OF_UNIT: Final[Mapping[ActiveState, ServingState]] = {
    ActiveState.ACTIVE: ServingState.SERVING,
    ActiveState.RELOADING: ServingState.SERVING,
    ActiveState.ACTIVATING: ServingState.LOADING,
    ActiveState.DEACTIVATING: ServingState.STOPPING,
    ActiveState.FAILED: ServingState.DOWN,
    ActiveState.INACTIVE: ServingState.DOWN,
    ActiveState.MAINTENANCE: ServingState.DOWN,
}
_OF_DOCUMENT: Final[Mapping[str | None, ServingState]] = {
    "serving": ServingState.SERVING,
    "loading": ServingState.LOADING,
    "stopping": ServingState.STOPPING,
    "stopped": ServingState.DOWN,
    "failed": ServingState.DOWN,
    "restarting": ServingState.DOWN,
    "refused": ServingState.DOWN,
}


def serving_state(profile: ProfileLook) -> ServingState:
    """Return what was observed of a profile: by systemd, else by the supervisor."""
    if profile.unit is None:
        state = _OF_DOCUMENT.get(profile.state, ServingState.UNSEEN)
    else:
        state = _state_of(profile.unit)
    if state is ServingState.SERVING and profile.answers is False:
        return ServingState.BUSY if is_working(profile) else ServingState.DEAF
    return state


def _state_of(unit: UnitLook) -> ServingState:
    if unit.active is ActiveState.ACTIVATING and unit.sub.startswith("auto-restart"):
        return ServingState.DOWN
    if unit.active is ActiveState.ACTIVATING and unit.restarts > 0:
        return ServingState.RELOADING
    return _OF_UNIT[unit.active]


def is_working(profile: ProfileLook) -> bool:
    """Tell whether bytes or CPU time of the last half minute show work on requests."""
    quiet_s = STALLED_AFTER_S if profile.quiet_s is None else profile.quiet_s
    idle_s = STALLED_AFTER_S if profile.idle_s is None else profile.idle_s
    return (profile.in_flight or 0) > 0 and min(quiet_s, idle_s) < STALLED_AFTER_S


def serving_sign(
    profile: ProfileLook,
    state: ServingState,
    *,
    operation: OperationRow | None,
    waited_s: float,
    is_stalled: bool,
) -> Sign:
    """Return whether a profile is well in this state.

    Args:
        profile: The profile.
        state: State that was observed.
        operation: Operation that runs; None: none.
        waited_s: Time for which it has been loading or stopping outside an operation.
        is_stalled: Whether it was found to make no progress, which that rule tells.
    """
    if profile.desired is None:
        return Sign.UNKNOWN
    if not profile.desired:
        return Sign.GOOD
    if state is ServingState.RELOADING and operation and profile.name in operation.profiles:
        return Sign.UNKNOWN
    if state is ServingState.DEAF and is_stalled:
        return Sign.UNKNOWN
    if state in _UNDER_WAY and waited_s >= LOADING_PATIENCE_S:
        return Sign.BAD
    return _SIGNS[state]


def is_stopped(profile: ProfileLook, look: BoxLook) -> bool:
    """Tell whether a profile is stopped, and should not serve: no process of it is left.

    A profile that systemd has given up counts as stopped only under a hold.
    """
    unit = profile.unit
    if unit is None or profile.desired is not False:
        return False
    is_given_up = unit.active is ActiveState.FAILED and unit.result == GIVEN_UP
    return unit.active in _AT_REST and (look.hold or not is_given_up)


def is_out(profile: ProfileLook) -> bool | None:
    """Tell whether a profile neither serves nor should; None: it is down, or that is not known.

    What is wrong with an engine while it serves is over when somebody has stopped it.
    """
    is_idle = serving_state(profile) in {ServingState.DOWN, ServingState.STOPPING}
    return True if is_idle and profile.desired is False else None


_REFUSED: Final = "exec-condition"


def is_desired(
    name: str,
    *,
    is_committed: bool,
    is_held: bool,
    operation: OperationRow | None,
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


def _ends(operation: OperationRow | None, name: str) -> bool:
    """Tell whether an operation stops a profile for another one."""
    return operation is not None and name in operation.profiles and name not in operation.started


def _was_left(unit: UnitLook, *, is_watched_since_boot: bool) -> bool | None:
    """Tell whether the unit was not stopped by hand; None: not known."""
    if unit.active is ActiveState.FAILED:
        return not unit.was_stopped
    if unit.active is not ActiveState.INACTIVE or unit.result == _REFUSED:
        return True
    if unit.result == "success" and unit.active_since_unix_s is None:
        return True if is_watched_since_boot else None
    return False
