"""Gates: why targets are not told of an alert now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.alerts.book.alert_rules import AlertTerms
from appliance.alerts.book.alert_state import AlertState, DeliveryGate, PlannedWindow
from appliance.model.alerts import Severity
from appliance.model.words import Mark

BOX_NAME: Final = "box"
"""Name of the box among the subjects of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindows:
    """Planned windows of one moment, by subject."""

    everything: str = ""
    """Name of one that is about everything; empty: none is."""
    by_subject: Mapping[str, str]

    def of(self, name: str) -> str:
        """Return the name of a window that is about a subject; empty: none is."""
        return self.everything or self.by_subject.get(name or BOX_NAME, "")


def open_windows(windows: Sequence[PlannedWindow]) -> OpenWindows:
    """Return the windows of a moment by subject."""
    return OpenWindows(
        everything=next((window.name for window in windows if not window.subjects), ""),
        by_subject={name: window.name for window in windows for name in window.subjects},
    )


def gates_of(
    state: AlertState,
    terms: AlertTerms,
    *,
    mark: Mark,
    silence: str,
    window: str,
    is_quiet: bool,
) -> Mapping[DeliveryGate, str]:
    """Return the gates that apply to an alert in their order, each with its phrase.

    Args:
        state: State of the alert.
        terms: Terms of its rule.
        mark: Mark of its subject.
        silence: Phrase about the silence of its subject; empty: there is none.
        window: Name of the planned window that is about it; empty: there is none.
        is_quiet: Whether these are quiet hours.
    """
    found: dict[DeliveryGate, str] = {}
    if mark is Mark.STANDBY and terms.least_mark is Mark.LIVE:
        found[DeliveryGate.MARK] = "standby"
    if state.severity is Severity.INFO:
        found[DeliveryGate.INFO] = "of no urgency"
    if silence:
        found[DeliveryGate.SILENCE] = silence
    if window:
        found[DeliveryGate.WINDOW] = f"planned window {window}"
    if state.inhibited_by:
        found[DeliveryGate.INHIBITION] = f"inhibited by {state.inhibited_by}"
    if state.acked_unix_s is not None:
        found[DeliveryGate.ACK] = f"acked by {state.acked_by}"
    if state.flapping:
        found[DeliveryGate.FLAPPING] = "flapping"
    if is_quiet and state.severity is not Severity.CRITICAL:
        found[DeliveryGate.QUIET_HOURS] = "quiet hours"
    return found
