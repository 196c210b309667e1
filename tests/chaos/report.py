"""Report of a run: a line for each moment, the dumps, and the verdict."""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.director import Tally
from tests.chaos.observer import Observer


class Report:
    """Collects what the boxes have shown. Its methods may be called from any thread.

    Args:
        seed: Of the run.
        faults: Asked for.
        dumps: Where to put a dump of each violation; None: on standard error.
    """

    def __init__(self, *, seed: int, faults: int, dumps: Path | None = None) -> None:
        self.seed = seed
        self.faults = faults
        self._dumps = dumps
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._tally = Tally()
        self._owners_max = 0
        self._oom = 0
        self._samples: list[str] = []
        self._violations: list[str] = []

    def speaker(self, number: int) -> Callable[[str], None]:
        """Return the printer of one box's lines."""

        def say(text: str) -> None:
            with self._lock:
                at_s = time.monotonic() - self._began_s
                sys.stderr.write(f"[box {number}] {at_s:7.2f} s  {text}\n")

        return say

    def violated(self, what: str, dump: str) -> None:
        """Keep a violation."""
        with self._lock:
            self._violations.append(what)
            if self._dumps is None:
                sys.stderr.write(f"--- {what}\n{dump}\n---\n")
                return
            self._dumps.mkdir(parents=True, exist_ok=True)
            path = self._dumps / f"{self.seed}-{len(self._violations)}.txt"
            path.write_text(f"{what}\n\n{dump}\n", encoding="utf-8")

    def add(self, tally: Tally, observer: Observer, oom: int) -> None:
        """Add the findings of one box."""
        with self._lock:
            mine = self._tally
            mine.faults += tally.faults
            mine.lost_operations += tally.lost_operations
            mine.unconverged += tally.unconverged
            mine.rests += tally.rests
            mine.kinds += tally.kinds
            mine.slowest_s = max(mine.slowest_s, tally.slowest_s)
            self._owners_max = max(self._owners_max, observer.owners_max)
            self._oom += oom
            self._samples.append(
                f"{observer.samples} samples, {observer.a_second:.0f} a second, "
                f"longest gap {observer.longest_gap_ms:.0f} ms"
            )

    @property
    def verdict(self) -> dict[str, int]:
        """The last line."""
        return {
            "seed": self.seed,
            "faults": self._tally.faults,
            "owners_max": self._owners_max,
            "oom": self._oom,
            "lost_operations": self._tally.lost_operations,
            "unconverged": self._tally.unconverged,
        }

    @property
    def broken(self) -> bool:
        """Whether anything was violated."""
        v = self.verdict
        return v["owners_max"] != 1 or any(v[k] for k in ("oom", "lost_operations", "unconverged"))

    def close(self) -> int:
        """Print what there is to say; the exit status."""
        tally = self._tally
        for line in (
            f"faults: {_counted(tally.kinds)}",
            f"left alone: {_counted(tally.rests)}; the slowest took {tally.slowest_s:.1f} s",
            *(f"observer: {line}" for line in self._samples),
            *(f"violation: {line}" for line in self._violations),
        ):
            sys.stderr.write(f"{line}\n")
        sys.stdout.write(f"{json.dumps(self.verdict)}\n")
        return int(self.broken)


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common())
