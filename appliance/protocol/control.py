"""The control protocol between the CLI and the supervisor, version 1.

NDJSON over the control socket. The client speaks first, one line::

    {"protocol": {"min": 1, "max": 1}, "version": "0.1.0", "verb": "switch", "args": {…}}

The server answers one greeting, then events until a closing one::

    {"event": "hello", "protocol": 1, "version": "0.1.0"}
    {"event": "accepted", "operation": 12, "kind": "switch", "target": ["genesis"],
     "evicts": ["aeon"], "joined": false, "usual_ms": 48000}
    {"event": "phase", "phase": "drain", "state": "started", "text": "…", "ms": 0, "rolling_back": false}
    {"event": "result", "exit": 0, "outcome": "done", "message": "…", …}

`result` and `error` close a conversation. `exit` is the exit status that the CLI ends with.
When the two sides share no protocol version the server answers one `error` event whose message
names both versions and what to restart.
"""

from enum import IntEnum, StrEnum
from typing import Final

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 1
MAX_LINE_BYTES: Final = 1 << 20
"""Of an event: a status of many profiles is one."""
MAX_REQUEST_BYTES: Final = 64 << 10
"""Of a request: a thousand names."""


class Verb(StrEnum):
    """What a client may ask for, and its arguments."""

    STATUS = "status"
    """No arguments. One `result` event whose ``status`` is the status document."""
    SWITCH = "switch"
    """``name``, ``dry_run``, ``rollback``, ``drain_s`` (null: the profile's)."""
    START = "start"
    """``names`` (empty: the committed ones)."""
    STOP = "stop"
    """``names`` (empty: all that run), ``drain_s``."""
    RESTART = "restart"
    """``names`` (empty: all that serve), ``drain_s``."""
    HOLD = "hold"
    """``for_s`` (null: until ended by a switch or a start), ``drain_s``."""
    RUN = "run"
    """``command`` (its name, for people), ``gpus`` ("all" or a list of indexes), ``drain_s``,
    ``dry_run``. The command itself goes to its launcher (launch.run), never through here."""
    CANCEL = "cancel"
    """No arguments. Cancels the running operation."""
    ATTACH = "attach"
    """``operation`` (null: the running one). Follows it; the `result` is immediate when it is over
    or when none runs."""
    MARK = "mark"
    """``name``, ``mark``."""
    KEY = "key"
    """``action``: ``add`` with ``name``, ``may_switch`` and ``profiles`` (null: all), whose `result`
    has the ``key``, this once; ``ls``, whose `result` has ``keys``; ``rm`` with ``name``, or an
    id."""
    RELOAD = "reload"
    """No arguments. Reads the applied profiles again."""


class Exit(IntEnum):
    """Exit statuses of the CLI."""

    OK = 0
    FAILED = 1
    """Failed; for status: degraded."""
    USAGE = 2
    NOTHING_SERVING = 3
    NO_SUCH_PROFILE = 4
    RESTORED = 10
    """The switch failed and the previous profiles serve again."""
    NOT_RESTORED = 11
    """The switch failed and nothing serves."""
    UNREACHABLE = 69
    BUSY = 75
    PERMISSION = 77
    CONFIG = 78
    TIMEOUT = 124
    """--timeout passed; the operation continues."""
    DETACHED = 130
    """Ctrl-C; the operation continues."""
