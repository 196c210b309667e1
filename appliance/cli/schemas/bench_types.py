"""Types of the document of a bench: JSON for programs, in the names of other tools where they have some."""

from collections.abc import Mapping
from typing import Literal, TypedDict

from appliance.model.measurements import GpuEvidence
from appliance.speed.bench_comparison import Winner
from appliance.speed.bench_plan import Workload
from appliance.speed.bench_rows import ReachedConcurrency, RequestRow


class Latencies(TypedDict):
    """Latencies of requests in milliseconds; None: no request has one."""

    mean_ttft_ms: float | None
    """From sending a request to its first content; likewise the next five."""
    median_ttft_ms: float | None
    std_ttft_ms: float | None
    p50_ttft_ms: float | None
    p95_ttft_ms: float | None
    p99_ttft_ms: float | None
    mean_tpot_ms: float | None
    """For each output token after the first, one value a request; likewise the next five."""
    median_tpot_ms: float | None
    std_tpot_ms: float | None
    p50_tpot_ms: float | None
    p95_tpot_ms: float | None
    p99_tpot_ms: float | None
    mean_itl_ms: float | None
    """Between one event with content and the next, all of all requests together; likewise the next five."""
    median_itl_ms: float | None
    std_itl_ms: float | None
    p50_itl_ms: float | None
    p95_itl_ms: float | None
    p99_itl_ms: float | None
    mean_e2el_ms: float | None
    """From sending a request to its last content; likewise the next five."""
    median_e2el_ms: float | None
    std_e2el_ms: float | None
    p50_e2el_ms: float | None
    p95_e2el_ms: float | None
    p99_e2el_ms: float | None


class ServeFigures(Latencies):
    """Figures of the requests of one concurrency, in the names of ``vllm bench serve``."""

    date: str
    """Beginning of the bench as ``YYYYMMDD-HHMMSS``."""
    backend: Literal["openai-chat", "openai"]
    """API that was asked."""
    model_id: str
    """Name by which the model was asked for."""
    num_prompts: int
    request_rate: Literal["inf"]
    max_concurrency: int
    """Requests that were asked for at once."""
    duration: float
    """Seconds from the first request to the last answer, of all runs together."""
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    """Completed requests a second."""
    output_throughput: float
    """Generated tokens a second."""
    total_token_throughput: float
    """Prompt and generated tokens a second."""
    max_concurrent_requests: int
    """Most requests that were in flight at once."""


class ServeDocument(ServeFigures):
    """The same with the raw times of each request, in the order of the rows."""

    ttfts: list[float]
    """Seconds from sending to the first content; 0: none came."""
    itls: list[list[float]]
    """Seconds between one event with content and the next."""
    input_lens: list[int]
    output_lens: list[int]
    start_times: list[float]
    """Seconds from the beginning of the bench."""
    errors: list[str]
    """Reason why the request failed; empty: it did not fail."""


class DepthRow(TypedDict):
    """Row of llama-bench: of a prompt (`n_gen` is 0), or of decoding after one (`n_prompt` is 0)."""

    build_commit: str
    model_filename: str
    type_k: str
    type_v: str
    n_prompt: int
    n_gen: int
    n_depth: int
    """Prompt tokens before decoding."""
    test_time: str
    avg_ts: float
    """Mean rate in tokens a second."""
    stddev_ts: float
    """Standard deviation of that rate."""
    samples_ts: list[float]


class SingleRates(TypedDict):
    """Rates of one request at a time."""

    tok_s: Mapping[str, float | None]
    """By task; None: each request of it failed."""
    mean_tok_s: float | None
    """Mean over the tasks; None: nothing was measured."""


class SingleFigures(SingleRates, ServeFigures):
    """Figures of one request at a time."""


class LevelFigures(ServeFigures):
    """Figures of one concurrency."""

    concurrency: int
    """Requests that were asked for at once."""
    reached: ReachedConcurrency
    requests: int
    output_tokens: int
    wall_s: float
    """Sum over the runs of the level."""
    effective_tok_s: float | None
    """Rate of all requests together; None: none came to its end, likewise the next."""
    per_task_tok_s: float | None
    contention: float | None
    """Share of a request's speed that it loses to those beside it; None: nothing was measured at concurrency 1."""
    speedup: float | None
    """Factor by which the same work is done sooner than one by one; None likewise."""


class GpusAtWork(TypedDict):
    """GPUs of a profile while it was measured."""

    driver: str | None
    """Version of the driver; None: not told."""
    gpus: list[GpuEvidence]


class BenchedProfile(TypedDict):
    """Figures of one profile."""

    name: str
    engine: str
    model: str
    fingerprint: str
    """Digest of all that decides how much memory the profile takes."""
    failed: int
    """Requests that failed."""
    joules_per_token: float | None
    """None: a driver does not count energy, or nobody may read it."""
    evidence: GpusAtWork | None
    """None: the GPUs were not read."""
    cached_share: float | None
    """Share of the prompt tokens that the prefix cache held; None: the engine does not tell."""
    single: SingleFigures | SingleRates
    """One request at a time; the rates alone where nothing was asked so."""
    levels: list[LevelFigures]
    """Several at a time; empty: no swarm was asked for."""
    depth: list[DepthRow]
    """After long prompts; empty: none was asked for."""


class BenchComparison(TypedDict):
    """Comparison of the first profile with another."""

    profiles: list[str]
    """Both names."""
    ratio: float | None
    """Speed of the other relative to the first; None: nothing was measured of at least one of them."""
    low: float | None
    """Lower end of the 95 % confidence interval of the ratio; None likewise."""
    high: float | None
    pairs: int
    """Pairs of turns that were compared."""
    answers_same: float | None
    """Share of greedy answers that both give alike; None: none were compared, likewise the next."""
    answers_repeated: float | None
    """Share of greedy answers that each repeats itself."""
    winner: Winner
    why: str


class BenchSection(TypedDict):
    """Figures that other tools have no name for."""

    format: int
    """Version of this section."""
    version: str
    """Of the appliance."""
    began_unix_s: float
    """Time of the beginning."""
    valid: bool
    """Whether the figures count."""
    invalid: str | None
    """Reason why they do not; None: they do."""
    leased: bool
    """Whether the health agent kept its probes away, and watched for real requests."""
    exclusive: bool
    """Whether real requests had to wait."""
    workload: Workload
    order: list[str]
    """Profiles, block by block."""
    profiles: list[BenchedProfile]
    comparisons: list[BenchComparison]
    """Of the first profile with each other one."""
    rows: list[RequestRow]
    """Raw times of each request; times are from the beginning of the bench."""


class BenchDocument(ServeDocument):
    """Result of a bench: at the top that of the first profile's highest concurrency, as ``vllm bench serve`` saves it."""

    appliance: BenchSection


class EmptyBenchDocument(TypedDict):
    """Result of a bench that has asked nothing of the first profile."""

    appliance: BenchSection
