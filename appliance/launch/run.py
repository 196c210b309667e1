"""Launcher of one operator's command with the claim of a model: ``ExecStart=`` of appliance-run.

Root's program without arguments. In order: read the supervisor's ticket, which names the user and
the claim; listen on a socket that only root and the operators can open; accept the connection and
the request of that user, and refuse others; wait until the claim and its memory are free, as the
gate does; take the leases; run the command as its caller, and end with it.

The caller's signals come through the connection. When it closes (the CLI was killed, the terminal
was closed) the command gets SIGHUP and SIGTERM, later SIGKILL. Processes that the command leaves
behind die with the unit's control group, and keep the leases until then. A report of the end is
left for the supervisor (`appliance.wire.run_report`).

Lines to the caller, each a JSON object with an ``event``:

============  ======================================================================
``progress``  what is awaited (``text``)
``ready``     the claim is held; the answer ``{"go": true}`` starts the command
``ended``     the command's ``exit`` status, or the ``signal`` that killed it
``refused``   the command is not begun, for this reason (``text``)
============  ======================================================================

Lines from the caller after its request: ``{"go": true}``, and ``{"signal": "INT"}``.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import signal
import sys
import time

from appliance.launch import leases
from appliance.launch.caller_connection import CallerConnection, caller_connections
from appliance.launch.execution import Command, Ending, attend, start
from appliance.launch.obstacles import lease_sentence
from appliance.launch.program import ERROR, EX_USAGE, INFO, WARNING, Options, UsageError, say
from appliance.launch.release import Release
from appliance.model.amounts import duration
from appliance.model.names import OPERATORS_GROUP, SUPERVISOR_USER
from appliance.model.paths import LEASE_DIR, RUN_DIR
from appliance.switch.memory.requirement import MemoryRequirement
from appliance.system.files.regular import (
    UntrustedFileError,
    read_untrusted_text,
    replace_volatile,
)
from appliance.wire import run_report, run_ticket
from appliance.wire.run_request import BadRequest, Request
from appliance.wire.sd_notify import extend, notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = (
    *("directory", "lease-dir", "group", "ticket", "owner"),
    *("connect-s", "deadline-s", "grace-s"),
)
"""Flags for tests; the unit gives none."""
_CONNECT_S = 10.0
_REQUEST_S = 3.0
_DEADLINE_S = 60.0
_GRACE_S = 10.0
_GO_S = 10.0
_PAUSE_S = 0.005
_ANNOUNCE_EVERY_S = 0.2
_EXTENSION_S = 15.0
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_LONGEST_TEXT = 400
_REPORT_MODE = 0o644
"""Mode of the report, which the supervisor reads."""


class NotBegun(Exception):  # noqa: N818
    """Reason why the command is not begun, as `str()`."""


class Launcher:
    """Launcher of one command, from its caller's connection to its end."""

    def __init__(self, options: Options) -> None:
        self._directory = options.text("directory", RUN_DIR)
        self._lease_dir = options.text("lease-dir", LEASE_DIR)
        self._gid = grp.getgrnam(options.text("group", OPERATORS_GROUP)).gr_gid
        self._ticket_path = options.text("ticket", run_ticket.FILE)
        self._owner = pwd.getpwnam(options.text("owner", SUPERVISOR_USER)).pw_uid
        self._operation: int | None = None
        """Number in the supervisor's ticket; None: the ticket is not read yet."""
        self._ticket_sha256 = ""
        self._connect_s = options.seconds("connect-s", _CONNECT_S)
        self._deadline_s = options.seconds("deadline-s", _DEADLINE_S)
        self._grace_s = options.seconds("grace-s", _GRACE_S)
        self._connection: CallerConnection | None = None
        self._who = "a command"
        self._announced_s = -_ANNOUNCE_EVERY_S
        self._stopping = False
        self._stop_pipe, self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._command: Command | None = None

    def run(self) -> int:
        """Run to the command's end, or to the reason why it is not begun."""
        os.makedirs(self._directory, mode=0o755, exist_ok=True)
        used = self._used_ticket()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._report_path)
        for number in _ENDING:
            signal.signal(number, self._on_ending)
        try:
            self._run(used)
        except NotBegun as reason:
            text = str(reason)
            self._report(ran=False, text=text)
            if self._connection is not None:
                self._connection.send(event="refused", text=text)
            notify(f"STATUS={self._who} was not begun: {text}"[:_LONGEST_TEXT])
            say(WARNING, f"{self._who} was not begun: {text}")
        # A signal during interpreter shutdown must not change the exit status.
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        return 0

    def _run(self, used: str) -> None:
        admitted = self._admitted(used)
        notify("STATUS=waiting for the caller of the command")
        connection, request, stdio = self._await_caller(admitted)
        self._connection = connection
        self._who = f"{request.what} of user {connection.caller.name}"
        claim = leases.parse(request.leases(), self._lease_dir)
        self._await_release(connection, claim, request)
        held = _taken(claim)
        self._await_go(connection)
        self._attend(connection, request, stdio, held)

    def _admitted(self, used: str) -> run_ticket.Ticket:
        """Return the supervisor's ticket, unless an earlier command has used it. Raises `NotBegun`."""
        try:
            admitted = self._ticket()
        except (UntrustedFileError, BadRequest) as error:
            raise NotBegun(str(error)) from error
        if admitted.token_sha256 == used:
            raise NotBegun("the supervisor's ticket was used by an earlier command")
        self._operation = admitted.operation
        self._ticket_sha256 = admitted.token_sha256
        return admitted

    def _ticket(self) -> run_ticket.Ticket:
        """Read the supervisor's ticket. Raises `NotBegun`, `UntrustedFileError`, `BadRequest`."""
        text = read_untrusted_text(self._ticket_path, run_ticket.MAX_BYTES, owner=self._owner)
        if text is None:
            raise NotBegun("the supervisor has asked for no command: appliance run")
        return run_ticket.parse(text)

    def _await_caller(
        self, admitted: run_ticket.Ticket
    ) -> tuple[CallerConnection, Request, list[int]]:
        """Accept the connection of the admitted user; others are refused and change nothing."""
        why = f"no caller sent a command within {self._connect_s:.0f} s"
        connections = caller_connections(
            f"{self._directory}/socket",
            gid=self._gid,
            uid=admitted.uid,
            timeout_s=self._connect_s,
        )
        with contextlib.closing(connections):
            for connection in connections:
                try:
                    request, stdio = connection.receive(timeout_s=min(self._connect_s, _REQUEST_S))
                except BadRequest as error:
                    why = str(error)
                else:
                    if (refusal := _refusal(admitted, connection, request)) is None:
                        return connection, request, stdio
                    why = refusal
                    for descriptor in stdio:
                        os.close(descriptor)
                text = f"a command of user {connection.caller.name} was not begun: {why}"
                say(WARNING, text)
                connection.refuse(text)
        raise NotBegun(why)

    def _await_release(
        self, connection: CallerConnection, claim: Sequence[leases.LeaseLock], request: Request
    ) -> None:
        """Wait until the leases and the memory are free. Raises `NotBegun`."""

        def progress(text: str, waited_s: float) -> None:
            self._until_closed(connection)
            if waited_s - self._announced_s < _ANNOUNCE_EVERY_S:
                return
            self._announced_s = waited_s
            connection.send(event="progress", text=text)
            notify(f"STATUS={self._who}: {text}"[:_LONGEST_TEXT], extend(_EXTENSION_S))

        release = Release(
            claim, _requirement(request), deadline_s=self._deadline_s, on_progress=progress
        )
        try:
            obstacle = release.wait()
            if obstacle is not None:
                raise NotBegun(obstacle.explain())
        finally:
            release.close()

    def _await_go(self, connection: CallerConnection) -> None:
        """Wait until the caller has taken its progress line off the terminal. Raises `NotBegun`."""
        connection.send(event="ready")
        deadline_s = time.monotonic() + _GO_S
        while time.monotonic() < deadline_s:
            if any(line.get("go") is True for line in self._until_closed(connection)):
                return
            time.sleep(_PAUSE_S)
        raise NotBegun("the caller did not answer")

    def _until_closed(self, connection: CallerConnection) -> list[dict[str, object]]:
        lines = list(connection.received())
        if connection.closed:
            raise NotBegun("the caller closed the connection")
        return lines

    def _attend(
        self,
        connection: CallerConnection,
        request: Request,
        stdio: Sequence[int],
        held: Sequence[int],
    ) -> None:
        """Run the command to its end, and report it."""
        caller, began_s = connection.caller, time.monotonic()
        say(INFO, f"{self._who} (uid {caller.uid}, pid {caller.pid}) begins")
        # A signal between the fork and the first poll would end the launcher and leave the command.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        command = self._command = start(request, caller, stdio=stdio, leases=held)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        for descriptor in stdio:
            os.close(descriptor)
        notify("READY=1", f"STATUS={self._who}")
        ending = attend(command, connection, stopped=self._stop_pipe, grace_s=self._grace_s)
        text = f"{ending} after {duration(time.monotonic() - began_s)}{ending.reason_text}"
        self._report(ran=True, text=text)
        _send_end(connection, ending)
        notify(f"STATUS={self._who} ended {text}")
        say(INFO, f"{self._who} ended {text}")

    def _on_ending(self, _number: int, _frame: object) -> None:
        """Handle a stop of this unit; systemd sends more than one signal."""
        first, self._stopping = not self._stopping, True
        if self._command is not None:
            os.write(self._wakeup, b"!")
        elif first:
            raise NotBegun("it was stopped")

    @property
    def _report_path(self) -> str:
        return f"{self._directory}/{run_report.FILE_NAME}"

    def _used_ticket(self) -> str:
        """Return the ticket of the last command that ran in this boot; empty: none did."""
        try:
            last = run_report.decoded(
                read_untrusted_text(self._report_path, run_report.MAX_BYTES) or ""
            )
        except UntrustedFileError:
            return ""
        return "" if last is None else last.ticket_sha256

    def _report(self, *, ran: bool, text: str) -> None:
        """Write the report for the supervisor, whole or not at all."""
        report = run_report.Report(
            ran=ran,
            text=text,
            operation=self._operation,
            ticket_sha256=self._ticket_sha256 if ran else "",
        )
        content = run_report.encoded(report, who=self._who, unix_s=time.time())
        path = self._report_path
        try:
            replace_volatile(path, f"{path}.new", content, mode=_REPORT_MODE)
        except OSError as error:
            say(WARNING, f"cannot write the report {path}: {error.strerror}")


def _send_end(connection: CallerConnection, ending: Ending) -> None:
    if ending.status < 0:
        connection.send(event="ended", signal=-ending.status)
    else:
        connection.send(event="ended", exit=ending.status)


def _refusal(
    admitted: run_ticket.Ticket, connection: CallerConnection, request: Request
) -> str | None:
    if not admitted.admits(connection.caller.uid, request.token):
        return "the request lacks the token of the supervisor's answer"
    if request.gpus != admitted.gpus:
        return "the request asks for another claim than the supervisor admitted"
    return None


def _requirement(request: Request) -> MemoryRequirement:
    """Return the requirement of a command, whose need is unknown: everything must be free again.

    Where the readings mean nothing, free leases and ended units are the only proof.
    """
    return MemoryRequirement(gpus=request.gpus, strangers=True, assume_free=True)


def _taken(claim: Sequence[leases.LeaseLock]) -> list[int]:
    held: list[int] = []
    for lease in claim:
        descriptor = lease.take()
        if descriptor is None:
            raise NotBegun(lease_sentence(lease))
        held.append(descriptor)
    return held


def main(argv: Sequence[str]) -> int:
    try:
        return Launcher(Options(argv, _FLAGS)).run()
    except UsageError as error:
        say(ERROR, f"run: {error}")
        return EX_USAGE
    except (KeyError, OSError) as error:
        say(ERROR, f"run: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
