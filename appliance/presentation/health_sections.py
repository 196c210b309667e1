"""Sections of the status document that the health agent's answer to `speeds` adds: speeds and alerts."""

from __future__ import annotations

from appliance.model.status import AlertSection, SpeedSection
from appliance.presentation.alert_texts import alerts_of
from appliance.wire.json_values import (
    Json,
    number_in,
    object_in,
    objects_in,
    text_in,
    texts_in,
    whole_in,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.model.status import ProfileRow, StatusDocument


UNRESPONSIVE: Final = "unresponsive"
"""State of a profile whose engine runs and does not answer, or makes no progress."""
_RULES: Final = ("live-down", "no-progress")
"""Rules whose alert says that an engine which runs does not answer."""


def with_alerts(
    status: StatusDocument, section: AlertSection | None, *, is_fresh: bool = True
) -> StatusDocument:
    """Return a status document with the alerts, and the state of a profile whose engine does not answer.

    systemd sees that its process runs, and the supervisor the requests that it owes: whether it answers is
    judged by the health agent alone, and told by an alert.

    Args:
        status: Document of the supervisor.
        section: Alerts of the health agent; None: it does not answer.
        is_fresh: Whether they are of now; those of an agent that is gone are shown, and judge nothing.
    """
    judged_by = section if is_fresh else None
    facts = {row.name: _unanswered(row, judged_by) for row in status.profiles}
    if not any(facts.values()):
        return status.replaced(alerts=section)
    verdict = status.verdict
    why = [
        f"{name} does not answer ({fact}): appliance restart {name}"
        for name, fact in facts.items()
        if fact
    ]
    worse = {"state": "degraded", "exit": 1} if verdict.state == "serving" else {}
    return status.replaced(
        alerts=section,
        profiles=[
            row.replaced(state=UNRESPONSIVE, note=facts[row.name]) if facts[row.name] else row
            for row in status.profiles
        ],
        verdict=verdict.replaced(**worse, why=[*verdict.why, *why]),
    )


def _unanswered(row: ProfileRow, section: AlertSection | None) -> str:
    """Return the fact about an engine that runs and does not answer; empty: it answers, as far as is known."""
    if row.state != "serving":
        return ""
    if row.stall is not None:
        return row.note or ""
    begun = row.since_unix_s or 0.0
    for alert in alerts_of(section, row.name):
        is_over = number_in(alert, "ended_unix_s") is not None
        since = number_in(alert, "since_unix_s") or 0.0
        if text_in(alert, "rule") in _RULES and not is_over and since >= begun:
            return text_in(alert, "fact")
    return ""


def speed_section(answer: Json) -> SpeedSection:
    """Return the section with the speeds of an answer."""
    profiles = object_in(answer, "profiles")
    return SpeedSection(
        trouble=texts_in(answer, "trouble"),
        profiles={name: object_in(profiles, name) for name in profiles},
    )


def without_speeds(note: str) -> SpeedSection:
    """Return the section of a box whose speeds are not known, for the reason in `note`."""
    return SpeedSection(note=note)


def alert_section(answer: Json) -> AlertSection | None:
    """Return the section with the alerts of an answer; None: the agent is of a release without alerts."""
    found = object_in(answer, "alerts")
    if not found:
        return None
    return AlertSection(
        alerts=objects_in(found, "alerts"),
        left_off=whole_in(found, "left_off") or 0,
        silences=objects_in(found, "silences"),
        delivery=object_in(found, "delivery"),
    )
