"""Requests for jobs, from the supervisor to the program of root that queues them (launch.jobs).

One line a connection: ``start UNIT`` or ``stop UNIT``. A start of a backend is preceded by a reset of
its start limit. The answer is a line, too: ``job PATH``, the job's object path, or ``error NAME TEXT``,
with the name of a D-Bus error.
"""

from __future__ import annotations

START = "start"
STOP = "stop"
ACCESS_DENIED = "org.freedesktop.DBus.Error.AccessDenied"
FAILED = "org.freedesktop.DBus.Error.Failed"
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
MAX_LINE_BYTES = 4096


class JobRefusedError(Exception):
    """Refusal of a job; `name` is a D-Bus error's, `str()` says why."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def parse_answer(line: str) -> str:
    """Return the job's object path in an answer. Raises `JobRefusedError`."""
    kind, _, rest = line.rstrip("\n").partition(" ")
    if kind == "job" and rest:
        return rest
    name, _, text = rest.partition(" ")
    raise JobRefusedError(name or FAILED, text or "appliance-jobs.service does not answer")
