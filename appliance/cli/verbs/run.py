"""Verb `appliance run`: a command in place of the models, in the foreground, by root's program (`appliance.launch.run`)."""

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Final, Self

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.failures import CliError, status_of
from appliance.cli.operation_follower import OperationFollower, exit_status
from appliance.cli.progress_lines import FRAME_S, progress_for
from appliance.cli.terminal import Streams, Terminal
from appliance.model.errors import UnreachableError
from appliance.model.json_reader import decode_json
from appliance.model.paths import RUN_DIR
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_events import PhaseEvent
from appliance.wire.control_requests import CONTROL, CancelRequest, RunRequest
from appliance.wire.json_values import Json, number_in, text_in
from appliance.wire.run_request import EX_NOT_EXECUTABLE, EX_NOT_FOUND

SOCKET: Final = f"{RUN_DIR}/socket"
_STDIO: Final = (0, 1, 2)
_CHUNK: Final = 65_536
_PATIENCE_S: Final = 10.0
_PASSED_ON: Final = ("INT", "QUIT", "TERM", "HUP", "WINCH", "USR1", "USR2", "TSTP", "CONT")


class HungUp(BaseException):
    """Signal SIGHUP: the terminal has closed, or another process sent it."""


class Launched:
    """Launched command's connection; `connect` returns None while the launcher does not listen."""

    def __init__(self, connection: socket.socket) -> None:
        self.gone = False
        """Whether the launcher has closed the connection."""
        self._connection = connection
        self._buffer = b""

    @classmethod
    def connect(cls, path: str) -> Self | None:
        """Return a new connection; None: no launcher listens, or not for this user."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            return None
        return cls(connection)

    def fileno(self) -> int:
        """Return the descriptor for select."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close the connection: the launcher ends the command, if there is one."""
        self._connection.close()

    def ask(self, command: Sequence[str], gpus: str | Sequence[int], token: str) -> None:
        """Send the command, with our environment and descriptors and the supervisor's token."""
        document = {
            "argv": list(command),
            "env": dict(os.environ),
            "cwd": _cwd(),
            "umask": _umask(),
            "gpus": gpus,
            "token": token,
        }
        line = json.dumps(document).encode() + b"\n"
        with contextlib.suppress(OSError), _open_stdio() as stdio:
            sent = socket.send_fds(self._connection, [line[:_CHUNK]], list(stdio))
            self._connection.sendall(line[sent:])

    def go(self) -> None:
        """Let the command begin."""
        self._say({"go": True})

    def pass_on(self, name: str) -> None:
        """Pass a signal that this process received on to the command."""
        self._say({"signal": name})

    def _say(self, document: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(document).encode() + b"\n")

    def events(self) -> Iterator[Json]:
        """Wait for events of the launcher, and return them."""
        try:
            chunk = self._connection.recv(_CHUNK)
        except OSError:
            chunk = b""
        self.gone = not chunk
        self._buffer += chunk
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            yield decode_json(line)


def check_program(program: str) -> None:
    """Check that execvp(3) will find a program, with the rights and the PATH of this process.

    The launcher gives the command both, so what is missing is reported before any model stops. What only the
    kernel finds out, such as another machine's format, is left to the launcher.

    Raises:
        CliError: No such program (127), or none that this user may execute (126).
    """
    if "/" in program:
        paths, where = [program], ""
    else:
        paths = [f"{folder or '.'}/{program}" for folder in os.get_exec_path()]
        where = " in PATH"
    if any(_is_executable(path) for path in paths):
        return
    unchanged = "nothing was stopped"
    if any(map(os.path.exists, paths)):
        raise CliError(f"{program}: not executable for this user; {unchanged}", EX_NOT_EXECUTABLE)
    raise CliError(f"{program}: no such program{where}; {unchanged}", EX_NOT_FOUND)


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - pathlib takes 3 ms


@contextlib.contextmanager
def passing_on(launched: Launched) -> Iterator[None]:
    """Pass signals on to the command meanwhile; those ignored at our start stay ignored."""

    def take(number: int, _frame: FrameType | None) -> None:
        launched.pass_on(signal.Signals(number).name.removeprefix("SIG"))
        if number == signal.SIGHUP:
            raise HungUp
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # and the shell takes over

    numbers = [signal.Signals[f"SIG{name}"] for name in _PASSED_ON]
    before = {n: signal.getsignal(n) for n in numbers}
    taken = [n for n in numbers if before[n] is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, take)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


@contextlib.contextmanager
def _open_stdio() -> Iterator[Sequence[int]]:
    """Return standard input, output and error; the null device for one that is closed."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        yield [n if _is_open(n) else null for n in _STDIO]
    finally:
        os.close(null)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib takes 3 ms
    except OSError as error:
        raise CliError("the current directory is gone: cd elsewhere", 1) from error


def _umask() -> int:
    """Return the umask, which the kernel returns only when it is set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_KNOCK_S: Final = 0.02
"""Pause between two attempts to connect to the launcher."""
_SIGNALLED: Final = 128
_HANGUP: Final = 129


def run(arguments: Arguments, streams: Streams) -> int:
    """Run the command and return its exit status."""
    words = arguments.command
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise CliError("no command: appliance run -- COMMAND", Exit.USAGE)
    check_program(command[0])
    path = places_of(arguments).control_socket
    gpus = arguments.gpus
    request = RunRequest(
        command=os.path.basename(command[0]) or command[0],  # noqa: PTH119 - 7 ms
        gpus=gpus if gpus == "all" else tuple(gpus),
        drain_s=arguments.drain_s,
    )
    follower = OperationFollower(
        Conversation(CONTROL, path, request),
        path,
        progress=progress_for(streams.err, silent=arguments.json),
        raw=streams.err if arguments.json else None,
    )
    try:
        foreground = Foreground(follower, path, streams.err, as_json=arguments.json)
        return foreground.run(command, gpus)
    finally:
        follower.close()


class Foreground:
    """Foreground command, from the request for its claim until the models serve again.

    Args:
        follower: Follower of the operation.
        path: The control socket.
        err: Stream for all output of ours: standard output is the command's.
        as_json: Print events there, and nothing else.
    """

    def __init__(
        self, follower: OperationFollower, path: str, err: Terminal, *, as_json: bool
    ) -> None:
        self._follower = follower
        self._path = path
        self._err = err
        self._as_json = as_json
        self._launched: Launched | None = None

    def run(self, command: Sequence[str], gpus: str | Sequence[int]) -> int:
        """Run the command to its end, and return the exit status."""
        try:
            launched = self._begin(command, gpus)
            if launched is None:
                return self._not_begun()
            self._follower.progress.end()
            with passing_on(launched):
                status = _attend(launched)
        except KeyboardInterrupt:
            return self._cancel()
        except HungUp:
            return _HANGUP
        finally:
            self._let_go()
        if self._err.interactive and not self._as_json:
            self._err.line()  # keep an unfinished last line of the command
        try:
            ended = self._conclude(status)
            # A command whose end was not reported may have failed.
            return int(Exit.FAILED) if status is None and ended == Exit.OK else ended
        except KeyboardInterrupt:
            self._say("detached; what served before comes back: appliance wait follows it")
            return Exit.DETACHED if status is None else status
        except UnreachableError as error:
            self._say(f"{error} (what served before comes back when it runs)")
            return status or status_of(error)

    def _begin(self, command: Sequence[str], gpus: str | Sequence[int]) -> Launched | None:
        """Wait until the launcher has the claim and waits for `go`; None: the command is not run."""
        follower = self._follower
        while follower.closing is None:
            if self._launched is not None:
                if self._is_ready(self._launched):
                    return self._launched
                continue
            follower.take(_KNOCK_S if follower.releasing else FRAME_S)
            if follower.releasing and follower.closing is None:
                self._launched = Launched.connect(os.environ.get("APPLIANCE_RUN_SOCKET") or SOCKET)
                if self._launched is not None:
                    self._launched.ask(command, gpus, follower.token)
        return None

    def _is_ready(self, launched: Launched) -> bool:
        """Check launcher and operation once. A launcher that has ended has reported the reason to the supervisor."""
        follower = self._follower
        sources: list[OperationFollower | Launched] = (
            [follower] if launched.gone else [follower, launched]
        )
        ready, _, _ = select.select(sources, [], [], FRAME_S)
        if follower in ready:
            follower.take(_KNOCK_S)
        elif not ready:
            follower.progress.tick()
        if launched not in ready:
            return False
        told = list(launched.events())
        for event in told:
            if text_in(event, "event") == "progress":
                follower.progress.show(_waiting(text_in(event, "text")))
        return any(text_in(event, "event") == "ready" for event in told)

    def _cancel(self) -> int:
        """Cancel the operation after Ctrl-C before the command began."""
        self._let_go()
        self._follower.progress.end()
        self._say("cancelled: what served before comes back")
        conversation = Conversation(CONTROL, self._path, CancelRequest())
        follower = OperationFollower(
            conversation, self._path, progress=self._follower.progress, raw=self._follower.raw
        )
        while follower.closing is None:
            follower.take(FRAME_S)
        follower.close()
        self._say(follower.closing.message)
        return int(Exit.DETACHED)

    def _say(self, text: str) -> None:
        """Print a sentence, unless --json is given, whose last event has it."""
        if not self._as_json:
            self._err.line(text)

    def _let_go(self) -> None:
        if self._launched is not None:
            self._launched.close()

    def _conclude(self, status: int | None) -> int:
        """Follow the operation to its end. The command's failure outranks that of the roll-back."""
        follower = self._follower
        while follower.closing is None:
            follower.take(FRAME_S)
        follower.progress.end()
        self._say(follower.closing.message)
        return status or exit_status(follower.closing)

    def _not_begun(self) -> int:
        """Return the exit status of a command that was never run, however the operation ended."""
        status = self._conclude(None)
        if status == Exit.OK:
            self._say("the command was not run")
        return status or int(Exit.RESTORED)


def _attend(launched: Launched) -> int | None:
    """Wait until the command has ended; None: no report of how it ended."""
    launched.go()
    while not launched.gone:
        select.select([launched], [], [])
        for event in launched.events():
            if text_in(event, "event") == "ended":
                killed_by = number_in(event, "signal")
                ended = number_in(event, "exit") or 0.0
                return int(ended if killed_by is None else _SIGNALLED + killed_by)
    return None


def _waiting(text: str) -> PhaseEvent:
    """Return the phase event for what the launcher waits for."""
    return PhaseEvent(phase="release", state="progress", text=text)
