"""Documents in the names of other tools."""

from dataclasses import replace

import pytest

from appliance.speed.bench.request_row import Part, RequestRow
from appliance.speed.bench.result_documents import (
    decode_tok_s,
    depth_documents,
    prefill_tok_s,
    row_document,
    serve_document,
    without_raw,
)
from tests.fakes.bench_rows import bench_row

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
