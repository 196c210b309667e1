"""Report of a bench, and its documents in the names of other tools."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from appliance.model.profile import WarmUp
from appliance.speed.bench_comparison import Winner, turns
from appliance.speed.bench_plan import Workload
from appliance.speed.bench_report import (
    BenchOutcome,
    Block,
    bench_document,
    bench_summary,
    comparisons,
    decode_tok_s,
    depth_documents,
    prefill_tok_s,
    profile_results,
    row_document,
    serve_document,
    without_raw,
)
from appliance.speed.bench_rows import Part, RequestRow
from tests.fakes.bench_rows import bench_row, gpus_with
from tests.fakes.profiles import applied

SERVE_KEYS = {
    "date",
    "backend",
    "model_id",
    "num_prompts",
    "request_rate",
    "max_concurrency",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "max_concurrent_requests",
    "ttfts",
    "itls",
    "input_lens",
    "output_lens",
    "start_times",
    "errors",
} | {
    f"{word}_{name}_ms"
    for word in ("mean", "median", "std", "p50", "p95", "p99")
    for name in ("ttft", "tpot", "itl", "e2el")
}
LLAMA_BENCH_KEYS = {
    "build_commit",
    "model_filename",
    "n_prompt",
    "n_gen",
    "n_depth",
    "type_k",
    "type_v",
    "avg_ts",
    "stddev_ts",
    "samples_ts",
}


def depth_row(depth: int, **changes: object) -> RequestRow:
    row = bench_row(part=Part.DEPTH, tokens=101, prompt="prefill", arrivals_s=(4.0, 9.0))
    return replace(row, depth=depth, input_tokens=depth + 8, **changes)  # type: ignore[arg-type]  # a test's


def test_document_of_a_level() -> None:
    """Every name is there, and sums and rates follow from the rows."""
    rows = [
        bench_row(sent_s=0.0, wall_s=4.0, tokens=100, concurrency=2, arrivals_s=(1.0, 2.0)),
        bench_row(sent_s=0.0, wall_s=5.0, tokens=300, concurrency=2, arrivals_s=(1.5,)),
        bench_row(sent_s=4.0, wall_s=1.0, concurrency=2, error="503"),
    ]
    found = serve_document(
        rows, date="20261123-031500", backend="openai-chat", model_id="m", concurrency=2
    )
    assert set(found) == SERVE_KEYS
    assert (found["num_prompts"], found["completed"], found["failed"]) == (3, 2, 1)
    assert (found["duration"], found["output_throughput"]) == (5.0, 80.0)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (100, 400)
    assert found["total_token_throughput"] == 100.0
    assert found["request_throughput"] == 0.4
    assert found["max_concurrent_requests"] == 2
    assert found["ttfts"] == [1.0, 1.5, 0.0]
    assert found["itls"] == [[1.0], [], []]
    assert found["start_times"] == [0.0, 0.0, 4.0]
    assert found["errors"] == ["", "", "503"]


def test_document_without_duration() -> None:
    """Requests that all failed at once have no throughput, and divide by nothing."""
    rows = [bench_row(wall_s=0.0, error="no response")]
    found = serve_document(rows, date="", backend="openai", model_id="m", concurrency=1)
    assert (found["duration"], found["output_throughput"]) == (0.0, 0.0)


def test_summary_has_no_raw_times() -> None:
    """Without its raw times a level takes little room."""
    found = serve_document([bench_row()], date="", backend="", model_id="", concurrency=1)
    left = without_raw(found)
    assert len(found) - len(left) == 6
    assert "mean_ttft_ms" in left
    assert row_document(bench_row())["prompt"] == "lru-cache"


def test_rows_of_depths() -> None:
    """Each depth has a row for its prompt and one for decoding after it, with all samples."""
    rows = [
        depth_row(1000),
        replace(depth_row(1000), prefill_s=2.0, decode_s=4.0, cached_tokens=8),
        replace(depth_row(1000), error="503"),
        replace(depth_row(2000), error="503"),
    ]
    found = depth_documents(rows, model_filename="m.gguf", build_commit="b1", test_time="t")
    assert len(found) == 2
    assert all(set(row) >= LLAMA_BENCH_KEYS for row in found)
    prompt, decode = found
    assert (prompt["n_prompt"], prompt["n_gen"], prompt["n_depth"]) == (1008, 0, 0)
    assert prompt["samples_ts"] == [1008 / 4.0, 1000 / 2.0]
    assert (decode["n_prompt"], decode["n_gen"], decode["n_depth"]) == (0, 101, 1008)
    assert decode["samples_ts"] == pytest.approx([100 / 5.0, 100 / 4.0])
    assert decode["avg_ts"] == pytest.approx(22.5)
    assert decode["stddev_ts"] == pytest.approx(12.5**0.5)


def test_depth_without_a_rate_has_no_row() -> None:
    """One sample has no deviation; a prompt that was cached whole, and one token, have no rate."""
    row = replace(depth_row(1000), output_tokens=1, decode_s=2.0)
    (found,) = depth_documents([row], model_filename="", build_commit="", test_time="")
    assert (found["n_gen"], found["stddev_ts"]) == (0, 0.0)
    assert decode_tok_s(row) is None
    assert prefill_tok_s(replace(row, cached_tokens=1008)) is None
    assert prefill_tok_s(replace(row, arrivals_s=())) is None


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
