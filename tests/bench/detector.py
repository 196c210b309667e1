"""Acceptance of the regression detector: false alerts in healthy years, delays in real losses.

Prints a table of figures by seed and of simple rivals, then JSON. `ForRunner` has the methods that
other runners of such detectors expect.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields

from appliance.speed.detector import Alert, Detector
from tests.bench.detector_acceptance import Contestant, Record, failed, judge
from tests.bench.detector_rivals import Cusum, ThreeInARow
from tests.bench.machine import say
from tests.bench.probe_world import DAY_MIN, Climate, ProbeWorld

SEEDS = (1, 2, 3, 4)
YEARS = 10
EPISODES = 100


class ForRunner:
    """Our detector with the methods accept, restart and step, and the attribute wake."""

    def __init__(self) -> None:
        self._detector = Detector()

    @property
    def wake(self) -> float | None:
        return self._detector.wake_min

    def accept(self, t: float) -> None:
        self._detector.accept(t)

    def restart(self, t: float) -> None:
        self._detector.restart(t)

    def step(self, t: float, x: float | None) -> list[tuple[str, float]]:
        return [
            ("ALERT" if isinstance(event, Alert) else "RECOVERED", event.drop)
            for event in self._detector.step(t, x)
        ]


CONTESTANTS: Mapping[str, Callable[[], Contestant]] = {
    "ours": ForRunner,
    "three in a row": ThreeInARow,
    "cusum": Cusum,
}


def main() -> int:
    """Print the figures."""
    options = _options()
    climate = Climate(
        **{
            each.name: value
            for each in fields(Climate)
            if (value := getattr(options, each.name)) is not None
        }
    )
    names = ["ours", *([] if options.ours else ["three in a row", "cusum"])]
    turns = [(name, seed) for name in names for seed in options.seeds]
    records = {name: Record() for name in names}
    misses: list[str] = []
    worst: dict[str, float] = {}
    with ProcessPoolExecutor() as pool:
        found = pool.map(
            _judge,
            *zip(
                *((n, s, options.years, options.episodes, climate) for n, s in turns), strict=True
            ),
        )
        for (name, seed), record in zip(turns, found, strict=True):
            figures = record.figures()
            say(f"{name}, seed {seed}: {_text(figures)}")
            records[name].add(record)
            if name == "ours":
                misses += [f"seed {seed}: {miss}" for miss in failed(figures)]
                for figure, value in figures.items():
                    least = min if figure.startswith(("found", "held")) else max
                    worst[figure] = least(worst.get(figure, value), value)
    for name, record in records.items():
        say(f"{name}, pooled: {_text(record.figures())}")
    document = {
        "seeds": options.seeds,
        "failed_targets": len(misses),
        "misses": misses,
        **_rounded(records["ours"].figures()),
        "worst": _rounded(worst),
        **_cost(),
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 1 if misses else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--years", type=int, default=YEARS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--ours", action="store_true", help="leave out the rivals")
    for each in fields(Climate):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float)
    return parser.parse_args()


def _judge(name: str, seed: int, years: int, episodes: int, climate: Climate) -> Record:
    return judge(CONTESTANTS[name], str(seed), years=years, episodes=episodes, climate=climate)


def _rounded(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Return figures for JSON, which has no infinity: null, where a delay has no end."""
    return {
        name: round(value, 2) if math.isfinite(value) else None for name, value in figures.items()
    }


def _text(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def _cost() -> dict[str, float]:
    """Return the mean CPU time of a step with its encoding, and the longest state of a month."""
    world = ProbeWorld("cost", 30)
    detector = Detector()
    detector.accept(0.0)
    readings = [(minute, rate) for minute, rate in world.schedule if minute < 29 * DAY_MIN]
    longest = 0
    began = time.process_time()
    for minute, rate in readings:
        detector.step(minute, rate)
        longest = max(longest, len(detector.encoded()))
    took = time.process_time() - began
    return {"step_and_encode_us": round(1e6 * took / len(readings), 1), "state_bytes": longest}


if __name__ == "__main__":
    sys.exit(main())
