"""Rates of a bench by the definitions of the published method (docs/how-to/measure-speed.md).

- tok/s of a request: completion tokens as the API counts them, over its wall time
- effective tok/s of a level: all its completion tokens over the wall time of the level
- per-task tok/s: mean of the tok/s of its requests
- contention: 1 - per-task(C) / per-task(1)
- speed-up: wall time of the same tokens one request after another, over that of the level
- concurrency reached: requests that were in flight together, not those that were asked for
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from appliance.model.measurements import BoxGpus
from appliance.speed.bench.request_row import RequestRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedConcurrency:
    """Concurrency that was reached, from the intervals in which requests were in flight."""

    most: int
    mean: float
    """Mean over the wall time of the level."""
    full_share: float
    """Share of the wall time in which at least as many were in flight as were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRates:
    """Rates of all requests of one concurrency; None: no request came to its end."""

    concurrency: int
    """Requests that were asked for at once."""
    reached: ReachedConcurrency
    requests: int
    failed: int
    output_tokens: int
    wall_s: float
    """Sum over the runs of the level."""
    effective_tok_s: float | None
    per_task_tok_s: float | None
    contention: float | None = None
    """None: nothing was measured at concurrency 1; likewise for the next."""
    speedup: float | None = None


def request_tok_s(row: RequestRow) -> float | None:
    """Return completion tokens over wall time; None: the request failed."""
    if row.error or row.wall_s <= 0:
        return None
    return row.output_tokens / row.wall_s


def contention(per_task_tok_s: float, serial_per_task_tok_s: float) -> float:
    """Return the share of a request's speed that it loses to those beside it."""
    return 1 - per_task_tok_s / serial_per_task_tok_s


def speedup(serial_wall_s: float, swarm_wall_s: float) -> float:
    """Return how many times sooner the same work is done."""
    return serial_wall_s / swarm_wall_s


def reached(rows: Iterable[RequestRow], concurrency: int) -> ReachedConcurrency:
    """Return the concurrency that rows of one run have reached."""
    # At the same moment an end comes before a beginning.
    changes = sorted(
        change for row in rows if row.wall_s > 0 for change in ((row.sent_s, 1), (row.ended_s, -1))
    )
    in_flight = most = 0
    busy_s = full_s = 0.0
    for (at_s, change), (next_s, _) in pairwise(changes):
        in_flight += change
        most = max(most, in_flight)
        busy_s += in_flight * (next_s - at_s)
        full_s += (next_s - at_s) * (in_flight >= concurrency)
    wall_s = changes[-1][0] - changes[0][0] if changes else 0.0
    if wall_s <= 0:
        return ReachedConcurrency(most=most, mean=0.0, full_share=0.0)
    return ReachedConcurrency(most=most, mean=busy_s / wall_s, full_share=full_s / wall_s)


def level_rates(
    rows: Collection[RequestRow], concurrency: int, serial: LevelRates | None = None
) -> LevelRates:
    """Return the rates of one level; runs of it are not in flight together.

    Args:
        rows: Its rows without warm-ups, at least one.
        concurrency: Requests that were asked for at once.
        serial: Rates of the level with concurrency 1; None: not measured, or these rows are it.
    """
    runs = [[row for row in rows if row.run == run] for run in sorted({row.run for row in rows})]
    walls = [max(r.ended_s for r in run) - min(r.sent_s for r in run) for run in runs]
    wall_s = sum(walls)
    tokens = sum(row.output_tokens for row in rows)
    rates = [rate for row in rows if (rate := request_tok_s(row)) is not None]
    effective = tokens / wall_s if rates and wall_s > 0 else None
    per_task = sum(rates) / len(rates) if rates else None
    return LevelRates(
        concurrency=concurrency,
        reached=_joined([reached(run, concurrency) for run in runs], walls),
        requests=len(rows),
        failed=sum(1 for row in rows if row.error),
        output_tokens=tokens,
        wall_s=wall_s,
        effective_tok_s=effective,
        per_task_tok_s=per_task,
        contention=(
            None
            if serial is None or per_task is None or not serial.per_task_tok_s
            else contention(per_task, serial.per_task_tok_s)
        ),
        speedup=(
            None
            if serial is None or effective is None or not serial.effective_tok_s
            else speedup(tokens / serial.effective_tok_s, wall_s)
        ),
    )


def levels(rows: Collection[RequestRow]) -> Sequence[LevelRates]:
    """Return the rates of each concurrency among rows of one part, the lowest first."""
    asked = sorted({row.concurrency for row in rows})
    found: list[LevelRates] = []
    for concurrency in asked:
        serial = found[0] if found and found[0].concurrency == 1 else None
        these = [row for row in rows if row.concurrency == concurrency]
        found.append(level_rates(these, concurrency, serial))
    return found


def prompt_rates(rows: Iterable[RequestRow]) -> dict[str, float | None]:
    """Return the mean tok/s of each prompt, in the order of the rows; None: all of it failed."""
    rates: dict[str, list[float]] = {}
    for row in rows:
        rate = request_tok_s(row)
        rates.setdefault(row.prompt, []).extend([] if rate is None else [rate])
    return {name: sum(some) / len(some) if some else None for name, some in rates.items()}


def mean_rate(rates: Iterable[float | None]) -> float | None:
    """Return the mean of the rates that there are; None: there is none."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None


def energy_j(reading: BoxGpus | None) -> float | None:
    """Return the sum of the GPUs' energy counters; None: there is no GPU, or one of them tells none."""
    counters = [] if reading is None else [gpu.evidence.energy_j for gpu in reading.gpus]
    known = [counter for counter in counters if counter is not None]
    return sum(known) if known and len(known) == len(counters) else None


def joules_per_token(
    before_j: float | None, after_j: float | None, output_tokens: int
) -> float | None:
    """Return the energy of each output token, from a counter of all energy before and after.

    Returns:
        None: a reading is missing, the counter went back (the driver was loaded anew), or no token
            came.
    """
    if before_j is None or after_j is None or after_j < before_j or output_tokens <= 0:
        return None
    return (after_j - before_j) / output_tokens


def _joined(runs: Sequence[ReachedConcurrency], walls: Sequence[float]) -> ReachedConcurrency:
    """Return what several runs have reached, each weighted by its wall time."""
    whole_s = sum(walls)
    if whole_s <= 0:
        return ReachedConcurrency(most=max(r.most for r in runs), mean=0.0, full_share=0.0)
    weighted = list(zip(runs, walls, strict=True))
    return ReachedConcurrency(
        most=max(r.most for r in runs),
        mean=sum(r.mean * wall for r, wall in weighted) / whole_s,
        full_share=sum(r.full_share * wall for r, wall in weighted) / whole_s,
    )
