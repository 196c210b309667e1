"""Why a profile is down, in a few words for its row of the status."""

from collections.abc import Mapping
from typing import Final

from appliance.domain.observed import ActiveState, ObservedUnit
from appliance.planning.endings import clean_end

_BY_HAND: Final = "stopped by hand"
_STOPPING: Final = frozenset({"stop", "hold"})
_NO_FAILURE: Final = frozenset({"done", "superseded", "interrupted"})


def ending(unit: ObservedUnit) -> str:
    """How a unit ended that was not stopped."""
    if clean := clean_end(unit):
        return clean
    if unit.result == "exit-code":
        return f"exited with status {unit.exit_status}"
    return {
        "exec-condition": "the gate refused it",
        "signal": "killed by a signal",
        "core-dump": "crashed",
        "timeout": "showed no progress in time",
        "oom-kill": "killed for want of memory",
        "start-limit-hit": "failed too often",
        "watchdog": "stopped answering its watchdog",
    }.get(unit.result, f"ended with {unit.result}")


def lost(rival: ObservedUnit) -> str:
    """How a unit was lost that had evicted another one, after its name."""
    return ending(rival) if rival.active is ActiveState.FAILED else "the gate refused"


def why_stopped(
    name: str,
    unit: ObservedUnit,
    last: Mapping[str, object] | None,
    *,
    watched: bool,
    held: bool = False,
) -> str | None:
    """Why a committed profile that nothing keeps from running is stopped.

    systemd forgets a stopped unit once nobody watches it, so what the last operation did to it
    and what the supervisor has seen have to be put together. `held`: a hold that is over has stopped
    it, so that only a repair which failed since explains it.
    """
    target = None if last is None else last.get("target")
    if last is not None and isinstance(target, (list, tuple)) and (not target or name in target):
        if last.get("outcome") not in _NO_FAILURE:
            return f"{last.get('kind')} {last.get('outcome')}: {last.get('message')}"
        if last.get("kind") in _STOPPING and not held:
            return _BY_HAND
    if held:
        return None
    if unit.result != "success":
        return f"{ending(unit)}, then stopped"
    if unit.since_unix_s > 0:
        return _BY_HAND
    return "not started since the supervisor began" if watched else None
