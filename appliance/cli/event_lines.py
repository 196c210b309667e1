"""Lines about alerts, their transitions and measurement events."""

from __future__ import annotations

from appliance.cli.terminal import Style, Terminal
from appliance.presentation.alert_texts import alert_severity, alert_text, alerts_of, subject_name
from appliance.presentation.clock_times import local_minute
from appliance.wire.json_values import Json, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Final

    from appliance.model.events import AlertEvent, MeasuredEvent
    from appliance.model.status import AlertSection


_GLYPHS: Final = {
    "regression": "▼",
    "quality-lost": "▼",
    "drafts-silent": "▼",
    "engine-ended": "▼",
    "recovered": "▲",
    "quality-recovered": "▲",
    "fired": "▼",
    "changed": "▼",
    "reminded": "▼",
    "flapping": "▼",
    "resolved": "▲",
}


def event_line(event: MeasuredEvent, when: str | None = None) -> str:
    """Return time, profile and sentence: ``Tue 17 Nov 04:10  ▼ genesis: slow: 27.1 tok/s …``.

    Args:
        event: The event.
        when: Text of its time; None: day and minute.
    """
    series = f" {event.series}" if event.series else ""
    text = event.text or event.kind.replace("-", " ")
    who = f"{event.profile}{series}: " if event.profile else ""
    return f"{when or local_minute(event.unix_s)}  {_GLYPHS.get(event.kind, '·')} {who}{text}"


def alert_event_line(event: AlertEvent, when: str | None = None) -> str:
    """Return time, alert and what became of it: ``Tue 17 Nov 04:10  ▼ #A17 genesis fired: slow …``.

    Args:
        event: The event.
        when: As of `event_line`.
    """
    glyph = _GLYPHS.get(event.kind, "·")
    alert = f"#{event.alert} " if event.alert else ""
    what = f"{alert}{subject_name(event.subject)} {event.kind}"
    by = f" by {event.by}" if event.by else ""
    fact = f": {event.fact}" if event.fact else ""
    why = f" ({event.reason})" if event.reason else ""
    return f"{when or local_minute(event.unix_s)}  {glyph} {what}{by}{fact}{why}"


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
    for alert in [] if section is None else section.alerts:
        kind, _, name = (key := text_in(alert, "subject")).partition(":")
        if kind != "profile" or name not in names:
            yield _status_line(alert, f"{subject_name(key)} {alert_text(alert, now)}", terminal)


def _status_line(alert: Json, text: str, terminal: Terminal) -> str:
    return f"alert   {terminal.paint(text, STYLES.get(alert_severity(alert), Style.PLAIN))}"
