"""How units end, in words."""

from collections.abc import Mapping
from typing import Final

from appliance.domain.observed import ObservedUnit


def why_down(unit: ObservedUnit, refusal: str) -> str:
    """Why a unit that was started is not up, in words for a person."""
    if refusal and not unit.exit_status and unit.result in _BEFORE_THE_ENGINE:
        return refusal
    text = f" ({unit.status_text})" if unit.status_text else ""
    if unit.result in ENDED_BY and not unit.exit_status:
        return f"the gate ended without a word{text}"
    if unit.result in ENDED_BY:
        return f"the engine {ENDED_BY[unit.result]} {unit.exit_status}{text}"
    return _WHY.get(unit.result, unit.result) + text


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
