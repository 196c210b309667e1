"""Command on a terminal of its own: what it writes, its keys, its size, its end."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.fakes.cli_box import CliBox

_PATIENCE_S: Final = 10.0


@dataclass
class OnTerminal:
    """A command whose output streams and input are one terminal."""

    process: subprocess.Popen[bytes]
    master: int
    seen: str = field(default="")
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=codecs.getincrementaldecoder("utf-8")
    )

    def until(self, pattern: str) -> str:
        """Return the text written until `pattern` is in it."""
        deadline = time.monotonic() + _PATIENCE_S
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.seen!r}"
            if not self.read(0.1):
                assert re.search(pattern, self.seen), self.seen
        return self.seen

    def read(self, within_s: float) -> bool:
        """Take what is written within some seconds; return whether the command may still write."""
        if select.select([self.master], [], [], within_s)[0]:
            try:
                # A character may come in two readings.
                self.seen += self._decoder.decode(os.read(self.master, 65_536))
            except OSError:  # EIO: the command has ended
                return False
        return True

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal, which tells the command by SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def echoes(self) -> bool:
        """Tell whether the terminal is in its usual mode: it echoes, line by line."""
        flags = termios.tcgetattr(self.master)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def status(self) -> int:
        """The exit status, once it has ended."""
        return self.process.wait(_PATIENCE_S)


@contextmanager
def on_terminal(
    box: CliBox,
    *arguments: str,
    columns: int = 100,
    environment: Mapping[str, str] | None = None,
) -> Iterator[OnTerminal]:
    """Run a command of a box on a new terminal of 24 rows; it is killed at the end if it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        box.command(*arguments),
        env={**box.environment, **(environment or {})},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=own_terminal,  # noqa: PLW1509 - the child must own the terminal for Ctrl-C
    )
    os.close(slave)
    try:
        yield OnTerminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)
