"""Shell of a person in a box: commands one after the other, with one directory and one environment."""

import select
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from tests.system.rig import Box, RigError

_FOLDER: Final = "/var/tmp/transcripts"  # noqa: S108 - in the box
_SUDO: Final = 'sudo() { if [ "$1" = -u ]; then runuser -u "$2" -- "${@:3}"; else "$@"; fi; }\n'
"""Stand-in for root's sudo, which the machine may lack."""
_INTERRUPT_AFTER_S: Final = 3.0
_LONGEST_S: Final = 600.0
"""A probe takes minutes on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """End of a command."""

    status: int | None
    """None: it did not end in time, and was killed."""
    lines: Sequence[str]
    """Lines of stdout and stderr, in their order."""
    seconds: float


class BoxShell:
    """Shell that runs from here to `close`; a command sees `$?`, variables and directory of the one before."""

    def __init__(
        self, box: Box, *, user: str | None, directory: str, env: Mapping[str, str]
    ) -> None:
        self._box = box
        self._folder = f"{_FOLDER}/{user or 'root'}"
        owner = user or "root"
        box.run(f"mkdir -p {self._folder}; chown {owner} {self._folder}")
        self._stream = box.stream("bash", "--noprofile", "--norc", "-s", user=user, env=env)
        self._send(f"cd {shlex.quote(directory)}; status=0\n{_SUDO}echo $$")
        answer = self._answer(_LONGEST_S)
        if answer is None:
            raise RigError(f"the shell does not answer: {self._stream.errors()}")
        self._pid = int(answer)

    def run(self, command: str, *, typed: str = "", interrupted: bool = False) -> Ran:
        """Run a command.

        Args:
            command: Lines of shell.
            typed: Its standard input.
            interrupted: Send SIGINT after some seconds to what it has started.
        """
        self._box.write(f"{self._folder}/command", f"{command}\n")
        self._box.write(f"{self._folder}/typed", typed)
        # Here and not in a child: variables and the directory are for the next command, too.
        inside = f"(exit $status); . {self._folder}/command"
        began = time.monotonic()
        self._send(
            f"{inside} <{self._folder}/typed >{self._folder}/printed 2>&1; status=$?; echo $status"
        )
        if interrupted:
            self._interrupt()
        answer = self._answer(_LONGEST_S)
        if answer is None:
            self._box.run(f"pkill -KILL -P {self._pid}", check=False)
            self._answer(_LONGEST_S)
        printed = self._box.run("cat", f"{self._folder}/printed").stdout
        return Ran(
            status=None if answer is None else int(answer),
            lines=printed.splitlines(),
            seconds=time.monotonic() - began,
        )

    def close(self) -> None:
        """End the shell."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _interrupt(self) -> None:
        time.sleep(_INTERRUPT_AFTER_S)  # real time: the reader of the page looks at it for a while
        # On a busy machine the shell may not have started it yet.
        self._box.wait_for(f"pkill -INT -P {self._pid}", timeout_s=_LONGEST_S)

    def _send(self, line: str) -> None:
        pipe = self._stream.process.stdin
        assert pipe is not None
        pipe.write(f"{line}\n")
        pipe.flush()

    def _answer(self, within_s: float) -> str | None:
        pipe = self._stream.process.stdout
        assert pipe is not None
        ready, _, _ = select.select([pipe], [], [], within_s)
        if not ready:
            return None
        line = pipe.readline()
        if not line:
            raise RigError(f"the shell has ended: {self._stream.errors()}")
        return line.strip()
