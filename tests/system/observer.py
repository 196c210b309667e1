"""Watches from outside who owns the devices: the kernel's view, not ours."""

import contextlib
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.system.fleet import ENGINE
from tests.system.rig import Box


class Observer:
    """Samples which test engines have a process in a box, all the time.

    `together` keeps every set of more than one that was ever seen; `samples` counts the looks.
    """

    def __init__(self, box: Box, *, every_s: float = 0.01) -> None:
        self._box = box
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.together: set[frozenset[str]] = set()
        self.samples = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self._every_s):
            owners = frozenset(self._owners())
            self.samples += 1
            if len(owners) > 1:
                self.together.add(owners)

    def _owners(self) -> list[str]:
        """Ports of the engines that run in the box now."""
        found = []
        with contextlib.suppress(OSError):
            inside = namespace(self._box.leader)
            for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - often
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if is_engine(words) and namespace(pid) == inside:
                        found.append(words[3].decode())
        return found


def namespace(pid: int | str) -> Path:
    """The process namespace of a process. Raises OSError when it is gone."""
    return Path(f"/proc/{pid}/ns/pid").readlink()


def is_engine(words: list[bytes]) -> bool:
    """Whether a command line is a test engine's own, not that of the wrapper before it."""
    return words[1:3] == [b"-S", ENGINE.encode()]
