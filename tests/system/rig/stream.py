"""A command that keeps running in a box while the caller does something else."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.system.rig.host import RigError


class Stream:
    """A running command: its lines as they come, its signals, its end."""

    def __init__(self, argv: Sequence[str], *, tty: bool = False) -> None:
        """Start `argv`, which enters the box and runs the command there.

        Args:
            argv: the whole command of the machine's.
            tty: leave the caller's own input, output and errors to the command.
        """
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `close`
        pipe = None if tty else subprocess.PIPE
        self.process = subprocess.Popen(
            argv,
            stdin=pipe,
            stdout=pipe,
            stderr=None if tty else self._errors,
            text=True,
            start_new_session=not tty,
        )

    def lines(self) -> Iterator[str]:
        """Lines of its standard output, without their ends, until it closes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.rstrip("\n")

    def errors(self) -> str:
        """Return the text on standard error so far."""
        self._errors.seek(0)
        return self._errors.read()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, not to what entered the box for it."""
        os.kill(self._command_pid(), number)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for its end; the exit status."""
        return self.process.wait(timeout_s)

    def resume(self) -> None:
        """Let what entered the box go on. It stops itself when its command is stopped.

        A shutdown stops every process before it kills them; a stopped nsenter would never
        reap its command, and the shutdown would wait for that one.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it if it still runs, and let go of its pipes."""
        if self.process.poll() is None:
            with contextlib.suppress(RigError, ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._errors.close()

    def _command_pid(self) -> int:
        """The one child of nsenter, which forks to get into the process namespace."""
        pid = self.process.pid
        for _ in range(200):
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                if children:
                    return int(children[0])
            time.sleep(0.01)
        raise RigError(f"the command of {self.process.args!r} is not running")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
