"""Report of a bench, from its blocks."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from appliance.model.profile import WarmUp
from appliance.speed.bench.bench_report import (
    BenchOutcome,
    Block,
    bench_document,
    bench_summary,
    comparisons,
    profile_results,
)
from appliance.speed.bench.comparison import Winner, turns
from appliance.speed.bench.load_plan import Workload
from appliance.speed.bench.request_row import Part, RequestRow
from tests.fakes.bench_rows import bench_row, gpus_with
from tests.fakes.profiles import applied

A, B = applied("a"), replace(applied("b"), warm_up=WarmUp.CHAT)
RIGHT = {"lru-cache": "the answer", "merge-sort": "another"}


def rows_of(name: str, tok_s: float, run: int) -> list[RequestRow]:
    """Rows of a block: a warm-up that is slower, two prompts, and a greedy request."""
    rows = [
        bench_row(run=0, tokens=1),
        bench_row(run=run, tokens=round(10 * tok_s), sent_s=10.0),
        bench_row(run=run, tokens=round(10 * tok_s), sent_s=20.0, prompt="merge-sort"),
        bench_row(run=run, tokens=3, sent_s=30.0, part=Part.ANSWERS),
    ]
    return [replace(row, profile=name) for row in rows]


def outcome(
    rates: Mapping[str, tuple[float, ...]], answers: Mapping[str, Mapping[str, str]], **more: Any
) -> BenchOutcome:
    """Return the outcome of blocks in turns, with the rates of each profile block by block."""
    names = list(rates)
    order = turns(len(names), 2)
    left = {name: list(values) for name, values in rates.items()}
    blocks = [
        Block(
            profile=names[number],
            rows=rows_of(names[number], left[names[number]].pop(0), at + 1),
            answers=answers.get(names[number], RIGHT),
        )
        for at, number in enumerate(order)
    ]
    plain = BenchOutcome(
        version="0.1.0",
        began_unix_s=1.0,
        date="20261123-030000",
        test_time="2026-11-23T03:00:00Z",
        workload=Workload(answers=True),
        order=order,
        blocks=blocks,
        leased=True,
    )
    return replace(plain, **more)


FASTER = {"a": (40.0, 40.1, 40.0, 39.9), "b": (44.0, 44.1, 43.9, 44.0)}


def test_faster_profile_with_the_same_answers_wins() -> None:
    """Ten per cent over four pairs that agree within a fraction of one are beyond doubt."""
    (found,) = comparisons(outcome(FASTER, {}), ["a", "b"])
    assert found.interval is not None
    assert found.interval.pairs == 4
    assert found.interval.ratio == pytest.approx(1.1, abs=0.003)
    assert found.verdict.winner is Winner.SECOND
    assert found.answers.between == 1.0


def test_faster_but_wrong_does_not_win() -> None:
    """A profile that breaks one of two greedy answers wins nothing by its speed."""
    broken = {**RIGHT, "merge-sort": "something else"}
    (found,) = comparisons(outcome(FASTER, {"b": broken}), ["a", "b"])
    assert found.verdict.winner is Winner.NEITHER
    assert found.verdict.why.startswith("b is faster, but only 50%")


def test_document_has_everything_but_texts() -> None:
    """Top-level names are those of other tools; answers appear nowhere."""
    whole = outcome(FASTER, {})
    document = bench_document(whole, [A, B])
    assert document["model_id"] == "a"
    assert document["max_concurrency"] == 1
    ours: Any = document["appliance"]
    assert ours["order"] == ["a", "b", "b", "a", "b", "a", "a", "b"]
    assert [one["name"] for one in ours["profiles"]] == ["a", "b"]
    assert [one["single"]["backend"] for one in ours["profiles"]] == ["openai", "openai-chat"]
    assert ours["profiles"][0]["single"]["mean_tok_s"] == pytest.approx(40.0)
    assert ours["comparisons"][0]["winner"] == "second"
    assert len(ours["rows"]) == 8 * 4
    text = json.dumps(document)
    assert "the answer" not in text
    summary: Any = bench_summary(document)
    assert "rows" not in summary["appliance"]
    assert "ttfts" not in summary
    assert len(json.dumps(summary)) < 48 << 10


def test_swarm_is_the_headline() -> None:
    """The document of the highest concurrency comes first, each level has its own below."""
    rows = [
        replace(bench_row(sent_s=10.0 * n, concurrency=c, part=Part.SWARM, run=1), profile="a")
        for c in (1, 2)
        for n in range(2)
    ]
    block = Block(profile="a", rows=rows, answers={})
    whole = outcome({"a": (1.0,)}, {}, blocks=[block], order=[0], invalid="real requests came")
    document = bench_document(whole, [A])
    assert document["max_concurrency"] == 2
    ours: Any = document["appliance"]
    (profile,) = ours["profiles"]
    assert [level["concurrency"] for level in profile["levels"]] == [1, 2]
    assert "contention" in profile["levels"][1]
    assert profile["single"] == {"tok_s": {}, "mean_tok_s": None}
    summary: Any = bench_summary(document)
    kept = summary["appliance"]["profiles"][0]["levels"]
    assert [level["effective_tok_s"] for level in kept] == [10.0, 10.0]
    assert "mean_itl_ms" not in kept[0]
    assert (ours["valid"], ours["invalid"]) == (False, "real requests came")


def test_energy_and_cache_of_a_profile() -> None:
    """Energy is that of whole blocks over all their tokens; the cached share that of measured rows."""
    rows = [
        replace(row, cached_tokens=5 if row.run else 50, profile="a") for row in rows_of("a", 40, 1)
    ]
    block = Block(
        profile="a",
        rows=rows,
        answers={},
        gpus_before=gpus_with(100.0),
        gpus_loaded=gpus_with(500.0),
        gpus_after=gpus_with(904.0),
    )
    whole = outcome({"a": (1.0,)}, {}, blocks=[block], order=[0])
    (result,) = profile_results(whole, [A])
    assert result.joules_per_token == 1.0
    (profile,) = cast("Any", bench_document(whole, [A]))["appliance"]["profiles"]
    assert profile["evidence"]["driver"] == "580.1"
    assert [gpu["energy_j"] for gpu in profile["evidence"]["gpus"]] == [500.0]
    assert result.cached_share == 0.1
    assert result.failed == 0


def test_bench_that_was_cut_short() -> None:
    """Without a block there is no figure; with one there is no comparison."""
    empty = outcome(FASTER, {}, blocks=[])
    document: Any = bench_document(empty, [A, B])
    assert set(document) == {"appliance"}
    assert document["appliance"]["comparisons"][0]["ratio"] is None
    only = Block(profile="a", rows=[], answers={})
    cut: Any = bench_document(outcome(FASTER, {}, blocks=[only]), [A, B])
    assert set(cut) == {"appliance"}
    (profile,) = cut["appliance"]["profiles"]
    assert (profile["cached_share"], profile["evidence"]) == (None, None)
    assert cut["appliance"]["comparisons"][0]["winner"] == "neither"
