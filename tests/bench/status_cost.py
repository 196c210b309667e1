"""Cost of `appliance status` in this tree, as a multiple of that of an earlier commit.

Two boxes run side by side, each with one of the two trees installed, one model serving and the health agent at
work. They take turns, so that whatever disturbs one disturbs the other; a pair is a turn of each.

wall_ms     the whole command, from its start to its end
cpu_ms      CPU time of the command's process
daemons_ms  CPU time of supervisor and health agent for one command, their own work in that time included

usage: python -m tests.bench.status_cost [COMMIT]; without one: the parent commit
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.footprint import PYTHON, SETTLED_S, cpu_s
from tests.bench.machine import prepared, report, say
from tests.bench.turns import take_turns
from tests.system.fleet import Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import CHECKOUT, SOURCE, fetch_wheels, install, sources

TURNS = 31
RUNS = 9
"""Commands of a turn; its figure is their median."""
MOST_RATIO = 1.2
"""Share of the earlier cost that the command may have."""
_PROGRAM = "/usr/local/lib/test-engine/spent.py"
_SPENT = """
import json, resource, subprocess, sys, time
def spent(argv):
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(argv, capture_output=True, check=True)
    wall_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [wall_s * 1000, cpu_s * 1000]
print(json.dumps([spent(sys.argv[2:]) for _ in range(int(sys.argv[1]))]))
"""
_DAEMONS = ("appliance-supervisor", "appliance-health")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one command."""

    wall_ms: float
    cpu_ms: float
    daemons_ms: float


def main() -> None:
    """Print the figures."""
    commit = sys.argv[1] if sys.argv[1:] else "HEAD^"
    with ExitStack() as stack:
        before = stack.enter_context(checkout(commit))
        fleets = {
            name: stack.enter_context(serving(tree))
            for name, tree in (("before", before), ("now", CHECKOUT))
        }
        time.sleep(SETTLED_S)
        python_ms = statistics.median(wall for wall, _ in spent(fleets["now"], PYTHON.split()))
        turns = take_turns(TURNS, {name: partial(cost, fleet) for name, fleet in fleets.items()})
    figures: dict[str, float] = {"turns": TURNS, "python_ms": python_ms}
    for figure in ("wall_ms", "cpu_ms", "daemons_ms"):

        def of(one: Cost, figure: str = figure) -> float:
            return float(getattr(one, figure))

        ratio = turns.ratio("now", "before", of)
        say(
            f"{figure}: {turns.median('before', of):.2f}, now {turns.median('now', of):.2f}: {ratio:.3f}"
        )
        figures |= {
            f"{figure}_before": turns.median("before", of),
            f"{figure}_now": turns.median("now", of),
            f"{figure}_ratio": ratio,
        }
    report(figures)
    if max(figures["wall_ms_ratio"], figures["cpu_ms_ratio"]) > MOST_RATIO:
        sys.exit(f"status costs more than {MOST_RATIO} times what it cost at {commit}")


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The tree of a commit, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="status-before-") as folder:
        archive = subprocess.run(
            ["git", "-C", CHECKOUT, "archive", commit], check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


@contextmanager
def serving(tree: Path) -> Iterator[Fleet]:
    """A booted box with the appliance of a tree, one model serving."""
    seen = {**sources(fetch_wheels()), SOURCE: tree}
    with prepared(install, seen) as image, Box(image) as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.switch("a")
        box.write(_PROGRAM, _SPENT)
        yield fleet


def cost(fleet: Fleet) -> Cost:
    """Return the cost of one command, the median of some."""
    before_s = sum(cpu_s(fleet, unit) for unit in _DAEMONS)
    found = spent(fleet, ["appliance", "status"])
    daemons_s = sum(cpu_s(fleet, unit) for unit in _DAEMONS) - before_s
    wall_ms, cpu_ms = (statistics.median(column) for column in zip(*found, strict=True))
    return Cost(wall_ms=wall_ms, cpu_ms=cpu_ms, daemons_ms=daemons_s * 1000 / RUNS)


def spent(fleet: Fleet, argv: list[str]) -> list[tuple[float, float]]:
    """Run a command some times; return wall and CPU time of each in milliseconds."""
    done = fleet.box.run("/usr/bin/python3", "-I", "-S", _PROGRAM, str(RUNS), *argv)
    return [(wall_ms, cpu_ms) for wall_ms, cpu_ms in json.loads(done.stdout)]


if __name__ == "__main__":
    main()
