"""Documents of a bench in the names of other tools, so that existing plotters read them.

`serve_document` is a superset of what ``vllm bench serve --save-result`` writes, and
`depth_documents` are rows of llama-bench's JSONL (vllm/benchmarks/serve.py and
tools/llama-bench/llama-bench.cpp, as of November 2026).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from math import sqrt

from appliance.speed.bench.latencies import latencies_ms
from appliance.speed.bench.rates import level_rates
from appliance.speed.bench.request_row import RequestRow

Document = dict[str, object]


def serve_document(
    rows: Collection[RequestRow], *, date: str, backend: str, model_id: str, concurrency: int
) -> Document:
    """Return the document of one level, with its raw times.

    Args:
        rows: Rows of the level without warm-ups, at least one.
        date: Beginning of the bench as ``YYYYMMDD-HHMMSS``.
        backend: Name of the API, ``openai-chat`` or ``openai``.
        model_id: Name by which the model was asked for.
        concurrency: Requests that were asked for at once.
    """
    level = level_rates(rows, concurrency)
    inputs = sum(row.input_tokens for row in rows if not row.error)
    completed = level.requests - level.failed
    per_s = 1 / level.wall_s if level.wall_s > 0 else 0.0
    return {
        "date": date,
        "backend": backend,
        "model_id": model_id,
        "num_prompts": level.requests,
        "request_rate": "inf",
        "max_concurrency": concurrency,
        "duration": level.wall_s,
        "completed": completed,
        "failed": level.failed,
        "total_input_tokens": inputs,
        "total_output_tokens": level.output_tokens,
        "request_throughput": completed * per_s,
        "output_throughput": level.output_tokens * per_s,
        "total_token_throughput": (inputs + level.output_tokens) * per_s,
        "max_concurrent_requests": level.reached.most,
        **latencies_ms(rows),
        "ttfts": [row.ttft_s or 0.0 for row in rows],
        "itls": [list(row.itls_s) for row in rows],
        "input_lens": [row.input_tokens for row in rows],
        "output_lens": [row.output_tokens for row in rows],
        "start_times": [row.sent_s for row in rows],
        "errors": [row.error for row in rows],
    }


RAW: Sequence[str] = ("ttfts", "itls", "input_lens", "output_lens", "start_times", "errors")
"""Names of the raw times in a level's document."""


def without_raw(document: Mapping[str, object]) -> Document:
    """Return a level's document without its raw times."""
    return {name: value for name, value in document.items() if name not in RAW}


def row_document(row: RequestRow) -> Document:
    """Return one raw row for JSON and CSV."""
    return asdict(row) | {"arrivals_s": list(row.arrivals_s)}


def depth_documents(
    rows: Collection[RequestRow], *, model_filename: str, build_commit: str, test_time: str
) -> Sequence[Document]:
    """Return rows of llama-bench: of each depth its prompt (pp), and decoding after it (tg).

    `n_depth` is the length of the prompt as the engine counted it. Rows of failed requests are
    left out.
    """
    found = []
    for depth in sorted({row.depth for row in rows}):
        these = [row for row in rows if row.depth == depth and not row.error]
        if not these:
            continue
        tokens = round(sum(row.input_tokens for row in these) / len(these))
        output = max(row.output_tokens for row in these)
        prefill = [rate for row in these if (rate := prefill_tok_s(row)) is not None]
        decode = [rate for row in these if (rate := decode_tok_s(row)) is not None]
        for n_prompt, n_gen, n_depth, samples in (
            (tokens, 0, 0, prefill),
            (0, output, tokens, decode),
        ):
            if samples:
                found.append(
                    {
                        "build_commit": build_commit,
                        "model_filename": model_filename,
                        "type_k": "",
                        "type_v": "",
                        "n_prompt": n_prompt,
                        "n_gen": n_gen,
                        "n_depth": n_depth,
                        "test_time": test_time,
                        "avg_ts": _mean(samples),
                        "stddev_ts": _deviation(samples),
                        "samples_ts": samples,
                    }
                )
    return found


def prefill_tok_s(row: RequestRow) -> float | None:
    """Return evaluated prompt tokens a second, by the engine's timings or else by the TTFT."""
    seconds = row.prefill_s or row.ttft_s
    tokens = row.input_tokens - (row.cached_tokens or 0)
    return tokens / seconds if seconds and tokens > 0 else None


def decode_tok_s(row: RequestRow) -> float | None:
    """Return decoded tokens a second, by the engine's timings or else by the stream."""
    if row.decode_s and row.output_tokens > 1:
        return (row.output_tokens - 1) / row.decode_s
    return 1 / row.tpot_s if row.tpot_s else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of the sample, as llama-bench does; 0 for one value."""
    if len(values) < 2:  # noqa: PLR2004
        return 0.0
    mean = _mean(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
