"""Comparison of status documents: what is new in one, apart from the time that has passed."""

from __future__ import annotations

from appliance.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_AGES: Final = frozenset(
    {
        *("age_s", "elapsed_s", "engines_age_s", "heartbeat_s", "oldest_s", "phase_s", "quiet_s"),
        *("sampled_age_s", "sampled_unix_s", "uptime_s"),
    }
)
"""Keys of values that grow while nothing happens."""
_UNSTEADY: Final = frozenset({"locked_bytes", "ram_available_bytes", "ram_bytes"})
"""Keys of host memory, which moves by a few pages all the time."""


def without_ages(document: object) -> object:
    """Return a document without ages and host memory: two are equal where nothing has happened."""
    if isinstance(document, Record):
        return without_ages(document.fields())
    if isinstance(document, dict):
        return {
            key: without_ages(value)
            for key, value in document.items()
            if key not in _AGES and key not in _UNSTEADY
        }
    if isinstance(document, list | tuple):
        return [without_ages(value) for value in document]
    return document
