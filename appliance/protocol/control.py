"""Bounds, versions, kinds of errors and exit statuses of the control protocol, version 1.

NDJSON over the control socket, one request a connection. The client speaks first, one line
(`control_requests`)::

    {"protocol": {"min": 1, "max": 1}, "version": "0.1.0", "verb": "switch", "args": {…}}

The server answers one greeting, then events (`control_events`) until a closing one::

    {"event": "hello", "protocol": 1, "version": "0.1.0"}
    {"event": "accepted", "operation": 12, "kind": "switch", "target": ["genesis"],
     "evicts": ["aeon"], "joined": false, "usual_ms": 48000}
    {"event": "phase", "phase": "drain", "state": "started", "text": "…", "ms": 0, "rolling_back": false}
    {"event": "result", "exit": 0, "outcome": "done", "message": "…", …}

`result` and `error` close a conversation. When the two sides share no protocol version the server
answers one `error` whose message names both versions and what to restart. Fields that one side
does not know are ignored.

The command line loads what is here and the codec each time it starts, so none of it imports
enum or collections (4 ms), nor dataclasses, asyncio or a schema library. Words are unions of literals.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Literal

    ErrorKind = Literal["failed", "bad-request", "unknown-profile", "busy", "denied"]
else:
    ErrorKind = str  # for annotations alone

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 1
MAX_LINE_BYTES: Final = 1 << 20
"""Longest event in bytes: a status of many profiles is one event."""
MAX_REQUEST_BYTES: Final = 64 << 10
"""Longest request in bytes: a thousand names."""
GREETING_S: Final = 5.0
"""Time that a client waits for the greeting: systemd keeps the socket open while the supervisor is
dead, so a connection proves nothing."""
MARKS: Final = ("live", "standby", "retired")
"""Values of `appliance.domain.profile.Mark`, which takes too long to import here: a test compares
them."""


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
