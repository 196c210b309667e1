"""Page of metrics as vLLM writes it: its metrics, through the same library.

Names, types, labels and buckets are those of vllm/v1/metrics/loggers.py (vLLM 0.11 and later); values are made up.
`RECORDED` has what the page of a real vLLM was: `make engines-vllm` compares the two, and writes it anew with RECORD=1.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

RECORDED: Final = Path(__file__).with_name("vllm_metrics.json")
"""Facts of the page of a real vLLM, as JSON: see `page_facts`."""
OWN: Final = "vllm:"
"""Beginning of vLLM's own metrics; others are those of its libraries."""

_LABELS: Final = ("model_name", "engine")
_LATENCIES: Final = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0)
_TOKENS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_FIRST: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
_GAPS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)

GAUGES: Final = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
)
COUNTERS: Final = (
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:num_preemptions",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
)
HISTOGRAMS: Final[dict[str, Sequence[float]]] = {
    "vllm:request_prompt_tokens": _TOKENS,
    "vllm:request_generation_tokens": _TOKENS,
    "vllm:iteration_tokens_total": _TOKENS,
    "vllm:request_max_num_generation_tokens": _TOKENS,
    "vllm:time_to_first_token_seconds": _FIRST,
    "vllm:inter_token_latency_seconds": _GAPS,
    "vllm:e2e_request_latency_seconds": _LATENCIES,
    "vllm:request_queue_time_seconds": _LATENCIES,
    "vllm:request_inference_time_seconds": _LATENCIES,
    "vllm:request_prefill_time_seconds": _LATENCIES,
    "vllm:request_decode_time_seconds": _LATENCIES,
}


def vllm_page(model: str = "/models/Meta-Llama-3-8B", requests: int = 3) -> str:
    """Return the page of an engine that has answered some requests."""
    registry = CollectorRegistry()
    for name in GAUGES:
        Gauge(name, f"Gauge {name}.", _LABELS, registry=registry).labels(model, "0").set(0.25)
    for name in COUNTERS:
        counter = Counter(name, f"Counter {name}.", _LABELS, registry=registry)
        counter.labels(model, "0").inc(requests)
    success = Counter(
        "vllm:request_success",
        "Count of successfully processed requests.",
        (*_LABELS, "finished_reason"),
        registry=registry,
    )
    for reason in ("stop", "length", "abort"):
        success.labels(model, "0", reason).inc(requests)
    for name, buckets in HISTOGRAMS.items():
        histogram = Histogram(
            name, f"Histogram {name}.", _LABELS, buckets=buckets, registry=registry
        )
        for number in range(requests):
            histogram.labels(model, "0").observe(buckets[number])
    return generate_latest(registry).decode()


BOARD: Final = {
    "E2E Request Latency": (
        "vllm:e2e_request_latency_seconds_bucket",
        "vllm:e2e_request_latency_seconds_sum",
        "vllm:e2e_request_latency_seconds_count",
    ),
    "Token Throughput": ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    "Inter Token Latency": (
        "vllm:inter_token_latency_seconds_bucket",
        "vllm:inter_token_latency_seconds_sum",
        "vllm:inter_token_latency_seconds_count",
    ),
    "Scheduler State": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "Time To First Token Latency": (
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:time_to_first_token_seconds_sum",
        "vllm:time_to_first_token_seconds_count",
    ),
    "Cache Utilization": ("vllm:kv_cache_usage_perc",),
    "Request Prompt Length": ("vllm:request_prompt_tokens_bucket",),
    "Request Generation Length": ("vllm:request_generation_tokens_bucket",),
    "Finish Reason": ("vllm:request_success_total",),
    "Queue Time": ("vllm:request_queue_time_seconds_sum",),
    "Requests Prefill and Decode Time": (
        "vllm:request_prefill_time_seconds_sum",
        "vllm:request_decode_time_seconds_sum",
    ),
    "Max Generation Token in Sequence Group": ("vllm:request_max_num_generation_tokens_sum",),
}
"""Metrics that vLLM's own Grafana board asks for, by panel: examples/observability/prometheus_grafana/grafana.json
of vllm-project/vllm. Each query has the selector ``{model_name="$model_name"}``; the variable is
``label_values(model_name)``."""


def page_facts(page: str) -> Mapping[str, Sequence[str]]:
    """Return the labels of each series of vLLM's own, sorted, by the series' name; buckets' bounds are none."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.startswith(OWN):
                found.setdefault(sample.name, set()).update(sample.labels)
    return {name: sorted(labels) for name, labels in sorted(found.items())}
