"""State word of a profile, from its unit: what is true now, and whether somebody asked for it.

A state word is told to people, to clients of the gateway (``/v1/models``) and to the health agent, so
there is one table of them. `failed` of systemd is none of these words: it says that the last run left
a result, also where somebody stopped the unit and its engine had to be killed.

========================================  ==============  ========  ===========================
unit                                      state           wanted    told of it
========================================  ==============  ========  ===========================
active, reloading                         ``serving``     yes
activating, and waits for its restart     ``restarting``  no        how its engine or gate ended
activating                                ``loading``     yes       restarts before it
a job waits, and it is down               ``loading``     yes
deactivating                              ``stopping``    yes       a stop past its deadline
deactivating after its process ended      ``stopping``    no        how its process ended
by itself, or was killed
down, by the gate                         ``refused``     no        the gate's sentence
failed, after a stop                      ``stopped``     yes       what the stop took
failed otherwise                          ``failed``      no        how it ended
inactive, in maintenance                  ``stopped``     yes
========================================  ==============  ========  ===========================
"""

from dataclasses import dataclass
from typing import Final

from appliance.model.observed import ActiveState, ObservedUnit
from appliance.model.status import ProfileState
from appliance.switch.outcomes import (
    crash_text,
    end_text,
    restart_text,
    stopped_run_text,
)

_BY_GATE: Final = "exec-condition"
_OVERDUE: Final = "does not end by the deadline of its stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVerdict:
    """State of a unit for people and clients."""

    state: ProfileState
    is_wanted: bool
    """Whether the unit is in this state because somebody asked for it; False: its engine, its gate or systemd
    ended it."""
    text: str = ""
    """Text on the cause, to follow the profile's name; empty: nothing to tell."""


def unit_verdict(unit: ObservedUnit, *, refusal: str | None = None) -> UnitVerdict:
    """Return the verdict on a unit; `refusal`: the gate's last sentence if it was a refusal."""
    if unit.waits_to_restart:
        return UnitVerdict(state="restarting", is_wanted=False, text=refusal or crash_text(unit))
    match unit.active:
        case ActiveState.ACTIVE | ActiveState.RELOADING:
            return UnitVerdict(state="serving", is_wanted=True)
        case ActiveState.ACTIVATING:
            text = f"after a crash; {restart_text(unit.restarts)}" if unit.restarts else ""
            return UnitVerdict(state="loading", is_wanted=True, text=text)
        case ActiveState.DEACTIVATING:
            return _ending(unit)
        case _:
            return _down(unit, refusal)


def _ending(unit: ObservedUnit) -> UnitVerdict:
    if unit.result == "timeout" and unit.was_ready:
        return UnitVerdict(state="stopping", is_wanted=True, text=_OVERDUE)
    is_wanted = unit.result == "success"
    return UnitVerdict(
        state="stopping", is_wanted=is_wanted, text="" if is_wanted else end_text(unit)
    )


def _down(unit: ObservedUnit, refusal: str | None) -> UnitVerdict:
    if unit.has_job:
        return UnitVerdict(state="loading", is_wanted=True)
    if unit.active is ActiveState.FAILED:
        if unit.was_stopped:
            return UnitVerdict(state="stopped", is_wanted=True, text=stopped_run_text(unit))
        return UnitVerdict(state="failed", is_wanted=False, text=refusal or end_text(unit))
    if unit.active is ActiveState.INACTIVE and (refusal or unit.result == _BY_GATE):
        return UnitVerdict(state="refused", is_wanted=False, text=refusal or end_text(unit))
    return UnitVerdict(state="stopped", is_wanted=True)
