"""Alerts, silences and what is known of their delivery."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appliance.model.status import AlertSection
from appliance.presentation.alert_texts import (
    alert_severity,
    alert_text,
    silence_text,
    subject_name,
)
from appliance.wire.json_values import Json, text_in, texts_in

_SEVERITIES: Final = frozenset({"critical", "warning", "info"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCard:
    """Alert that is not over."""

    id: str
    subject: str
    text: str
    severity: str
    """Class of the style sheet too."""
    details: tuple[str, ...]
    likely: str
    command: str
    """Command to type; empty: none."""
    is_acked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsView:
    """Alerts and silences of the box."""

    cards: tuple[AlertCard, ...] = ()
    silences: tuple[str, ...] = ()
    note: str = ""
    """Sentence where they are not known, or not all are shown; empty: they are."""


def alerts_view(section: AlertSection | None, *, now: float) -> AlertsView:
    """Return the alerts of a status document."""
    if section is None:
        return AlertsView(note="Not known: the health agent does not answer.")
    more = section.left_off
    return AlertsView(
        cards=tuple(_cards(section, now)),
        silences=tuple(silence_text(silence, now) for silence in section.silences),
        note=f"{more} more: appliance alerts" if more else "",
    )


def _cards(section: AlertSection, now: float) -> Iterable[AlertCard]:
    for alert in section.alerts:
        yield AlertCard(
            id=text_in(alert, "alert"),
            subject=subject_name(text_in(alert, "subject")),
            text=alert_text(alert, now),
            severity=_severity(alert),
            details=tuple(texts_in(alert, "details")),
            likely=text_in(alert, "likely"),
            command=text_in(alert, "command"),
            is_acked=bool(text_in(alert, "acked_by")),
        )


def _severity(alert: Json) -> str:
    """Return the severity; another release's is none of the style sheet's classes."""
    found = alert_severity(alert)
    return found if found in _SEVERITIES else "info"
