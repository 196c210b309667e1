"""Lines about alerts on the status screen."""

from __future__ import annotations

from appliance.cli.terminal import Style, Terminal
from appliance.presentation.alert_texts import alert_severity, alert_text, alerts_of, subject_name
from appliance.wire.json_values import Json, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Final

    from appliance.status.document import AlertSection

STYLES: Final = {"critical": Style.RED, "warning": Style.YELLOW}


def profile_alert_lines(
    section: AlertSection | None, name: str, terminal: Terminal, *, now: float
) -> Iterable[str]:
    """Return the lines of the status screen about the alerts on one profile."""
    for alert in alerts_of(section, name):
        yield _status_line(alert, alert_text(alert, now), terminal)


def other_alert_lines(
    section: AlertSection | None, names: Collection[str], terminal: Terminal, *, now: float
) -> Iterable[str]:
    """Return the lines about alerts on the box, its GPUs and watches, and on profiles not in `names`."""
    for alert in [] if section is None else section["alerts"]:
        kind, _, name = (key := text_in(alert, "subject")).partition(":")
        if kind != "profile" or name not in names:
            yield _status_line(alert, f"{subject_name(key)} {alert_text(alert, now)}", terminal)


def _status_line(alert: Json, text: str, terminal: Terminal) -> str:
    return f"alert   {terminal.paint(text, STYLES.get(alert_severity(alert), Style.PLAIN))}"
