"""Screens of a bench: progress with the time left, tables and remarks."""

import io
from dataclasses import replace

from appliance.cli.bench.bench_screen import BenchProgress, show_bench
from appliance.cli.terminal import Terminal
from appliance.speed.bench_plan import Workload, stages
from appliance.speed.bench_report import BenchOutcome, Block
from appliance.speed.bench_rows import Part
from tests.fakes.bench_rows import bench_row, gpus_with
from tests.fakes.profiles import applied


def outcome(*blocks: Block) -> BenchOutcome:
    return BenchOutcome(
        version="0.1.0",
        began_unix_s=1.0,
        date="20261123-030000",
        test_time="2026-11-23T03:00:00Z",
        workload=Workload(),
        order=[0] * len(blocks),
        blocks=blocks,
        leased=True,
    )


def shown(*blocks: Block) -> list[str]:
    stream = io.StringIO()
    show_bench(outcome(*blocks), [applied("a")], Terminal(stream=stream))
    return stream.getvalue().splitlines()


def test_table_reads_like_the_published_one() -> None:
    """Prompts are columns, the mean comes last; levels have effective rate, contention, speed-up."""
    single = [
        bench_row(tokens=410, wall_s=10.0, arrivals_s=(0.4, 9.9)),
        bench_row(tokens=409, wall_s=10.0, sent_s=10.0, prompt="merge-sort"),
    ]
    swarm = [
        bench_row(
            tokens=400, sent_s=100.0 + 10.0 * n, part=Part.SWARM, arrivals_s=(101.0 + 10 * n,)
        )
        for n in range(2)
    ]
    swarm += [
        bench_row(tokens=400, wall_s=20.0, sent_s=200.0, concurrency=2, part=Part.SWARM)
        for _ in range(4)
    ]
    assert shown(Block(profile="a", rows=[*single, *swarm], answers={})) == [
        "a  command",
        "  1 at a time  lru-cache  merge-sort  mean",
        "  tok/s             41.0        40.9  41.0",
        "  TTFT 0.40 s (p99 0.40 s)   TPOT 23.2 ms (p99 23.2 ms)   ITL 9.50 s (p99 9.50 s)",
        "",
        "  at a time  reached  effective tok/s  per task  contention  speed-up    TTFT",
        "  1              1.0             40.0      40.0           -         -  1.00 s",
        "  2              4.0             80.0      20.0         50%     2.00x       -",
        "",
    ]


def test_level_that_was_hardly_reached_is_told() -> None:
    """A level whose requests were mostly alone is no evidence of its name."""
    rows = [
        bench_row(sent_s=8.0 * n, wall_s=10.0, concurrency=2, part=Part.SWARM) for n in range(3)
    ]
    lines = shown(Block(profile="a", rows=rows, answers={}))
    assert "  2 at a time was reached for less than half of its time" in lines


def test_failures_cache_and_energy_are_told() -> None:
    """Remarks below the tables tell each."""
    rows = [
        replace(bench_row(), cached_tokens=25),
        bench_row(error="503 queue_full"),
    ]
    block = Block(
        profile="a", rows=rows, answers={}, gpus_before=gpus_with(0.0), gpus_after=gpus_with(150.0)
    )
    lines = shown(block)
    assert "  1.50 J per token" in lines
    assert "  a cache held 50% of the prompt tokens, salted as they were" in lines
    assert "  1 of 2 requests failed: 503 queue_full" in lines


def test_progress_is_redrawn_on_a_terminal() -> None:
    """One line changes with each request, and is cleared for a sentence and at the end."""
    stream = io.StringIO()
    plan = [("a", stage) for stage in stages(Workload())]
    progress = BenchProgress(Terminal(stream=stream, interactive=True), plan)
    warm_up = plan[0][1]
    rows = [bench_row(run=0)] * 5
    progress.show(warm_up, rows[:1])
    progress.say("a sentence")
    progress.show(warm_up, rows)
    progress.show(plan[1][1], rows[:1])
    progress.end()
    drawn = stream.getvalue().split("\r\x1b[2K")
    assert drawn[1].startswith("a: warm-up, one at a time  1/5  10.0 tok/s  about ")
    assert drawn[2] == "a sentence\n"
    assert drawn[4].startswith("a: run 1, one at a time  1/5")
    assert drawn[-1] == ""


def test_progress_of_failures_is_told() -> None:
    """A log has a line for each stage, with the number of failed requests."""
    stream = io.StringIO()
    plan = [("a", stage) for stage in stages(Workload())[:1]]
    BenchProgress(Terminal(stream=stream), plan).show(plan[0][1], [bench_row(error="503")] * 5)
    assert stream.getvalue() == "a: warm-up, one at a time  5/5  5 failed\n"
