"""Exit statuses of the command, which the control protocol sends, and the words of its options.

The protocol's form is in `appliance.wire.conversation`, its verbs in `control_requests`, its events
in `control_events`::

    {"event": "accepted", "operation": 12, "kind": "switch", "target": ["genesis"],
     "evicts": ["aeon"], "joined": false, "usual_ms": 48000}
    {"event": "phase", "phase": "drain", "state": "started", "text": "…", "ms": 0, "rolling_back": false}
    {"event": "result", "exit": 0, "outcome": "done", "message": "…", …}
"""

from typing import Final

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Days of planned windows."""


class Exit:
    """Exit statuses of the CLI, as plain integers."""

    OK: Final = 0
    FAILED: Final = 1
    """Failure; for status: degraded."""
    USAGE: Final = 2
    NOTHING_SERVING: Final = 3
    NO_SUCH_PROFILE: Final = 4
    RESTORED: Final = 10
    """The switch failed and the previous profiles serve again."""
    NOT_RESTORED: Final = 11
    """The switch failed and nothing serves."""
    UNREACHABLE: Final = 69
    BUSY: Final = 75
    PERMISSION: Final = 77
    CONFIG: Final = 78
    TIMEOUT: Final = 124
    """The time of --timeout passed; the operation continues."""
    DETACHED: Final = 130
    """Ctrl-C was pressed; the operation continues."""
