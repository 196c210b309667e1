"""Lines about measurement events and transitions of alerts."""

from __future__ import annotations

from appliance.presentation.alert_texts import subject_name
from appliance.presentation.clock_times import local_minute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.wire.alert_requests import AlertEvent
    from appliance.wire.health_socket import MeasuredEvent

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
