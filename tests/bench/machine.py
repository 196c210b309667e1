"""A box with the appliance installed, for a benchmark."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image, missing, sweep
from tests.system.rig.appliance import fetch_wheels, install, sources


@contextmanager
def installed() -> Iterator[Fleet]:
    """A booted box with the profiles a and b, which can never run together."""
    with prepared(install) as image, Box(image) as box:
        fleet = Fleet(box)
        fleet.pair()
        yield fleet


@contextmanager
def prepared(
    prepare: Callable[[Box], None], seen: Mapping[str, Path] | None = None
) -> Iterator[Image]:
    """A disk on which many boxes can be stacked; `seen`: what it sees instead of this checkout and the wheels."""
    if reason := missing():
        sys.exit(f"no figures: {reason}")
    sweep()
    image = Image.build(Box(read_only=seen or sources(fetch_wheels())), prepare)
    try:
        yield image
    finally:
        image.close()


def stopwatch(fleet: Fleet, commands: list[str], *, pause_s: float = 0.0) -> list[float]:
    """Run shell lines in the box, one after the other; milliseconds of each, entering excluded."""
    path = "/usr/local/lib/test-engine/stopwatch.py"
    fleet.box.write(path, Path(__file__).with_name("stopwatch.py").read_text(encoding="utf-8"))
    done = fleet.box.run(
        "/usr/bin/python3", path, str(pause_s), stdin="\n".join(commands), timeout_s=600
    )
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def say(text: str) -> None:
    """A line for whoever watches."""
    sys.stderr.write(f"{text}\n")


def report(figures: Mapping[str, float]) -> None:
    """The last line: one JSON object."""
    sys.stdout.write(json.dumps({name: round(value, 2) for name, value in figures.items()}) + "\n")


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, min(len(ranked) - 1, round(share * len(ranked) + 0.5) - 1))]
