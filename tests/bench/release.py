"""Time that the wait for memory adds to its release, and starts that fail of it.

Two models that fill the same pretend GPUs are switched back and forth, in several boxes side by
side: such a switch mostly sleeps. In each switch the old model's memory stays in use for a time
drawn uniformly from 0 to 10 s after its process has ended. Both moments are taken from outside,
on the kernel's monotonic clock, which is the same in every box:

free      The last byte of the old model is free: its process was seen dead by a watcher that
          looks every 5 ms from outside the box, and the delay is over. Where the delay is
          shorter than what systemd and the gate take to be there at all, that is counted too.
started   systemd starts the new model's main process (ExecMainStartTimestampMonotonic of its
          unit): the gate has admitted it and has ended.

``added_ms`` is started less free, of every switch, with nothing taken off. A failed start is a
switch that did not end with the new model serving, or during which anybody ran out of memory.
"""

import itertools
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.bench.machine import percentile, prepared, report, say
from tests.pretend import Gpus, gpus_of, install
from tests.system.fleet import Fleet
from tests.system.rig import Box, Image
from tests.system.rig.appliance import install as install_appliance

SWITCHES = 200
LONGEST_S = 10.0
BOXES = min(8, 3 * (os.cpu_count() or 1))
SEED = 1
WATCH_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One switch."""

    delay_s: float
    failure: str = ""
    """Empty: it worked."""
    added_ms: float = 0.0


class Watcher:
    """Writes down the death of every holder of a box the moment it happens."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while all(hold.alive for hold in self._gpus.holds()) and not self._end.wait(WATCH_S):
            pass

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def main() -> None:
    """Print the figures."""
    draw = random.Random(SEED)  # noqa: S311 - the same delays in every run
    delays = [draw.uniform(0.0, LONGEST_S) for _ in range(SWITCHES)]
    outcomes: list[Outcome] = []
    with prepared(_prepare) as image, ThreadPoolExecutor(BOXES) as boxes:
        for done in boxes.map(lambda part: run(image, part), _parts(delays)):
            outcomes += done
    failed = [o for o in outcomes if o.failure]
    for outcome in failed:
        say(f"failed, released after {outcome.delay_s:.2f} s: {outcome.failure}")
    added = [o.added_ms for o in outcomes if not o.failure]
    for outcome in sorted(outcomes, key=lambda o: -o.added_ms)[:3]:
        say(f"slowest: {outcome.added_ms:.0f} ms, released after {outcome.delay_s:.2f} s")
    report(
        {
            "switches": len(outcomes),
            "failed_starts": len(failed),
            "added_ms_p50": percentile(added, 0.50),
            "added_ms_p99": percentile(added, 0.99),
        }
    )


def _prepare(box: Box) -> None:
    install_appliance(box)
    install(box)


def _parts(delays: list[float]) -> list[list[float]]:
    return [delays[number::BOXES] for number in range(BOXES)]


def run(image: Image, delays: list[float]) -> list[Outcome]:
    """Switch back and forth in a box of its own, once for each delay."""
    with Box(image) as box:
        fleet, gpus = Fleet(box), gpus_of(box)
        fleet.gpu_pair()
        fleet.switch("a")
        names = itertools.cycle("ba")
        outcomes = [switch(fleet, gpus, next(names), delay_s) for delay_s in delays]
    say(f"{box.name}: {len(outcomes)} switches")
    return outcomes


def switch(fleet: Fleet, gpus: Gpus, name: str, delay_s: float) -> Outcome:
    """One switch to `name`, with the memory of the other released after `delay_s`."""
    gpus.release_after(delay_s)
    before = len(gpus.released()), len(gpus.out_of_memory())
    with Watcher(gpus):
        answer = fleet.cli("switch", name)
    if answer.exit or len(gpus.out_of_memory()) > before[1]:
        gpus.release_after(0.0)
        time.sleep(1.0)
        fleet.switch(name)  # so that the next one starts where it should
        return Outcome(delay_s=delay_s, failure=str(answer.result["message"]))
    started_s = int(fleet.show(name, "ExecMainStartTimestampMonotonic")) / 1e6
    free_s = max(gpus.released()[before[0] :])
    return Outcome(delay_s=delay_s, added_ms=(started_s - free_s) * 1000)


if __name__ == "__main__":
    main()
