"""Cost of ten years of probes: ``python -m tests.bench.history``.

A probe every 15 minutes, of two profiles in turn, with the evidence of two GPUs, once as nobody has
down-sampled them and once as the store keeps them. `history_30d_ms` is the median of eleven queries
of the store; what the command adds is its start and its way over the socket. The last line is JSON.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from appliance.adapters.sqlite.database import open_or_replace, transaction
from appliance.adapters.sqlite.measurement_rows import to_probe_row
from appliance.adapters.sqlite.measurement_store import MeasurementStore
from appliance.adapters.sqlite.measurement_tables import MEASUREMENTS
from appliance.domain.measurements import Series
from tests.fakes.probe_rows import probe

PROBES = 350_400
NOW = 1_800_000_000.0
DAY_S = 86400.0
RUNS = 11
PROFILES = ("genesis", "aeon")


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_measure(Path(folder, "measurements.sqlite")))
    sys.stdout.write(json.dumps({name: round(value, 1) for name, value in figures.items()}) + "\n")


async def _measure(path: Path) -> dict[str, float]:
    _fill(path)
    figures: dict[str, float] = {"rows": PROBES, "file_mib": _mib(path)}
    store = MeasurementStore(path)
    figures["open_ms"] = await _ms(store.open)

    def since(days: float, span_s: float | None = None) -> Callable[[], Awaitable[object]]:
        begin = NOW - days * DAY_S
        return lambda: store.history("genesis", Series.DECODE, begin, span_s=span_s)

    figures["history_30d_ms"] = await _median_ms(since(30))
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
    figures["compacted_history_30d_ms"] = await _median_ms(since(30))
    figures["compacted_history_10y_ms"] = await _median_ms(since(3650, 30 * DAY_S))
    await store.close()
    return figures


def _fill(path: Path) -> None:
    """Write the rows in one transaction; the store would take half an hour for them."""
    row = to_probe_row(probe(0.0))

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(PROBES):
            began = NOW - (PROBES - number) * 900.0
            speed = 4.0 + (number * 7919 % 100) / 1000
            yield {
                **row,
                "profile": PROFILES[number % 2],
                "began_unix_s": began,
                "decode_s": speed,
            }

    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    db, _ = open_or_replace(path, MEASUREMENTS)
    with transaction(db):
        db.executemany(f"INSERT INTO probes ({columns}) VALUES ({places})", rows())  # noqa: S608
    db.close()


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
