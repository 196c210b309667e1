"""Server that queues jobs for the supervisor: ``ExecStart=`` of appliance-jobs.service, as root.

systemd lets polkit see a job's unit and verb, but not its mode, and some modes reach beyond the unit:
``flush`` cancels every job on the box, ``replace-irreversibly`` can hold up a shutdown. So polkit
allows the supervisor no jobs at all; this program queues them, with the mode ``replace`` alone. The
start of a backend resets the unit's start limit first, so that only crashes after it count.

The format of requests and answers is that of `appliance.wire.jobs`. The socket's mode says who may connect.
Units are those that `appliance apply` has installed, backends and the units that ask engines about
their builds, and the static ones below.
"""

from __future__ import annotations

import os
import socket
import sys

from appliance.launch.job_queue import PRIVATE_SOCKET, RefusedError, queue_job
from appliance.launch.program import ERROR, EX_USAGE, WARNING, Options, UsageError, say
from appliance.model.names import (
    APPLY_UNIT,
    HOLD_UNIT,
    RUN_UNIT,
    profile_of,
    profile_of_build,
    unit_of,
)
from appliance.model.paths import APPLIED_DIR, APPLIED_UNITS
from appliance.wire.jobs import (
    ACCESS_DENIED,
    FAILED,
    MAX_LINE_BYTES,
    START,
    STOP,
    JobRefusedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_METHODS = {START: "StartUnit", STOP: "StopUnit"}
_STATIC = frozenset({HOLD_UNIT, RUN_UNIT, APPLY_UNIT})
_APPLIED = f"{APPLIED_DIR}/{APPLIED_UNITS}"
_FLAGS = ("applied-units", "systemd", "listen-fd")
"""Flags for tests; the unit gives none."""
_FIRST_FD = 3
_REQUEST_TIMEOUT_S = 2.0


def answer(line: str, *, applied: str = _APPLIED, systemd: str = PRIVATE_SOCKET) -> str:
    """Carry out a request; returns the line of the answer."""
    verb, _, unit = line.partition(" ")
    try:
        return f"job {_queued(verb, unit, applied, systemd)}"
    except JobRefusedError as error:
        text = " ".join(str(error).split())
        say(WARNING, f"no job for {line!r:.200}: {text}")
        return f"error {error.name} {text}"


def _queued(verb: str, unit: str, applied: str, systemd: str) -> str:
    method = _METHODS.get(verb)
    if method is None:
        raise JobRefusedError(ACCESS_DENIED, "a job is a start or a stop")
    if unit not in _STATIC and not _is_applied(unit, applied):
        raise JobRefusedError(ACCESS_DENIED, "the unit is not one that was applied")
    try:
        return queue_job(method, unit, path=systemd, resets=verb == START and unit not in _STATIC)
    except RefusedError as error:
        raise JobRefusedError(error.name or FAILED, str(error)) from error
    except OSError as error:
        raise JobRefusedError(FAILED, f"systemd cannot be asked: {error}") from error


def _is_applied(unit: str, directory: str) -> bool:
    name = profile_of(unit) or profile_of_build(unit)
    return name is not None and os.path.isfile(f"{directory}/{unit_of(name)}")


def _serve(connection: socket.socket, options: Options) -> None:
    connection.settimeout(_REQUEST_TIMEOUT_S)
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
        chunk = connection.recv(MAX_LINE_BYTES - len(line))
        if not chunk:
            return
        line += chunk
    text = answer(
        line.decode(errors="replace").rstrip("\n"),
        applied=options.text("applied-units", _APPLIED),
        systemd=options.text("systemd", PRIVATE_SOCKET),
    )
    connection.sendall(text.encode() + b"\n")


def main(argv: Sequence[str]) -> int:
    """Serve for ever."""
    try:
        options = Options(argv, _FLAGS)
        listener = socket.socket(fileno=options.whole("listen-fd") or _FIRST_FD)
    except (UsageError, OSError) as error:
        say(ERROR, f"jobs: {error}")
        return EX_USAGE
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                _serve(connection, options)
            except OSError as error:
                say(WARNING, f"a request was lost: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
