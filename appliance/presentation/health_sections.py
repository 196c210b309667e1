"""Sections of the status document that the health agent's answer to `speeds` adds: speeds and alerts."""

from __future__ import annotations

from appliance.protocol.json_values import Json, object_in, objects_in, texts_in, whole_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.planning.status.document import AlertSection, SpeedSection


def speed_section(answer: Json) -> SpeedSection:
    """Return the section with the speeds of an answer."""
    profiles = object_in(answer, "profiles")
    return {
        "note": None,
        "trouble": texts_in(answer, "trouble"),
        "profiles": {name: object_in(profiles, name) for name in profiles},
    }


def without_speeds(note: str) -> SpeedSection:
    """Return the section of a box whose speeds are not known, for the reason in `note`."""
    return {"note": note, "trouble": [], "profiles": {}}


def alert_section(answer: Json) -> AlertSection | None:
    """Return the section with the alerts of an answer; None: the agent is of a release without alerts."""
    found = object_in(answer, "alerts")
    if not found:
        return None
    return {
        "alerts": objects_in(found, "alerts"),
        "left_off": whole_in(found, "left_off") or 0,
        "silences": objects_in(found, "silences"),
        "delivery": object_in(found, "delivery"),
    }
