"""Report of a bench: one JSON document, and the summary that the health agent keeps.

The document is that of ``vllm bench serve --save-result`` for the first profile's highest
concurrency, with everything else below ``appliance``; what is measured after long prompts is written
as rows of llama-bench's JSONL. So existing plotters read both (vllm/benchmarks/serve.py and
tools/llama-bench/llama-bench.cpp, as of November 2026).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import sqrt
from typing import Any, Final, cast

from appliance.model.measurements import BoxGpus
from appliance.model.profile import Applied, WarmUp, requested_name
from appliance.speed.bench_comparison import (
    Agreement,
    Answers,
    ComparisonVerdict,
    RatioInterval,
    agreement,
    block_pairs,
    comparison_verdict,
    pair_log_ratio,
    ratio_interval,
)
from appliance.speed.bench_plan import Workload
from appliance.speed.bench_rows import (
    LevelRates,
    Part,
    RequestRow,
    energy_j,
    joules_per_token,
    latencies_ms,
    level_rates,
    levels,
    mean_rate,
    prompt_rates,
)

Document = dict[str, object]


def serve_document(
    rows: Collection[RequestRow], *, date: str, backend: str, model_id: str, concurrency: int
) -> Document:
    """Return the document of one level, with its raw times.

    Args:
        rows: Rows of the level without warm-ups, at least one.
        date: Beginning of the bench as ``YYYYMMDD-HHMMSS``.
        backend: Name of the API, ``openai-chat`` or ``openai``.
        model_id: Name of the model in the requests.
        concurrency: Requests that were to be in flight at once.
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


FORMAT: Final = 1
"""Version of what is below ``appliance``."""
_KEPT: Final = (
    *(field.name for field in fields(LevelRates)),
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "median_itl_ms",
)
"""Figures of a level in a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Work of one profile without a break."""

    profile: str
    rows: Sequence[RequestRow]
    answers: Answers
    """Greedy answers, which no document repeats."""
    gpus_before: BoxGpus | None = None
    """State of the profile's GPUs; None: not read."""
    gpus_loaded: BoxGpus | None = None
    """The same while they were at work."""
    gpus_after: BoxGpus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOutcome:
    """Blocks of one bench, and the conditions under which they were measured."""

    version: str
    """Of the appliance."""
    began_unix_s: float
    date: str
    """The same as ``YYYYMMDD-HHMMSS``."""
    test_time: str
    """The same in UTC as llama-bench writes it."""
    workload: Workload
    order: Sequence[int]
    """Numbers of the profiles, block by block."""
    blocks: Sequence[Block]
    """Fewer than `order` has, if the bench was cut short."""
    leased: bool
    """Whether the health agent kept its probes away, and watched for real requests."""
    exclusive: bool = False
    """Whether real requests had to wait."""
    invalid: str = ""
    """Reason why the figures do not count; empty: they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """Figures of one profile."""

    applied: Applied
    rows: Sequence[RequestRow]
    """Without warm-ups and answers."""
    prompts: Mapping[str, float | None]
    """Tok/s of each coding task, one request at a time."""
    mean_tok_s: float | None
    swarm: Sequence[LevelRates]
    depths: Sequence[Document]
    joules_per_token: float | None
    gpus: BoxGpus | None
    """GPUs at work in the last block in which they were read; None: in none."""
    cached_share: float | None
    """Share of the prompt tokens that the prefix cache held; None: the engine does not say."""

    @property
    def failed(self) -> int:
        """Return how many requests failed."""
        return sum(1 for row in self.rows if row.error)

    def part(self, part: Part) -> Sequence[RequestRow]:
        """Return the rows of one part."""
        return [row for row in self.rows if row.part is part]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProfiles:
    """Comparison of the first profile with another."""

    names: tuple[str, str]
    interval: RatioInterval | None
    """None: nothing was measured of at least one of them."""
    answers: Agreement
    verdict: ComparisonVerdict


def profile_results(outcome: BenchOutcome, profiles: Sequence[Applied]) -> Sequence[ProfileResult]:
    """Return the figures of each profile that has a block, in the order of `profiles`."""
    return [
        _profile_result(applied, blocks, outcome)
        for applied in profiles
        if (blocks := [block for block in outcome.blocks if block.profile == applied.name])
    ]


def comparisons(outcome: BenchOutcome, names: Sequence[str]) -> Sequence[ComparedProfiles]:
    """Return the comparison of the first profile with each other one."""
    found = []
    blocks = outcome.blocks
    for number, other in enumerate(names[1:], start=1):
        pairs = block_pairs(outcome.order[: len(blocks)], number)
        ratios = [pair_log_ratio(_rates(blocks[a]), _rates(blocks[b])) for a, b in pairs]
        interval = ratio_interval([ratio for ratio in ratios if ratio is not None])
        first, second = (
            [block.answers for block in blocks if block.profile == name]
            for name in (names[0], other)
        )
        alike = agreement(first, second)
        pair = (names[0], other)
        verdict = comparison_verdict(pair, interval, alike)
        found.append(
            ComparedProfiles(names=pair, interval=interval, answers=alike, verdict=verdict)
        )
    return found


def bench_document(outcome: BenchOutcome, profiles: Sequence[Applied]) -> Document:
    """Return the whole document, with raw times and without a text of any request."""
    results = profile_results(outcome, profiles)
    return {
        **_headline(results, outcome),
        "appliance": {
            "format": FORMAT,
            "version": outcome.version,
            "began_unix_s": outcome.began_unix_s,
            "valid": not outcome.invalid,
            "invalid": outcome.invalid or None,
            "leased": outcome.leased,
            "exclusive": outcome.exclusive,
            "workload": asdict(outcome.workload),
            "order": [profiles[number].name for number in outcome.order],
            "profiles": [_profile_document(result, outcome) for result in results],
            "comparisons": [
                {
                    "profiles": list(one.names),
                    "ratio": None if one.interval is None else one.interval.ratio,
                    "low": None if one.interval is None else one.interval.low,
                    "high": None if one.interval is None else one.interval.high,
                    "pairs": 0 if one.interval is None else one.interval.pairs,
                    "answers_same": one.answers.between,
                    "answers_repeated": one.answers.own,
                    "winner": one.verdict.winner.value,
                    "why": one.verdict.why,
                }
                for one in comparisons(outcome, [profile.name for profile in profiles])
            ],
            "rows": [row_document(row) for block in outcome.blocks for row in block.rows],
        },
    }


def bench_summary(document: Mapping[str, object]) -> Document:
    """Return what is kept of a document of `bench_document`: no raw times, and of levels the rates."""
    ours = cast("Mapping[str, Any]", document["appliance"])
    profiles = [
        profile | {"levels": [{name: level[name] for name in _KEPT} for level in profile["levels"]]}
        for profile in ours["profiles"]
    ]
    kept = {name: value for name, value in ours.items() if name != "rows"}
    return without_raw(document) | {"appliance": kept | {"profiles": profiles}}


def _profile_result(
    applied: Applied, blocks: Sequence[Block], outcome: BenchOutcome
) -> ProfileResult:
    everything = [row for block in blocks for row in block.rows]
    rows = [row for row in everything if row.run and row.part is not Part.ANSWERS]
    single, swarm, depth = (
        [row for row in rows if row.part is part] for part in (Part.SINGLE, Part.SWARM, Part.DEPTH)
    )
    prompts = prompt_rates(single)
    known = [row for row in rows if row.cached_tokens is not None and not row.error]
    cached = sum(row.cached_tokens or 0 for row in known)
    energies = [
        joules_per_token(
            energy_j(block.gpus_before),
            energy_j(block.gpus_after),
            sum(row.output_tokens for row in block.rows),
        )
        for block in blocks
    ]
    return ProfileResult(
        applied=applied,
        rows=rows,
        prompts=prompts,
        mean_tok_s=mean_rate(prompts.values()),
        swarm=levels(swarm),
        depths=depth_documents(
            depth,
            model_filename=applied.model,
            build_commit="",
            test_time=outcome.test_time,
        ),
        joules_per_token=mean_rate(energies),
        gpus=next((b.gpus_loaded for b in reversed(blocks) if b.gpus_loaded is not None), None),
        cached_share=cached / max(1, sum(row.input_tokens for row in known)) if known else None,
    )


def _headline(results: Sequence[ProfileResult], outcome: BenchOutcome) -> Document:
    """Return the document of the first profile's highest concurrency; empty: no request was sent."""
    for result in results[:1]:
        rows = result.part(Part.SWARM) or result.part(Part.SINGLE)
        highest = max((row.concurrency for row in rows), default=0)
        if highest:
            chosen = [row for row in rows if row.concurrency == highest]
            return _serve(result, chosen, highest, outcome)
    return {}


def _profile_document(result: ProfileResult, outcome: BenchOutcome) -> Document:
    applied = result.applied
    single = result.part(Part.SINGLE)
    return {
        "name": applied.name,
        "engine": applied.engine,
        "model": applied.model,
        "fingerprint": applied.fingerprint,
        "failed": result.failed,
        "joules_per_token": result.joules_per_token,
        "evidence": None
        if result.gpus is None
        else {
            "driver": result.gpus.driver,
            "gpus": [asdict(gpu.evidence) for gpu in result.gpus.gpus],
        },
        "cached_share": result.cached_share,
        "single": {
            "tok_s": result.prompts,
            "mean_tok_s": result.mean_tok_s,
            **(without_raw(_serve(result, single, 1, outcome)) if single else {}),
        },
        "levels": [
            asdict(level)
            | without_raw(
                _serve(
                    result,
                    [r for r in result.part(Part.SWARM) if r.concurrency == level.concurrency],
                    level.concurrency,
                    outcome,
                )
            )
            for level in result.swarm
        ],
        "depth": list(result.depths),
    }


def _serve(
    result: ProfileResult, rows: Sequence[RequestRow], concurrency: int, outcome: BenchOutcome
) -> Document:
    chat = result.applied.warm_up is WarmUp.CHAT
    return serve_document(
        rows,
        date=outcome.date,
        backend="openai-chat" if chat else "openai",
        model_id=requested_name(result.applied),
        concurrency=concurrency,
    )


def _rates(block: Block) -> Mapping[str, float | None]:
    """Return the rate of each prompt of a block that is compared, warm-ups apart."""
    return prompt_rates([row for row in block.rows if row.run and row.part is Part.SINGLE])
