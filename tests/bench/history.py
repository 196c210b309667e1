"""Cost of ten years of probes: ``python -m tests.bench.history``.

A probe of one profile every 15 minutes, with the evidence of two GPUs, once as nobody has down-sampled
them and once as the store keeps them. Of the figures in the last line, which is JSON::

    history_30d_ms     both series of 30 days as the command asks for them, from the store
    command_30d_ms     the whole command ``appliance history --since 30d``, started as install.sh starts
                       it, answered by the agent's own server
    python_ms          a Python that does nothing
    step_ms            one reading in the detector, with its state as JSON

Those of commands and queries are medians of eleven.
"""

import asyncio
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.model.words import Series
from appliance.speed.detector import Detector
from appliance.system.sqlite.database import open_or_replace, transaction
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.system.sqlite.measurement_tables import MEASUREMENTS, to_probe_row
from appliance.wire.health_socket import MOST_ROWS
from tests.fakes.health_thread import health_thread
from tests.fakes.probe_rows import probe
from tests.fakes.profiles import applied

PROBES = 350_400
NOW = time.time()
DAY_S = 86400.0
HOUR_S = 3600.0
RUNS = 11
STEPS = 5000
ROOT = Path(__file__).parents[2]
COMMAND = f"import sys; sys.path.append({str(ROOT)!r}); from appliance.cli.main import run; run()"


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "measurements.sqlite")
        figures = asyncio.run(_measure(path, lambda: _commands(path)))
    figures["step_ms"] = _step_ms()
    rounded = {name: round(value, 3) for name, value in figures.items()}
    sys.stdout.write(json.dumps(rounded) + "\n")


async def _measure(path: Path, commands: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    _fill(path)
    figures: dict[str, float] = {"rows": PROBES, "file_mib": _mib(path)}
    store = MeasurementStore(path)
    figures["open_ms"] = await _ms(store.open)

    def since(days: float, span_s: float | None) -> Callable[[], Awaitable[object]]:
        begin, both = NOW - days * DAY_S, tuple(Series)
        return lambda: store.histories("genesis", both, begin, span_s=span_s, most=MOST_ROWS)

    figures["history_30d_ms"] = await _median_ms(since(30, HOUR_S))
    figures["add_ms"] = await _median_ms(lambda: store.add(probe=probe(NOW)))
    steps = []
    more = True
    while more:
        began = time.perf_counter()
        more = await store.compact(NOW)
        steps.append((time.perf_counter() - began) * 1000)
    for _ in range(200):  # What is free goes back in further steps.
        await store.compact(NOW)
    figures |= {"compact_steps": len(steps), "compact_step_ms_max": max(steps)}
    await store.close()
    figures["compacted_file_mib"] = _mib(path)
    store = MeasurementStore(path)
    figures["compacted_open_ms"] = await _ms(store.open)
    figures["compacted_history_30d_ms"] = await _median_ms(since(30, HOUR_S))
    figures["compacted_history_10y_ms"] = await _median_ms(since(3650, DAY_S))
    await store.close()
    return {**figures, **commands()}


def _fill(path: Path) -> None:
    """Write the rows in one transaction; the store would take half an hour for them."""
    row = to_probe_row(probe(0.0))

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(PROBES):
            began = NOW - (PROBES - number) * 900.0
            speed = 4.0 + (number * 7919 % 100) / 1000
            yield {
                **row,
                "began_unix_s": began,
                "decode_s": speed,
            }

    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    db, _ = open_or_replace(path, MEASUREMENTS)
    with transaction(db):
        db.executemany(f"INSERT INTO probes ({columns}) VALUES ({places})", rows())  # noqa: S608
    db.close()


def _commands(path: Path) -> Mapping[str, float]:
    """Return the times of commands that are answered by the agent's server."""
    catalogue = {"genesis": applied("genesis")}
    control_socket = path.parent / "control.sock"
    with health_thread(path.parent / "health.sock", path, catalogue):
        python = [sys.executable, "-IS", "-c", "pass"]
        command = [sys.executable, "-IS", "-c", COMMAND]
        history = [*command, "history", "genesis", "--socket", str(control_socket), "--since"]
        return {
            "python_ms": _median_run_ms(python),
            "command_30d_ms": _median_run_ms([*history, "30d"]),
            "command_10y_ms": _median_run_ms([*history, "3650d"]),
        }


def _median_run_ms(command: Sequence[str]) -> float:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def _step_ms() -> float:
    """Return the median time of a reading in the detector, with its state as JSON."""
    detector, noise, times = Detector(), random.Random(1), []  # noqa: S311 - figures
    detector.accept(0.0)
    for number in range(STEPS):
        rate = 41.0 * math.exp(noise.gauss(0.0, 0.01))
        began = time.perf_counter()
        detector.step(60.0 + number * 15.0, rate, prompt="refactor")
        detector.encoded()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


async def _ms(job: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await job()
    return (time.perf_counter() - began) * 1000


async def _median_ms(job: Callable[[], Awaitable[object]]) -> float:
    return statistics.median([await _ms(job) for _ in range(RUNS)])


def _mib(path: Path) -> float:
    return path.stat().st_size / (1 << 20)


if __name__ == "__main__":
    main()
