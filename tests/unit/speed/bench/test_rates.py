"""Rates of a bench, by hand-checked samples of the published method."""

import pytest

from appliance.speed.bench.rates import (
    ReachedConcurrency,
    contention,
    energy_j,
    joules_per_token,
    level_rates,
    levels,
    mean_rate,
    prompt_rates,
    reached,
    request_tok_s,
    speedup,
)
from appliance.speed.bench.request_row import Part
from tests.fakes.bench_rows import bench_row, gpus_with

PROMPTS = ("lru-cache", "merge-sort", "cron-parser", "web-route", "rate-limiter")
PUBLISHED = (
    ((170.0, 167.3, 169.6, 168.5, 170.7), 169.2),
    ((169.2, 168.8, 168.0, 168.1, 168.5), 168.5),
    ((165.9, 162.9, 163.2, 160.7, 164.5), 163.4),
    ((65.6, 65.1, 65.5, 64.9, 65.6), 65.3),
    ((41.0, 40.9, 40.9, 41.0, 41.0), 41.0),
    ((63.9, 63.5, 63.7, 63.4, 63.8), 63.7),
)
"""Rates of the published table and the mean that follows from them. The means printed there are 169.7,
168.4, 163.5, 65.4, 41.0 and 63.7: those of unrounded rates, but the first, which is no mean of its
row."""


def test_published_rate_of_one_request() -> None:
    """500 tokens in 27.994 s are 17.9 tok/s."""
    rate = request_tok_s(bench_row(tokens=500, wall_s=27.994))
    assert rate is not None
    assert round(rate, 1) == 17.9


@pytest.mark.parametrize(("published", "expected"), PUBLISHED)
def test_published_rates_of_five_prompts(published: tuple[float, ...], expected: float) -> None:
    """Each prompt has its rate, and their mean is that of the profile."""
    rows = [
        bench_row(prompt=name, tokens=round(rate * 20), wall_s=20.0, sent_s=20.0 * number)
        for number, (name, rate) in enumerate(zip(PROMPTS, published, strict=True))
    ]
    rates = prompt_rates(rows)
    assert rates == pytest.approx(dict(zip(PROMPTS, published, strict=True)))
    assert list(rates) == list(PROMPTS)
    mean = mean_rate(rates.values())
    assert mean is not None
    assert round(mean, 1) == expected


def test_published_contention() -> None:
    """125 tok/s a task beside three others, of 166 alone, is a contention of 25 %."""
    assert round(contention(125, 166), 2) == 0.25


def test_effective_rate_is_all_tokens_over_the_wall() -> None:
    """Four requests of 125 tokens, two at a time, in 10 s: 50 tok/s, and 25 a task."""
    rows = [
        bench_row(sent_s=start, wall_s=5.0, tokens=125, concurrency=2)
        for start in (0.0, 0.0, 5.0, 5.0)
    ]
    level = level_rates(rows, 2)
    assert (level.effective_tok_s, level.per_task_tok_s) == (50.0, 25.0)
    assert level.reached == ReachedConcurrency(most=2, mean=2.0, full_share=1.0)
    assert (level.wall_s, level.output_tokens, level.requests, level.failed) == (10.0, 500, 4, 0)
    assert (level.contention, level.speedup) == (None, None)


def test_levels_are_compared_with_the_serial_one() -> None:
    """Contention is lost speed of a task, speed-up the serial wall of the same work over the wall."""
    rows = [bench_row(sent_s=10.0 * n, wall_s=10.0, tokens=400) for n in range(4)]
    rows += [bench_row(sent_s=100.0, wall_s=20.0, tokens=400, concurrency=4) for _ in range(4)]
    serial, four = levels(rows)
    assert (serial.effective_tok_s, serial.contention, serial.speedup) == (40.0, None, None)
    assert (four.effective_tok_s, four.per_task_tok_s) == (80.0, 20.0)
    assert (four.contention, four.speedup) == (0.5, 2.0)
    assert four.speedup == speedup(serial.wall_s, four.wall_s)


def test_level_is_not_compared_with_another_than_the_serial_one() -> None:
    """Without concurrency 1 there is neither contention nor speed-up."""
    rows = [bench_row(concurrency=c) for c in (2, 3)]
    assert [(one.contention, one.speedup) for one in levels(rows)] == [(None, None)] * 2


def test_concurrency_reached_is_measured() -> None:
    """A level that asked for four and ran three and then one reached three, two on average."""
    rows = [bench_row(wall_s=5.0, concurrency=4) for _ in range(3)]
    rows.append(bench_row(sent_s=5.0, wall_s=5.0, concurrency=4))
    assert reached(rows, 4) == ReachedConcurrency(most=3, mean=2.0, full_share=0.0)
    assert reached(rows, 3).full_share == 0.5


def test_runs_of_a_level_are_not_in_flight_together() -> None:
    """The pause between two runs is neither wall time nor a time without requests."""
    rows = [bench_row(run=1, wall_s=4.0), bench_row(run=2, sent_s=1000.0, wall_s=6.0)]
    level = level_rates(rows, 1)
    assert (level.wall_s, level.effective_tok_s) == (10.0, 20.0)
    assert level.reached == ReachedConcurrency(most=1, mean=1.0, full_share=1.0)


def test_failed_requests_have_no_rate() -> None:
    """Failed requests are counted; a level of nothing else has no rates."""
    rows = [bench_row(error="503"), bench_row(sent_s=0.0, wall_s=0.0, error="503")]
    level = level_rates(rows, 1)
    assert (level.failed, level.effective_tok_s, level.per_task_tok_s) == (2, None, None)
    assert prompt_rates(rows) == {"lru-cache": None}
    assert mean_rate([None]) is None
    serial = level_rates([bench_row()], 1)
    worse = level_rates(rows, 2, serial)
    assert (worse.contention, worse.speedup) == (None, None)
    again = level_rates([bench_row(concurrency=2)], 2, level)
    assert (again.contention, again.speedup) == (None, None)


def test_rows_without_duration_reach_nothing() -> None:
    """Requests that failed at once give no mean concurrency."""
    rows = [bench_row(wall_s=0.0, error="no response", part=Part.SWARM)]
    assert reached(rows, 1) == ReachedConcurrency(most=0, mean=0.0, full_share=0.0)
    assert level_rates(rows, 1).reached == ReachedConcurrency(most=0, mean=0.0, full_share=0.0)
    assert reached([], 1) == ReachedConcurrency(most=0, mean=0.0, full_share=0.0)


@pytest.mark.parametrize(
    ("before", "after", "tokens", "expected"),
    [
        (100.0, 350.0, 500, 0.5),
        (None, 350.0, 500, None),
        (100.0, None, 500, None),
        (350.0, 100.0, 500, None),
        (100.0, 350.0, 0, None),
    ],
)
def test_energy_of_a_token(
    before: float | None, after: float | None, tokens: int, expected: float | None
) -> None:
    """The counter's growth over the tokens; none without both readings, or if it went back."""
    assert joules_per_token(before, after, tokens) == expected


def test_energy_is_the_sum_of_all_counters() -> None:
    """One GPU that tells none leaves the sum unknown, as a reading that was not made does."""
    assert energy_j(gpus_with(100.0, 20.5)) == 120.5
    assert energy_j(gpus_with(100.0, None)) is None
    assert energy_j(gpus_with()) is None
    assert energy_j(None) is None
