"""Execution of a command as its caller would start it: user, groups, directory, limits, streams."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import resource
import select
import signal
import time

from appliance.wire.run_request import EX_NOT_EXECUTABLE, EX_NOT_FOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from appliance.launch.caller_connection import CallerConnection, PeerCredentials
    from appliance.wire.run_request import Request


_STOPPED = "it was stopped"
_LAST_STDIO = 2
_MOST_DESCRIPTORS = 1 << 16
_KILLED_S = 1.0
"""Pause between two SIGKILLs; systemd in the end gives up on a process that the kernel cannot
end."""
_NAMED = {int(number) for number in signal.Signals}
TO_GROUP = frozenset({"INT", "QUIT", "HUP", "WINCH", "TSTP", "CONT"})
"""Signals that a terminal sends to every process in its foreground; they go to the group."""
TO_COMMAND = frozenset({"TERM", "USR1", "USR2"})
"""Signals that people send to one process; they go to the command alone."""


class Command:
    """Command that runs as a child, in a session of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)

    def pass_on(self, name: str) -> None:
        """Pass on a signal that the caller received, by name without SIG; ignore unknown names."""
        if name in TO_GROUP:
            # A session without a terminal cannot be stopped with SIGTSTP.
            number = signal.SIGSTOP if name == "TSTP" else signal.Signals[f"SIG{name}"]
            self.signal_all(number)
        elif name in TO_COMMAND:
            signal.pidfd_send_signal(self.pidfd, signal.Signals[f"SIG{name}"])

    def signal_all(self, *numbers: signal.Signals) -> None:
        """Signal the process group; its number cannot be reused before `wait` has been called."""
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self) -> int:
        """Wait for the end; returns the exit status, negative for a signal."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


class Ending:
    """End of a command. `str()` is ``with status 0`` or ``with signal 15 (SIGTERM)``."""

    __slots__ = ("reason_text", "status")

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        """Exit status; negative for a signal."""
        self.reason_text = f": {why}" if why else ""

    def __str__(self) -> str:
        if self.status >= 0:
            return f"with status {self.status}"
        name = signal.Signals(-self.status).name if -self.status in _NAMED else "unknown"
        return f"with signal {-self.status} ({name})"


def attend(
    command: Command, connection: CallerConnection, *, stopped: int, grace_s: float
) -> Ending:
    """Pass signals on until the command has ended; end it when the caller has left.

    Args:
        command: The child.
        connection: When the caller closes it the command is asked to end.
        stopped: Descriptor that becomes readable when our unit is being stopped: systemd has then
            sent SIGTERM to every process in it.
        grace_s: From SIGTERM to SIGKILL.
    """
    why, kill_at_s = "", 0.0
    poll = select.poll()
    for source in (command.pidfd, stopped, connection):
        poll.register(source, select.POLLIN)
    while command.pidfd not in (ready := _ready(poll, kill_at_s)):
        if connection.fileno() in ready and _pass_signals_on(command, connection):
            poll.unregister(connection)
        if stopped in ready:
            poll.unregister(stopped)
        if not why and (stopped in ready or connection.closed):
            why = _ask_to_end(command, connection)
            kill_at_s = time.monotonic() + grace_s
        elif why and time.monotonic() >= kill_at_s:
            command.signal_all(signal.SIGKILL)
            why, kill_at_s = f"{why} and it did not end", time.monotonic() + _KILLED_S
    # systemd signals this process first, and the command may end sooner.
    if not why and stopped in _ready(poll, time.monotonic()):
        why = _STOPPED
    return Ending(command.wait(), why)


def _ready(poll: select.poll, deadline_s: float) -> set[int]:
    """Return readable descriptors; none at the deadline. A deadline of 0 means none."""
    left_s = max(0.0, deadline_s - time.monotonic())
    return {fd for fd, _ in poll.poll(math.ceil(left_s * 1000) if deadline_s else None)}


def _pass_signals_on(command: Command, connection: CallerConnection) -> bool:
    """Pass on the signals that came; returns whether the caller has closed the connection."""
    for line in connection.received():
        command.pass_on(str(line.get("signal")))
    return connection.closed


def _ask_to_end(command: Command, connection: CallerConnection) -> str:
    """Signal the command to end, unless systemd did; returns the reason."""
    if not connection.closed:
        return _STOPPED
    command.signal_all(signal.SIGHUP, signal.SIGTERM, signal.SIGCONT)
    return "the caller closed the connection"


def start(
    request: Request,
    caller: PeerCredentials,
    *,
    stdio: Sequence[int],
    leases: Sequence[int],
) -> Command:
    """Fork, and execute `request` in the child. Signals must be blocked: the child unblocks them.

    Args:
        request: Of the caller.
        caller: The user that it runs as.
        stdio: Standard input, output and error.
        leases: Descriptors that the command inherits, so that a worker that outlives us keeps them.
    """
    limits = caller.limits()
    pid = os.fork()
    if pid:
        return Command(pid)
    try:
        _prepare(request, caller, stdio, leases, limits)
        _exec(request)
    except OSError as error:
        _fail(f"{request.what}: {error.strerror}", EX_NOT_EXECUTABLE)
    finally:
        os._exit(EX_NOT_EXECUTABLE)  # never return into the launcher


def _prepare(
    request: Request,
    caller: PeerCredentials,
    stdio: Sequence[int],
    leases: Sequence[int],
    limits: dict[int, tuple[int, int]],
) -> None:
    os.setsid()
    for number, descriptor in enumerate(stdio):
        os.dup2(descriptor, number)
    for descriptor in leases:
        os.set_inheritable(descriptor, True)  # noqa: FBT003
    # The command gets no other descriptor, whether it would close at the exec or not.
    for below, above in itertools.pairwise((_LAST_STDIO, *sorted(leases), _MOST_DESCRIPTORS)):
        os.closerange(below + 1, above)
    for limit, values in limits.items():
        # Where the manager itself may not raise a limit, the limit stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, values)
    os.setgroups(caller.groups)
    os.setresgid(caller.gid, caller.gid, caller.gid)
    os.setresuid(caller.uid, caller.uid, caller.uid)
    os.umask(request.umask)
    _default_signals()


def _default_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # The C library keeps a few descriptors for itself.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _exec(request: Request) -> NoReturn:
    try:
        os.chdir(request.cwd)
    except OSError as error:
        _fail(f"{request.cwd}: {error.strerror}", EX_NOT_EXECUTABLE)
    try:
        os.execvpe(request.argv[0], request.argv, request.environment())  # noqa: S606
    except (FileNotFoundError, NotADirectoryError) as error:
        _fail(f"{request.argv[0]}: {error.strerror}", EX_NOT_FOUND)


def _fail(text: str, status: int) -> NoReturn:
    """Write to the caller's standard error, and end."""
    with contextlib.suppress(OSError):
        os.write(2, f"appliance run: {text}\n".encode(errors="surrogateescape"))
    os._exit(status)
