"""Codec of the status text of an engine that loads (STATUS= of sd_notify(3)).

    loading                                       the engine's process runs and is not ready
    loading: 4.2 GiB resident, 12 s, …            likewise, with details for people

Written by the launcher of a backend (launch.start.readiness), parsed by the supervisor: the word before
the colon is all that it decides on. Imported before every start: without `typing`.
"""

from __future__ import annotations

_LOADING = "loading"


def load_status(details: str = "") -> str:
    """Return the status text of an engine that loads."""
    return f"{_LOADING}: {details}" if details else _LOADING


def is_load_status(text: str) -> bool:
    """Tell whether a status text is that of an engine that loads."""
    return text.partition(":")[0] == _LOADING
