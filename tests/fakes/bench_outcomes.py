"""Outcome of a bench of two profiles: single requests, a swarm, depths, greedy answers and a failure."""

from dataclasses import replace
from typing import Final

from appliance.speed.bench_comparison import turns
from appliance.speed.bench_plan import Workload
from appliance.speed.bench_report import BenchOutcome, Block
from appliance.speed.bench_rows import Part, RequestRow
from appliance.speed.probe_prompts import CODING_TASKS
from tests.fakes.bench_rows import bench_row, gpus_with

_RATES: Final = ((41.0, 40.7, 41.2, 41.1), (27.1, 27.4, 27.2, 27.0))
"""Tok/s of each profile, block by block."""


def compared_bench(first: str, second: str, *, invalid: str = "") -> BenchOutcome:
    """Return the outcome of both profiles in turns; the second is slower, and one of its requests failed."""
    order = turns(2, 2)
    left = [list(rates) for rates in _RATES]
    blocks = [
        Block(
            profile=(first, second)[number],
            rows=[
                replace(row, profile=(first, second)[number])
                for row in _rows(left[number].pop(0), run=at + 1, is_faulty=at == 1)
            ],
            answers={"lru-cache": "the answer", "merge-sort": "another" if number else "one"},
            gpus_before=gpus_with(0.0),
            gpus_after=gpus_with(90_000.0),
        )
        for at, number in enumerate(order)
    ]
    return BenchOutcome(
        version="0.1.0",
        began_unix_s=1.0,
        date="20261123-030000",
        test_time="2026-11-23T03:00:00Z",
        workload=Workload(answers=True),
        order=order,
        blocks=blocks,
        leased=True,
        invalid=invalid,
    )


def _rows(tok_s: float, *, run: int, is_faulty: bool) -> list[RequestRow]:
    tokens = round(10 * tok_s)
    rows = [
        bench_row(
            run=run,
            prompt=name,
            tokens=tokens,
            sent_s=10.0 * at,
            arrivals_s=_arrivals(10.0 * at, 9.5),
        )
        for at, name in enumerate(CODING_TASKS)
    ]
    for level in (1, 4):
        sent_s = 100.0 * level
        rows += [
            bench_row(
                run=run,
                part=Part.SWARM,
                concurrency=level,
                tokens=tokens,
                sent_s=sent_s + (10.0 * at if level == 1 else 0.0),
                wall_s=10.0 * level**0.5,
                arrivals_s=_arrivals(sent_s + (10.0 * at if level == 1 else 0.0), 9.5 * level**0.5),
            )
            for at in range(level)
        ]
    rows += [
        replace(
            bench_row(run=run, part=Part.DEPTH, tokens=128, sent_s=800.0),
            depth=depth,
            input_tokens=depth,
            cached_tokens=depth // 10,
            prefill_s=depth / 1850,
            decode_s=128 / tok_s,
        )
        for depth in (4096, 32768)
    ]
    if is_faulty:
        rows[0] = bench_row(run=run, error="503 model_not_active")
    return rows


def _arrivals(sent_s: float, last_s: float) -> tuple[float, ...]:
    """Return the arrivals of a hundred events of a request, the last one `last_s` after it was sent."""
    step_s = (last_s - 0.41) / 99
    return tuple(sent_s + 0.41 + step_s * number for number in range(100))
