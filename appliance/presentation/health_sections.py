"""Sections of the status document that the health agent's answer to `speeds` adds: speeds and alerts."""

from __future__ import annotations

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
    from typing import Any, Final

    from appliance.status.document import AlertSection, SpeedSection, StatusDocument


UNRESPONSIVE: Final = "unresponsive"
"""State of a profile whose engine runs and does not answer, or makes no progress."""
_RULES: Final = ("live-down", "no-progress")
"""Rules whose alert says that an engine which runs does not answer."""


def with_alerts(
    status: Json | StatusDocument, section: AlertSection | None, *, is_fresh: bool = True
) -> StatusDocument:
    """Return a status document with the alerts, and the state of a profile whose engine does not answer.

    systemd sees that its process runs, and the supervisor the requests that it owes: whether it answers is
    judged by the health agent alone, and told by an alert.

    Args:
        status: Document of the supervisor.
        section: Alerts of the health agent; None: it does not answer.
        is_fresh: Whether they are of now; those of an agent that is gone are shown, and judge nothing.
    """
    document: StatusDocument = {**status, "alerts": section}  # type: ignore[typeddict-item]
    rows = objects_in(document, "profiles")
    judged_by = section if is_fresh else None
    facts = {text_in(row, "name"): _unanswered(row, judged_by) for row in rows}
    if not any(facts.values()):
        return document
    found: Any = [
        {**row, "state": UNRESPONSIVE, "note": facts[text_in(row, "name")]}
        if facts[text_in(row, "name")]
        else row
        for row in rows
    ]
    document["profiles"] = found
    verdict = object_in(document, "verdict")
    why = [
        f"{name} does not answer ({fact}): appliance restart {name}"
        for name, fact in facts.items()
        if fact
    ]
    is_serving = verdict.get("state") == "serving"
    judged: Any = {
        **verdict,
        **({"state": "degraded", "exit": 1} if is_serving else {}),
        "why": [*texts_in(verdict, "why"), *why],
    }
    document["verdict"] = judged
    return document


def _unanswered(row: Json, section: AlertSection | None) -> str:
    """Return the fact about an engine that runs and does not answer; empty: it answers, as far as is known."""
    if text_in(row, "state") != "serving":
        return ""
    if row.get("stall") is not None:
        return text_in(row, "note")
    begun = number_in(row, "since_unix_s") or 0.0
    for alert in alerts_of(section, text_in(row, "name")):
        is_over = number_in(alert, "ended_unix_s") is not None
        since = number_in(alert, "since_unix_s") or 0.0
        if text_in(alert, "rule") in _RULES and not is_over and since >= begun:
            return text_in(alert, "fact")
    return ""


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
