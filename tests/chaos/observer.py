"""Observer of the owners of a box's pretend GPUs, by a program of its own (``watch.c``)."""

import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.chaos.scenario import MODELS
from tests.pretend.boxes import HOLDS
from tests.system.rig import Box, RigError

EVERY_US: Final = 10_000
ENOUGH_A_SECOND: Final = 50.0
"""Fewer samples than that prove nothing."""
_GROUPS: Final = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def group_of(box: Box, unit: str, within: str = "system.slice") -> Path:
    """The control group of a unit in a box; it is there while the unit has processes."""
    tree = next(t for t in _GROUPS if (t / "cgroup.procs").exists())
    return tree / box.group / "payload" / within / unit


def backend_group(box: Box, name: str) -> Path:
    """The control group of a model's backend."""
    return group_of(box, f"appliance-backend-{name}.service", "appliance.slice")


def most_rivals(owners: Sequence[str]) -> int:
    """Return the size of the largest set of mutual rivals that own a device together."""
    for size in range(len(owners), 1, -1):
        for some in combinations(owners, size):
            pairs = combinations(some, 2)
            if all(MODELS[a].claim.intersects(MODELS[b].claim) for a, b in pairs):
                return size
    return min(len(owners), 1)


class Observer:
    """Samples a box from before its first to after its last boot.

    `owners_max` is the most that ever owned one thing together, `together` says when and who.
    """

    def __init__(self, box: Box, program: Path) -> None:
        self.owners: tuple[str, ...] = ()
        self.owners_max = 0
        self.together: list[str] = []
        self.samples = 0
        self.longest_gap_ms = 0.0
        self._names = sorted(MODELS)
        self._box = box
        groups = [str(backend_group(box, name)) for name in self._names]
        self._process = subprocess.Popen(
            [str(program), str(EVERY_US), *groups],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def booted(self) -> None:
        """Look at the holds of the boot that runs now."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"holds /proc/{self._box.leader}/root{HOLDS}\n")

    @property
    def a_second(self) -> float:
        """Samples taken, a second."""
        return self.samples / max(1.0, time.monotonic() - self._began_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._thread.join()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, first, second, *rest = line.split()
            match word:
                case "samples":
                    self.samples += int(first)
                    self.longest_gap_ms = max(self.longest_gap_ms, int(second) / 1000)
                case "owners":
                    self.owners = tuple(self._named(int(second)))
                    self.owners_max = max(self.owners_max, min(len(self.owners), 1))
                case "together":
                    self._note(int(first) / 1e6, tuple(self._named(int(second))), rest)
                case _:
                    raise RigError(f"the watcher says {line!r}")

    def _note(self, at_s: float, owners: tuple[str, ...], how: Sequence[str]) -> None:
        rivals = most_rivals(owners)
        self.owners_max = max(self.owners_max, rivals)
        text = f"{', '.join(owners)} own together ({' '.join(how)}) at {at_s:.3f} s"
        if rivals > 1 and len(self.together) < 100:
            self.together.append(text)

    def _named(self, mask: int) -> Iterable[str]:
        return (name for bit, name in enumerate(self._names) if mask >> bit & 1)
