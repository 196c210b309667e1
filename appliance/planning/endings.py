"""How units end, in words."""

from collections.abc import Mapping
from typing import Final

from appliance.domain.observed import ObservedUnit


def why_down(unit: ObservedUnit, refusal: str) -> str:
    """Why a unit that was started is not up, in words for a person."""
    text = f" ({unit.status_text})" if unit.status_text else ""
    if clean := clean_end(unit):
        return f"the engine {clean}{text}"
    if refusal and not unit.exit_status and unit.result in _BEFORE_THE_ENGINE:
        return refusal
    if unit.result in ENDED_BY and not unit.exit_status:
        return f"the gate ended without a word{text}"
    if unit.result in ENDED_BY:
        return f"the engine {ENDED_BY[unit.result]} {unit.exit_status}{text}"
    return _WHY.get(unit.result, unit.result) + text


def clean_end(unit: ObservedUnit) -> str | None:
    """How an engine ended by itself in a way that systemd calls clean; None: it did not.

    systemd restarts nothing that was stopped, so that what waits for its restart was not. Clean are
    status 0 and SIGHUP, SIGINT, SIGTERM, SIGPIPE; before READY systemd calls them "protocol".
    """
    if unit.result != "protocol" and not (unit.result == "success" and unit.waits_to_restart):
        return None
    how = f"signal {unit.exit_status}" if unit.exit_status else "status 0"
    return f"ended by itself with {how}"


def has_ended(unit: ObservedUnit) -> bool:
    """Whether an engine ran and ended without having been stopped; a gate's failure is none."""
    badly = unit.exit_status and unit.result not in {"success", "exec-condition"}
    return bool(badly) or clean_end(unit) is not None


_BEFORE_THE_ENGINE: Final = frozenset({"success", "exec-condition", "exit-code"})
"""Results of a run that the gate ended: the engine has no exit status."""
ENDED_BY: Final[Mapping[str, str]] = {
    "exit-code": "exited with status",
    "signal": "was killed by signal",
    "core-dump": "was killed by signal",
}
"""How the main process ended badly by itself, to be followed by its exit status."""
_WHY: Final = {
    "oom-kill": "the engine ran out of memory",
    "start-limit-hit": "it crashed too often",
    "success": "it was stopped by hand",
    "timeout": "no progress until the deadline",
}
