"""The other end of the program that runs a command (`appliance.launch.run`): its caller's."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Final, Self

from appliance.cli.failures import CliError
from appliance.domain.paths import RUN_DIR
from appliance.protocol.json_fields import Json

SOCKET: Final = f"{RUN_DIR}/socket"
_STDIO: Final = (0, 1, 2)
_CHUNK: Final = 65_536
_PATIENCE_S: Final = 10.0
_PASSED_ON: Final = ("INT", "QUIT", "TERM", "HUP", "WINCH", "USR1", "USR2", "TSTP", "CONT")


class HungUp(BaseException):
    """The terminal is gone, or somebody wants us to believe so."""


class Launched:
    """A connection to the launcher; None from `connect` while it does not listen yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.gone = False
        """It has ended: nothing more will come."""
        self._connection = connection
        self._buffer = b""

    @classmethod
    def connect(cls, path: str) -> Self | None:
        """A new connection; None: nobody listens, or not yet for us."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            return None
        return cls(connection)

    def fileno(self) -> int:
        """For select."""
        return self._connection.fileno()

    def close(self) -> None:
        """Let go: the command, if there is one, is told to end."""
        self._connection.close()

    def ask(self, command: Sequence[str], gpus: str | Sequence[int], token: str) -> None:
        """Hand over what is to be run, with our own surroundings and the supervisor's token."""
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
        """Give the command a signal that we got."""
        self._say({"signal": name})

    def _say(self, document: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(document).encode() + b"\n")

    def events(self) -> Iterator[Json]:
        """Return what has come; waits for it."""
        try:
            chunk = self._connection.recv(_CHUNK)
        except OSError:
            chunk = b""
        self.gone = not chunk
        self._buffer += chunk
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            yield json.loads(line)


@contextlib.contextmanager
def passing_on(launched: Launched) -> Iterator[None]:
    """While this lasts, signals are the command's; those that we were born to ignore stay so."""

    def take(number: int, _frame: FrameType | None) -> None:
        launched.pass_on(signal.Signals(number).name.removeprefix("SIG"))
        if number == signal.SIGHUP:
            raise HungUp
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # and our shell takes over

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
    """Standard input, output and error; the null device for one that is closed."""
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
    """The kernel tells it only to who sets it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
