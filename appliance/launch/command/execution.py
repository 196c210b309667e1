"""A command as its caller would have started it: same user, groups, directory, limits, streams."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import resource
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from appliance.launch.command.connection import Link
    from appliance.launch.command.peer import Caller
    from appliance.protocol.run_request import Request

_STOPPED = "it was stopped"
_LAST_STDIO = 2
_MOST_DESCRIPTORS = 1 << 16
EX_NOT_EXECUTABLE = 126
EX_NOT_FOUND = 127
"""What shells and env(1) end with when there is no such command."""

_KILLED_S = 1.0
"""Between two attempts to kill it; one that the kernel cannot end is systemd's to give up on."""
_NAMED = {int(number) for number in signal.Signals}
TO_GROUP = frozenset({"INT", "QUIT", "HUP", "WINCH", "TSTP", "CONT"})
"""Signals that a terminal sends to every process in its foreground, and so do we."""
TO_COMMAND = frozenset({"TERM", "USR1", "USR2"})
"""Signals that people send to one process."""


class Command:
    """A running child, in a session of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)

    def pass_on(self, name: str) -> None:
        """A signal that the caller got, by its name without SIG; others are left out."""
        if name in TO_GROUP:
            # A session without a terminal cannot be stopped with SIGTSTP.
            number = signal.SIGSTOP if name == "TSTP" else signal.Signals[f"SIG{name}"]
            self.signal_all(number)
        elif name in TO_COMMAND:
            signal.pidfd_send_signal(self.pidfd, signal.Signals[f"SIG{name}"])

    def signal_all(self, *numbers: signal.Signals) -> None:
        """Signal the process group: it cannot be another one's before `ended` has been called."""
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def ended(self) -> int:
        """Its exit status, once it has ended; negative for a signal."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


class Ending:
    """How a command ended. `str()` is ``with status 0`` or ``with signal 15 (SIGTERM)``."""

    __slots__ = ("because", "status")

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        """Negative for a signal."""
        self.because = f": {why}" if why else ""

    def __str__(self) -> str:
        if self.status >= 0:
            return f"with status {self.status}"
        name = signal.Signals(-self.status).name if -self.status in _NAMED else "unknown"
        return f"with signal {-self.status} ({name})"


def attend(command: Command, link: Link, *, told: int, grace_s: float) -> Ending:
    """Pass signals on until the command has ended, or has to.

    Args:
        command: The child.
        link: When it is gone the command is told to end.
        told: Becomes readable when our unit is being stopped: systemd has then sent SIGTERM to
            every process in it.
        grace_s: From being told to end to SIGKILL.
    """
    why, kill_at_s = "", 0.0
    poll = select.poll()
    for source in (command.pidfd, told, link):
        poll.register(source, select.POLLIN)
    while command.pidfd not in (ready := _ready(poll, kill_at_s)):
        if link.fileno() in ready and _is_gone(command, link):
            poll.unregister(link)
        if told in ready:
            poll.unregister(told)
        if not why and (told in ready or link.gone):
            why = _told_to_end(command, link)
            kill_at_s = time.monotonic() + grace_s
        elif why and time.monotonic() >= kill_at_s:
            command.signal_all(signal.SIGKILL)
            why, kill_at_s = f"{why} and it did not end", time.monotonic() + _KILLED_S
    # systemd signals us first, and the command may be the quicker to end.
    if not why and told in _ready(poll, time.monotonic()):
        why = _STOPPED
    return Ending(command.ended(), why)


def _ready(poll: select.poll, deadline_s: float) -> set[int]:
    """Descriptors with news; none at the deadline. 0: there is none."""
    left_s = max(0.0, deadline_s - time.monotonic())
    return {fd for fd, _ in poll.poll(math.ceil(left_s * 1000) if deadline_s else None)}


def _is_gone(command: Command, link: Link) -> bool:
    for line in link.hear():
        command.pass_on(str(line.get("signal")))
    return link.gone


def _told_to_end(command: Command, link: Link) -> str:
    """Tell the command, unless systemd did; the reason."""
    if not link.gone:
        return _STOPPED
    command.signal_all(signal.SIGHUP, signal.SIGTERM, signal.SIGCONT)
    return "its caller went away"


def start(
    request: Request,
    caller: Caller,
    *,
    stdio: Sequence[int],
    leases: Sequence[int],
) -> Command:
    """Fork and become `request`. Signals must be blocked: the child opens itself to them.

    Args:
        request: What to run.
        caller: As whom.
        stdio: Its standard input, output and error.
        leases: Descriptors that it inherits, so that a worker that outlives us keeps them.
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
        os._exit(EX_NOT_EXECUTABLE)  # never back into the launcher


def _prepare(
    request: Request,
    caller: Caller,
    stdio: Sequence[int],
    leases: Sequence[int],
    limits: dict[int, tuple[int, int]],
) -> None:
    os.setsid()
    for number, descriptor in enumerate(stdio):
        os.dup2(descriptor, number)
    for descriptor in leases:
        os.set_inheritable(descriptor, True)  # noqa: FBT003
    # Nothing of ours is for the command, whether it would close at the exec or not.
    for below, above in itertools.pairwise((_LAST_STDIO, *sorted(leases), _MOST_DESCRIPTORS)):
        os.closerange(below + 1, above)
    for limit, values in limits.items():
        # Where the manager itself may not raise one, it stays as it is.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, values)
    os.setgroups(caller.groups)
    os.setresgid(caller.gid, caller.gid, caller.gid)
    os.setresuid(caller.uid, caller.uid, caller.uid)
    os.umask(request.umask)
    _default_signals()


def _default_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # The C library keeps a few for itself.
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
    """Tell the caller, on his own standard error."""
    with contextlib.suppress(OSError):
        os.write(2, f"appliance run: {text}\n".encode(errors="surrogateescape"))
    os._exit(status)
