"""Caller of the program that runs a command (`appliance.launch.run`)."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Final, Self

from appliance.cli.failures import CliError
from appliance.model.json_reader import decode_json
from appliance.model.paths import RUN_DIR
from appliance.wire.json_values import Json
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

    The launcher gives the command both, so what is missing is told before any model stops. What only the
    kernel can tell, such as another machine's format, is left to the launcher.

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
    """Return the umask, which the kernel tells only when it is set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
