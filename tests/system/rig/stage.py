"""The mounts of a box, in a mount namespace that nothing else sees.

A small process holds the namespace open. It waits for its standard input to end, so it goes when
its owner does, however that happens, and the kernel takes the mounts down with it.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.system.rig.host import RigError

_HOLD = """
mount -t tmpfs -o mode=755 tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root" && echo ready && exec 2>/dev/null && read -r _
"""


class Stage:
    """A private mount namespace with a tmpfs on `directory`."""

    def __init__(self, directory: Path, *, inside: "Stage | None" = None) -> None:
        """Open the namespace.

        Args:
            directory: an existing, empty directory.
            inside: another stage whose mounts shall be visible in this one.
        """
        self.directory = directory
        enter = ["nsenter", "-t", str(inside.pid), "-m"] if inside else []
        isolate = ["unshare", "-m", "--propagation", "private"]
        self._holder = subprocess.Popen(
            [*enter, *isolate, "sh", "-c", _HOLD, "sh", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C on the terminal must not take the disk away
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            raise RigError(f"cannot mount a tmpfs on {directory}")

    @property
    def pid(self) -> int:
        """The process that holds the namespace."""
        return self._holder.pid

    def seen(self, path: Path) -> Path:
        """`path` inside the namespace, as this process can reach it."""
        return Path(f"/proc/{self.pid}/root{path}")

    @property
    def upper(self) -> Path:
        """Return the directory of all changes that the box made."""
        return self.directory / "upper"

    @property
    def root(self) -> Path:
        """The box's root directory, once overlaid."""
        return self.directory / "root"

    def overlay(self, lower: Sequence[Path]) -> None:
        """Mount the box's root over `lower`, highest layer first."""
        layers = ":".join(str(p) for p in lower)
        work = self.directory / "work"
        options = f"lowerdir={layers},upperdir={self.upper},workdir={work}"
        self.run("mount", "-t", "overlay", "overlay", "-o", options, str(self.root))

    def run(self, *argv: str) -> str:
        """Run a command of the machine's inside the namespace; return what it printed."""
        command = ["nsenter", "-t", str(self.pid), "-m", *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RigError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """Let go of the namespace."""
        for pipe in (self._holder.stdin, self._holder.stdout):
            if pipe is not None:
                pipe.close()
        self._holder.wait(10)
