"""One box under chaos: everything that faults, people and verdicts act on."""

import contextlib
import heapq
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.clients import Clients
from tests.chaos.observer import Observer
from tests.chaos.scenario import CLOCK_FILE, STATE
from tests.pretend import Gpus
from tests.system.fleet import Fleet
from tests.system.rig import Box, RigError, Stream

BALLAST: Final = f"{STATE}/ballast"
_CHUNK: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class Trainer:
    """Process of a foreign program on a GPU."""

    stream: Stream
    pid: int
    """Process ID as the box knows it."""


@dataclass(slots=True, kw_only=True)
class World:
    """A box, what was done to it, and what will be undone.

    `pause` is how time passes: it undoes what is due.
    """

    number: int
    box: Box
    fleet: Fleet
    gpus: Gpus
    observer: Observer
    clients: Clients
    rng: random.Random
    say: Callable[[str], None]
    boots: int = 1
    trainers: list[Trainer] = field(default_factory=list)
    foreign_pids: set[int] = field(default_factory=set)
    """Every trainer there ever was."""
    memory_kept: bool = False
    """The bytes of whatever dies stay in use for ever."""
    out_of_memory: list[str] = field(default_factory=list)
    """Allocations of our backends that did not fit."""
    may_be_held: bool = False
    may_be_stopped: bool = False
    may_be_evicted: bool = False
    """Whether a rival was started by hand: the profile that it evicted stays down while the rival
    serves, no longer."""
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _oom_lines: int = 0

    # --- time ------------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in a while."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), action))

    def pause(self, seconds: float) -> None:
        """Let time pass, and do what is due meanwhile."""
        end_s = time.monotonic() + seconds
        while True:
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                heapq.heappop(self._due)[2]()
            next_s = min(self._due[0][0] if self._due else end_s, end_s)
            if time.monotonic() >= end_s:
                return
            time.sleep(max(0.0, next_s - time.monotonic()))

    def finish_what_is_due(self) -> None:
        """Undo at once what would be undone later."""
        while self._due:
            heapq.heappop(self._due)[2]()

    # --- boots -----------------------------------------------------------------------------

    def power_cut(self) -> None:
        """Pull the plug and boot again."""
        self._goes_down()
        self.box.unplug()
        self.clients.cut()
        self.box.boot()
        self._came_up()

    def reboot(self) -> None:
        """Reboot in good order."""
        self._goes_down()
        self.box.reboot()
        self.clients.cut()
        self._came_up()

    def _goes_down(self) -> None:
        self.count_out_of_memory()
        self._due.clear()
        self.gpus.release_after(0)
        self.memory_kept = False

    def _came_up(self) -> None:
        for trainer in self.trainers:
            trainer.stream.process.kill()
        self.trainers.clear()
        self.foreign_pids.clear()
        self._oom_lines = 0
        self.boots += 1
        self.empty_disk()
        self.observer.booted()

    # --- things to do ------------------------------------------------------------------------

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Signal a process by its pid on this machine; False: it is gone."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def resume(self, pid: int) -> None:
        """Let a stopped process go on; fine when it is gone."""
        self.signal(pid, signal.SIGCONT)

    def run(self, *argv: str, timeout_s: float = 20.0) -> str:
        """Run a command in the box and ignore how it ends; what it printed."""
        with contextlib.suppress(RigError):
            done = self.box.run(*argv, check=False, timeout_s=timeout_s)
            return done.stdout + done.stderr
        return ""

    def fill_disk(self) -> None:
        """Leave not one block of the state directory's disk."""
        path = self._ballast()
        with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
            for size in (_CHUNK, 4096, 512):
                with contextlib.suppress(OSError):
                    while file.write(b"\1" * size):
                        pass

    def empty_disk(self) -> None:
        """Give the space back."""
        self._ballast().unlink(missing_ok=True)

    def _ballast(self) -> Path:
        return Path(f"/proc/{self.box.leader}/root{BALLAST}")

    def set_clock(self, offset_s: float) -> None:
        """Set the clock of our programs so far from the machine's."""
        with (self.box.root / CLOCK_FILE.lstrip("/")).open("r+b") as file:
            file.write(round(offset_s * 1e9).to_bytes(8, "little", signed=True))

    def count_out_of_memory(self) -> int:
        """Note the allocations of our backends that failed; how many there were in all."""
        lines = self.gpus.out_of_memory()
        for line in lines[self._oom_lines :]:
            if int(line.split()[1]) not in self.foreign_pids:
                self.out_of_memory.append(line)
        self._oom_lines = len(lines)
        return len(self.out_of_memory)
