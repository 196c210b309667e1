"""Lines about measurement events."""

from __future__ import annotations

from appliance.cli.clock_times import local_minute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.protocol.health_socket import MeasuredEvent

_GLYPHS: Final = {
    "regression": "▼",
    "quality-lost": "▼",
    "drafts-silent": "▼",
    "recovered": "▲",
    "quality-recovered": "▲",
}


def event_line(event: MeasuredEvent) -> str:
    """Return time, profile and sentence: ``Tue 17 Nov 04:10  ▼ genesis: slow: 27.1 tok/s …``."""
    series = f" {event.series}" if event.series else ""
    text = event.text or event.kind.replace("-", " ")
    who = f"{event.profile}{series}: " if event.profile else ""
    return f"{local_minute(event.unix_s)}  {_GLYPHS.get(event.kind, '·')} {who}{text}"
