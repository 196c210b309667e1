"""`python -m tests.chaos --seed N --faults N`: the last line is the verdict, as JSON."""

import argparse
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.bench.machine import say
from tests.chaos.clients import Clients
from tests.chaos.director import Director
from tests.chaos.observer import Observer
from tests.chaos.report import Report
from tests.chaos.sabotage import KINDS, sabotage
from tests.chaos.scenario import compiled, furnish, new_box
from tests.chaos.world import World
from tests.system.rig import Box, Image, missing, sweep
from tests.system.rig.appliance import fetch_wheels, install, sources

BOXES: Final = 5
FAULTS_A_BOX: Final = 12
"""Fewer are not worth a box."""


def main() -> int:
    """Run it; 1 when there was a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--boxes", type=int, default=BOXES)
    parser.add_argument("--dumps", type=Path, help="a directory for a dump of each violation")
    options = parser.parse_args()
    broken = os.environ.get("CHAOS_BREAK") or None
    if broken not in {None, *KINDS}:
        parser.error(f"CHAOS_BREAK is one of {', '.join(KINDS)}")
    if reason := missing():
        sys.exit(f"no chaos: {reason}")
    sweep()
    say("building the image")
    image = Image.build(Box(read_only=sources(fetch_wheels())), install)
    try:
        report = run(
            image,
            seed=options.seed,
            faults=options.faults,
            boxes=options.boxes,
            broken=broken,
            dumps=options.dumps,
        )
    finally:
        image.close()
    return report.close()


def run(
    image: Image,
    *,
    seed: int,
    faults: int,
    boxes: int = BOXES,
    broken: str | None = None,
    dumps: Path | None = None,
) -> Report:
    """Do `faults` faults to boxes that stand on `image`, side by side."""
    count = max(1, min(boxes, faults // FAULTS_A_BOX))
    shares = [faults // count + (i < faults % count) for i in range(count)]
    report = Report(seed=seed, faults=faults, dumps=dumps)
    watch, clock = compiled("watch.c"), compiled("clock.c", "-shared", "-fPIC")
    with ThreadPoolExecutor(count) as threads:
        jobs = [
            threads.submit(
                one_box, image, number, share, report, watch=watch, clock=clock, broken=broken
            )
            for number, share in enumerate(shares, 1)
        ]
        for job in jobs:
            job.result()
    return report


def one_box(
    image: Image,
    number: int,
    faults: int,
    report: Report,
    *,
    watch: Path,
    clock: Path,
    broken: str | None,
) -> None:
    """The life of one box."""
    say_here = report.speaker(number)
    with new_box(image, f"chaos-{os.getpid()}-{number}") as box:
        fleet, gpus = furnish(box, clock)
        if broken:
            sabotage(box, broken)
        with Observer(box, watch) as observer:
            observer.booted()
            world = World(
                number=number,
                box=box,
                fleet=fleet,
                gpus=gpus,
                observer=observer,
                clients=Clients(box),
                rng=random.Random(f"{report.seed}/{number}"),  # noqa: S311 - what happens, and when
                say=say_here,
            )
            fleet.switch(world.rng.choice(("large", "medium", "left", "right")))
            director = Director(world, faults, report.violated)
            try:
                director.run()
            finally:
                world.count_out_of_memory()
                report.add(director.tally, observer, len(world.out_of_memory))
                world.clients.cut()


if __name__ == "__main__":
    sys.exit(main())
